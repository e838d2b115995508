//! The fuzz targets of Navarch: a module for each parser of bytes from outside, with
//! `pub fn run(data: &[u8])`, which panics if its input shows a fault.
//!
//! `cargo fuzz` runs them on random inputs (`fuzz/fuzz_targets`), and `tests/corpora` on the corpora
//! with every test run.

#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a target fails by a panic, and has a clock"
)]

pub mod access_logs;
pub mod admission_body;
pub mod admission_review;
pub mod certificate_request;
pub mod csr;
pub mod discovery_request;
pub mod dns_packet;
pub mod grpc_frames;
pub mod injection_annotations;
pub mod injection_templates;
pub mod jwks;
pub mod jwt;
pub mod node_metadata;
pub mod pem_bundle;
pub mod probe_spec;
pub mod prometheus_text;
pub mod wasm_image;
pub mod watch_event;
pub mod workload_registration;
pub mod yaml_to_xds;
