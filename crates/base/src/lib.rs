//! What all programs of the project use and no user writes: files, texts, small collections, metrics,
//! and what the control plane and its agent agree on.
//!
//! Independent of the types of Istio and Kubernetes, and of protobuf.

pub mod atomic_file;
pub mod base64_text;
pub mod blocking;
pub mod cidr;
pub mod compliance;
pub mod counter;
pub mod digest;
pub mod error_chain;
pub mod file_events;
pub mod go_text;
pub mod interned;
pub mod ip_list;
pub mod label_text;
pub mod log_levels;
pub mod metrics_log;
pub mod printable;
pub mod regular_file;
pub mod resolv_conf;
pub mod small_map;
pub mod state_format;
pub mod version;
