//! The node side: the agent that runs next to Envoy.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "builders of test values read better if they take values"
    )
)]

pub mod ads;
pub mod cli;
pub mod command;
pub mod credentials;
pub mod dns;
pub mod downward_api;
pub mod envoy_arguments;
pub mod envoy_features;
pub mod envoy_life;
pub mod flags;
pub mod grpc_bootstrap;
pub mod health;
pub mod host;
mod http_server;
pub mod iptables;
pub mod json_log;
pub mod local_http;
pub mod mesh_metrics;
pub mod metrics;
pub mod node;
mod oci;
pub mod own_metrics;
pub mod platform;
pub mod proxy_config;
pub mod random;
pub mod run;
pub mod sds;
pub mod secrets;
pub mod services;
pub mod settings;
pub mod socket;
mod start_log;
pub mod status_server;
mod sts;
mod tap;
mod tls;
pub mod trace_log;
pub mod upgrade;
pub mod upstream;
pub mod variables;
pub mod wasm;

pub use navarch_bootstrap as bootstrap;
pub use navarch_bootstrap::go_path;

/// Returns the wall clock time.
pub type Clock = fn() -> std::time::SystemTime;
