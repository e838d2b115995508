//! Fault injection of an HTTP route.

use serde::{Deserialize, Serialize};

use super::Percent;
use crate::duration::Duration;

/// Faults that Envoy injects into requests, for testing the resilience of clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HttpFaultInjection {
    /// Delays requests.
    pub delay: Option<Delay>,
    /// Aborts requests with an error.
    pub abort: Option<Abort>,
}

/// Delays a percentage of requests before forwarding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Delay {
    /// Percentage of requests as an integer; deprecated in favor of `percentage`.
    pub percent: i32,
    /// The duration of the delay. At most one kind of delay may be set.
    pub fixed_delay: Option<Duration>,
    /// Mean of exponentially distributed delays. Ignored.
    pub exponential_delay: Option<Duration>,
    /// Percentage of requests that are delayed; unset percentages delay all requests.
    pub percentage: Option<Percent>,
}

/// Aborts a percentage of requests with an error. At most one kind of error may be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Abort {
    /// The HTTP status code of the response.
    pub http_status: Option<i32>,
    /// The gRPC status of the response, by name (`UNAVAILABLE`) or number.
    pub grpc_status: Option<String>,
    /// The HTTP/2 error code of the stream reset. Ignored.
    pub http2_error: Option<String>,
    /// Percentage of requests that are aborted; unset aborts all requests.
    pub percentage: Option<Percent>,
}
