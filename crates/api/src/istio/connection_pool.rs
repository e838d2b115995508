//! Limits on connections and requests, and when failing endpoints are left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use crate::duration::Duration;

/// Limits on connections and requests.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionPoolSettings {
    /// For TCP and all above.
    pub tcp: Option<TcpSettings>,
    /// For HTTP and gRPC.
    pub http: Option<HttpSettings>,
}

/// Limits on TCP connections.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpSettings {
    /// Most connections to the host; 0 is no limit.
    pub max_connections: i32,
    /// How long connecting may take; `None` is the mesh default.
    pub connect_timeout: Option<Duration>,
    /// TCP keepalive probes.
    pub tcp_keepalive: Option<TcpKeepalive>,
    /// How long a connection may live.
    pub max_connection_duration: Option<Duration>,
    /// How long a connection may be idle.
    pub idle_timeout: Option<Duration>,
}

/// TCP keepalive probes. What is unset is left to the operating system.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpKeepalive {
    /// How many probes go unanswered before the connection is dead; 0 is unset.
    pub probes: u32,
    /// How long a connection is idle before the first probe.
    pub time: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
}

wire_enum! {
    /// Whether HTTP/1.1 connections to the host become HTTP/2.
    H2UpgradePolicy {
        /// As the mesh says.
        Default = 0, "DEFAULT";
        /// They do not.
        DoNotUpgrade = 1, "DO_NOT_UPGRADE";
        /// They do.
        Upgrade = 2, "UPGRADE";
    }
}

/// Limits on HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpSettings {
    /// Most requests waiting for a connection; 0 is no limit.
    pub http1_max_pending_requests: i32,
    /// Most requests at a time; 0 is no limit.
    pub http2_max_requests: i32,
    /// Most requests on one connection; 0 is no limit, 1 turns keep-alive off.
    pub max_requests_per_connection: i32,
    /// Most retries at a time; 0 is no limit.
    pub max_retries: i32,
    /// How long a connection may be without requests; `None` is an hour.
    pub idle_timeout: Option<Duration>,
    /// Whether HTTP/1.1 becomes HTTP/2.
    pub h2_upgrade_policy: H2UpgradePolicy,
    /// Whether the client's protocol is kept; wins over `h2_upgrade_policy`.
    pub use_client_protocol: bool,
    /// Most streams on one HTTP/2 connection; 0 is the default.
    pub max_concurrent_streams: i32,
    /// HTTP/2 keepalive pings.
    pub http2_keep_alive: Option<ConnectionKeepalive>,
}

/// HTTP/2 keepalive pings.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionKeepalive {
    /// Time between pings.
    pub interval: Option<Duration>,
    /// How long to wait for the answer.
    pub timeout: Option<Duration>,
}

/// When failing endpoints are left out.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutlierDetection {
    /// Errors in a row; superseded by the more exact counts below.
    pub consecutive_errors: i32,
    /// Whether errors on this side (no connection, timeout) are counted apart from those that the host sends.
    pub split_external_local_origin_errors: bool,
    /// Errors in a row on this side; needs the split.
    pub consecutive_local_origin_failures: Option<u32>,
    /// Gateway errors (502, 503, 504) in a row; 0 turns it off.
    pub consecutive_gateway_errors: Option<u32>,
    /// 5xx errors in a row; 0 turns it off, `None` is 5.
    pub consecutive_5xx_errors: Option<u32>,
    /// Time between sweeps; `None` is 10 s.
    pub interval: Option<Duration>,
    /// How long an endpoint is left out, times how often it was; `None` is 30 s.
    pub base_ejection_time: Option<Duration>,
    /// Most endpoints left out, in percent; 0 is 10.
    pub max_ejection_percent: i32,
    /// Below this share of healthy endpoints, in percent, all are used; 0 turns it off.
    pub min_health_percent: i32,
    /// Status codes that count as errors, in place of 5xx.
    pub outlier_detection_http_error_codes: Vec<u32>,
}
