//! Real parts for tests and the demo: Envoy, backends, an HTTP client, the navarch process. No
//! mocks.
//!
//! Everything listens on loopback. Every process is ended by its PID when its handle is dropped,
//! even if a test panics.

#![allow(
    clippy::disallowed_methods,
    reason = "test code may use the clock and the environment, and spawn"
)]

pub mod backend;
pub mod bookshop;
pub mod cert_manager;
pub mod chart;
pub mod client;
pub mod cluster;
pub mod envoy;
pub mod gateway_api;
pub mod guard;
pub mod helm;
pub mod istio;
pub mod joined;
pub mod mesh;
pub mod navarch;
pub mod node;
pub mod pkcs11;
pub mod ports;
pub mod process;
pub mod requests;
pub mod skip;
pub mod sniffer;
pub mod spire;
pub mod stages;
pub mod tally;
pub mod usage;
pub mod wait;
pub mod watched;
pub mod wire;
