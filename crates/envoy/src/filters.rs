//! Contents of listeners of every kind: HTTP, network and listener filters, access logs, tracing,
//! metrics. `connection_manager` puts the HTTP filters together.
//!
//! Each part that only depends on mesh config and a few attributes of the proxy is a separate
//! query, by listener class, so that it is built once and shared by all listeners.

pub mod access_log;
mod access_logger;
pub(crate) mod alpn;
pub mod class;
pub mod compliance;
pub mod connection_settings;
pub mod downstream_tls;
pub mod dynamic_forward_proxy;
pub(crate) mod ext_proc;
pub mod http;
pub mod istio_version;
pub mod listener;
pub mod metrics;
pub(crate) mod metrics_log;
pub mod network;
pub(crate) mod on_demand;
mod peer_attribute;
pub(crate) mod peer_headers;
pub mod provider;
pub mod proxy_headers;
pub mod telemetry;
pub mod tracing;
pub(crate) mod tunnel;
