//! The whole control plane under deterministic simulation.

pub mod api_server;
mod checks;
pub mod driver;
mod host;
mod leaders;
pub mod link;
pub mod proxy;
pub mod random;
pub mod replica;
pub mod schedule;
pub mod shrink;
pub mod simulation;
pub mod story;
pub mod stream;
pub mod world;
