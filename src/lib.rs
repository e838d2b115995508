//! Navarch: a service-mesh control plane that speaks Istio's configuration and Envoy's xDS.
//!
//! This crate combines the other crates; `ARCHITECTURE.md` shows the crates and the flow of data.

pub mod admin;
pub mod cli;
pub mod server;

pub use navarch_agent as agent;
pub use navarch_ambient as ambient;
pub use navarch_analysis as analysis;
pub use navarch_api as api;
pub use navarch_envoy as envoy;
pub use navarch_net as net;
pub use navarch_pki as pki;
pub use navarch_push as push;
pub use navarch_registry as registry;
pub use navarch_security as security;
pub use navarch_source as source;
pub use navarch_status as status;
pub use navarch_store as store;
pub use navarch_walk as walk;
pub use navarch_webhook as webhook;
pub use navarch_xds as xds;
