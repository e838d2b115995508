//! The whole control plane under deterministic simulation.

pub mod api_server;
mod checks;
mod host;
pub mod link;
pub mod proxy;
pub mod random;
pub mod replica;
pub mod schedule;
pub mod simulation;
pub mod story;
pub mod stream;
pub mod world;
