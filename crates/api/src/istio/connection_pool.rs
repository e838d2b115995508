//! Limits on connections and requests, and outlier detection.

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use crate::duration::Duration;

/// Limits on connections and requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionPoolSettings {
    /// Limits on TCP connections, which also carry HTTP.
    pub tcp: Option<TcpSettings>,
    /// Limits on HTTP and gRPC requests.
    pub http: Option<HttpSettings>,
}

/// Limits on TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TcpSettings {
    /// Maximum number of connections to the host; 0 is unlimited.
    pub max_connections: i32,
    /// Timeout for establishing a connection; unset means the mesh default.
    pub connect_timeout: Option<Duration>,
    /// TCP keepalive probes.
    pub tcp_keepalive: Option<TcpKeepalive>,
    /// Maximum lifetime of a connection; unset means unlimited.
    pub max_connection_duration: Option<Duration>,
    /// Maximum idle time of a connection.
    pub idle_timeout: Option<Duration>,
}

/// TCP keepalive probes. Unset fields use the operating system's defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TcpKeepalive {
    /// Number of unanswered probes before the connection is closed; 0 is unset.
    pub probes: u32,
    /// Idle time of a connection before the first probe.
    pub time: Option<Duration>,
    /// Interval between probes.
    pub interval: Option<Duration>,
}

wire_enum! {
    /// Whether clients upgrade HTTP/1.1 connections to HTTP/2.
    H2UpgradePolicy {
        /// The mesh default.
        Default = 0, "DEFAULT";
        /// Clients keep HTTP/1.1.
        DoNotUpgrade = 1, "DO_NOT_UPGRADE";
        /// Clients upgrade to HTTP/2.
        Upgrade = 2, "UPGRADE";
    }
}

/// Limits on HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpSettings {
    /// Maximum number of requests that wait for a connection; 0 is unlimited.
    pub http1_max_pending_requests: i32,
    /// Maximum number of concurrent requests; 0 is unlimited.
    pub http2_max_requests: i32,
    /// Maximum number of requests per connection; 0 is unlimited, 1 disables keep-alive.
    pub max_requests_per_connection: i32,
    /// Maximum number of concurrent retries; 0 is unlimited.
    pub max_retries: i32,
    /// Maximum time of a connection without requests; unset means one hour.
    pub idle_timeout: Option<Duration>,
    /// Whether clients upgrade HTTP/1.1 to HTTP/2.
    pub h2_upgrade_policy: H2UpgradePolicy,
    /// Whether Envoy keeps the client's protocol; takes precedence over `h2_upgrade_policy`.
    pub use_client_protocol: bool,
    /// Maximum number of concurrent streams per HTTP/2 connection; 0 is Envoy's default.
    pub max_concurrent_streams: i32,
    /// HTTP/2 keepalive pings.
    pub http2_keep_alive: Option<ConnectionKeepalive>,
}

/// HTTP/2 keepalive pings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionKeepalive {
    /// Interval between pings.
    pub interval: Option<Duration>,
    /// Timeout for the response to a ping.
    pub timeout: Option<Duration>,
}

/// When Envoy ejects failing endpoints from load balancing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct OutlierDetection {
    /// Number of consecutive errors; deprecated in favor of the specific counts below.
    pub consecutive_errors: i32,
    /// Whether local errors (failed connection, timeout) are counted separately from the host's
    /// error responses.
    pub split_external_local_origin_errors: bool,
    /// Number of consecutive local errors before ejection; requires
    /// `split_external_local_origin_errors`.
    pub consecutive_local_origin_failures: Option<u32>,
    /// Number of consecutive gateway errors (502, 503, 504) before ejection; 0 disables the check.
    pub consecutive_gateway_errors: Option<u32>,
    /// Number of consecutive 5xx errors before ejection; 0 disables the check, unset means 5.
    pub consecutive_5xx_errors: Option<u32>,
    /// Interval between analysis sweeps; unset means 10 s.
    pub interval: Option<Duration>,
    /// Minimum ejection time, multiplied by the number of ejections of the endpoint; unset means 30
    /// s.
    pub base_ejection_time: Option<Duration>,
    /// Maximum percentage of ejected endpoints; 0 is 10.
    pub max_ejection_percent: i32,
    /// Minimum percentage of healthy endpoints; below it Envoy uses all endpoints, 0 disables the
    /// check.
    pub min_health_percent: i32,
    /// HTTP status codes that count as errors, instead of 5xx.
    pub outlier_detection_http_error_codes: Vec<u32>,
    /// Percentage of failed requests in an interval from which an endpoint is ejected; unset
    /// disables the check. Envoy checks if at least 5 endpoints had 50 requests each in the
    /// interval.
    pub failure_percentage_threshold: Option<u32>,
}
