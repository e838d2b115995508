//! The configuration that users write: Kubernetes and Istio objects as types, their defaults and
//! their validation.
//!
//! Independent of stores, proxies and Envoy.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

pub mod any_object;
pub mod cluster_settings;
pub mod crds;
pub mod credential_names;
pub mod decode;
pub mod duration;
pub mod encode;
pub mod envoy_json;
pub mod field_error;
pub mod gateway_api;
pub mod hbone_settings;
pub mod hostname;
pub mod identity;
pub mod istio;
pub mod istiod;
pub mod json_object;
mod json_reader;
pub mod key_set;
pub mod key_source;
pub mod kubernetes;
pub mod learned_scope;
pub mod mcp;
pub mod mcs;
pub mod mesh;
pub mod named_table;
pub mod names;
pub mod object;
pub mod proto_json;
pub mod revision;
pub mod rollout;
pub mod settings;
pub mod shared_texts;
pub mod status_port;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text_error;
pub mod text_map;
pub mod typed;
pub mod uid;
pub mod validation;
pub mod yaml;
