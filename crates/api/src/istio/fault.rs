//! Faults that an HTTP route injects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Percent;
use crate::duration::Duration;

/// Faults injected into requests, to try out how clients bear them.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpFaultInjection {
    /// Makes requests wait.
    pub delay: Option<Delay>,
    /// Answers requests with an error.
    pub abort: Option<Abort>,
}

/// Makes a share of requests wait before they are forwarded.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delay {
    /// Share in whole percent; superseded by `percentage`.
    pub percent: i32,
    /// How long. At most one kind of delay may be set.
    pub fixed_delay: Option<Duration>,
    /// Mean of exponentially distributed delays. Read by nothing.
    pub exponential_delay: Option<Duration>,
    /// Share of requests that wait; all when neither share is set.
    pub percentage: Option<Percent>,
}

/// Answers a share of requests with an error. At most one kind of error may be set.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Abort {
    /// The HTTP status to answer with.
    pub http_status: Option<i32>,
    /// The gRPC status to answer with, by name (`UNAVAILABLE`) or number.
    pub grpc_status: Option<String>,
    /// The HTTP/2 error to reset with. Read by nothing.
    pub http2_error: Option<String>,
    /// Share of requests that fail; all when unset.
    pub percentage: Option<Percent>,
}
