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
pub mod atomic_file;
pub mod base64_text;
pub mod blocking;
pub mod cidr;
pub mod cluster_settings;
pub mod counter;
pub mod crds;
pub mod credential_names;
pub mod decode;
pub mod digest;
pub mod duration;
pub mod encode;
pub mod envoy_json;
pub mod error_chain;
pub mod field_error;
pub mod file_events;
pub mod gateway_api;
pub mod go_text;
pub mod hbone_settings;
pub mod hostname;
pub mod huge_pages;
pub mod identity;
pub mod interned;
pub mod ip_list;
pub mod istio;
pub mod json_object;
mod json_reader;
pub mod key_set;
pub mod key_source;
pub mod kubernetes;
pub mod label_text;
pub mod log_levels;
pub mod mcp;
pub mod mcs;
pub mod mesh;
pub mod metrics_log;
pub mod named_table;
pub mod names;
pub mod object;
pub mod printable;
pub mod process_usage;
pub mod proto_json;
pub mod regular_file;
pub mod resolv_conf;
pub mod revision;
pub mod rollout;
pub mod settings;
pub mod shared_texts;
pub mod small_map;
pub mod state_format;
pub mod text_error;
pub mod text_map;
pub mod typed;
pub mod uid;
pub mod validation;
pub mod version;
pub mod yaml;

pub use navarch_tables::{growth, hash, hash_index};
