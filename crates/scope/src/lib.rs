//! Which services each workload calls, by the metrics of its proxies, and what follows: a Sidecar
//! that makes only these visible, policies, and calls that the configuration in force cuts.
//!
//! ```text
//! expositions ─▶ series ─▶ Reading (as far as believed) ─▶ Evidence (sums over readings)
//!                                                              │
//! snapshot, workloads ─▶ Mirror ─▶ what each proxy has ────────┴─▶ suggestions, differences
//!                          ▲                                          │
//!                          └──────── the suggested Sidecars ◀─────────┘ what it would have
//!
//! evidence, connected proxies ─▶ edges: used, denied, allowed and never used
//! ```
//!
//! Pure functions: nothing here reads or changes a cluster.

pub mod difference;
pub mod edges;
pub mod evidence;
pub mod exposition;
mod kept;
mod listener_uses;
mod moment;
mod policy;
mod proxy_config;
pub mod reading;
mod selector;
mod sidecars;
pub mod suggestion;
mod text;
mod valid;
mod walks;
mod workload;

#[cfg(test)]
mod test_mesh;

pub use moment::Moment;
pub use walks::Walks;
pub use workload::{Workload, WorkloadName};
