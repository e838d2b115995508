//! Envoy, xDS and Istio wire types.
//!
//! The modules are the packages of the `.proto` files: `envoy.config.cluster.v3.Cluster` is
//! [`envoy::config::cluster::v3::Cluster`]. Maps are ordered, so that equal messages have equal
//! bytes; byte strings are [`bytes::Bytes`]; the well-known types are those of [`prost_types`].

pub mod any;
mod canonical;
pub mod json;
pub mod raw;

pub use generated::*;
pub use prost_reflect;

/// The descriptors of every message, as an encoded `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire.binpb"));

/// What `build.rs` wrote.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    rustdoc::all,
    reason = "generated: its docs are the .proto files, its style is prost's"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/wire.rs"));
}
