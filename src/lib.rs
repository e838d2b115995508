//! Navarch: a service-mesh control plane that speaks Istio's configuration and Envoy's xDS.
//!
//! The rooms and the way data walks through them are drawn in `ARCHITECTURE.md`.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "builders of test values read best taking values"))]

pub mod admin;
pub mod agent;
pub mod api;
pub mod cli;
pub mod envoy;
pub mod net;
pub mod push;
pub mod registry;
pub mod security;
pub mod server;
pub mod source;
pub mod status;
pub mod store;
pub mod walk;
pub mod webhook;
pub mod xds;
