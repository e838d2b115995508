//! Navarch: a service-mesh control plane that speaks Istio's configuration and Envoy's xDS.
//!
//! The rooms and the way data walks through them are drawn in `ARCHITECTURE.md`.

pub mod api;
pub mod envoy;
pub mod push;
pub mod registry;
pub mod store;
