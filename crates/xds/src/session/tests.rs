//! The state machine: each transition, then random conversations.

mod by_address;
mod client;
mod conversation;
mod hosts;
mod order;
mod rig;
mod routes;
mod server;
mod transitions;
mod withheld;
