//! The node side: what stands beside an Envoy and speaks for it.

pub mod backoff;
pub mod bootstrap;
pub mod command;
pub mod downward_api;
pub mod envoy_arguments;
pub mod envoy_features;
pub mod envoy_life;
pub mod flags;
pub mod go_path;
pub mod grpc_bootstrap;
pub mod host;
pub mod iptables;
pub mod local_http;
pub mod node;
pub mod platform;
pub mod proxy_config;
pub mod random;
pub mod run;
pub mod sds;
pub mod secrets;
pub mod settings;
pub mod socket;
pub mod upstream;
pub mod variables;
