//! Answers about changes: the effect of a change before it is applied, and why proxies have their
//! resources afterwards.
//!
//! ```text
//! snapshot + proposal ─▶ Mirror (a mesh state and an engine of its own) ─▶ what each proxy has before and after ─▶ Plan
//! what a proxy has ─▶ walk ─▶ words
//! ```
//!
//! No sockets and no clocks; nothing here changes the configuration in force.

mod ambient_traffic;
pub mod applied;
pub mod client;
pub mod difference;
pub mod doctor;
mod evaluation;
pub mod fields;
mod implied;
mod inbound;
mod inbound_requests;
mod ingress;
mod labelled_request;
pub mod mirror;
pub mod node_message;
mod object_parts;
pub mod parts;
pub mod plan;
mod predicted_rejection;
pub mod proposal;
pub mod quarantine;
pub mod received;
pub mod rollout;
mod route_example;
mod text;
mod traffic;
mod waypoint;
pub mod why;
pub mod why_not;
mod wording;
mod ztunnel;

pub use evaluation::ASSUMED_VALID_TOKEN;
pub use implied::{ambient, implied};

/// The stack size for plans and walks, the same as that of the push thread: translation nests
/// deeply.
pub const STACK: usize = 16 << 20;
