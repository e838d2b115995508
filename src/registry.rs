//! Services, endpoints and workloads: one model, whatever object they come from.
//!
//! Knows the objects users write (`api`) and where they are kept (`store`), never Envoy.

pub mod directory;
pub mod model;
mod placeholder;
pub use placeholder::Registry;
pub mod protocol;
