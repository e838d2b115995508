//! Providers of access logs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Envoy writes access logs to a local file, or to its standard output or error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyFileAccessLogProvider {
    /// The file, such as `/dev/stdout`.
    pub path: String,
    /// The format; `None` is Istio's default text.
    pub log_format: Option<AccessLogFormat>,
    /// Whether empty values are omitted instead of written as `-`.
    pub omit_empty_values: bool,
}

/// The format of log entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogFormat {
    /// A line of text.
    pub text: Option<String>,
    /// A JSON object. A file uses one of the two; OpenTelemetry uses `text` as the body and these
    /// as attributes.
    pub labels: Option<BTreeMap<String, Value>>,
}

/// Access logs of requests to a gRPC service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyHttpGrpcV3LogProvider {
    /// The access log service, `host` or `namespace/host`.
    pub service: String,
    /// The port of the access log service.
    pub port: u32,
    /// The name of the log; empty is `http_envoy_accesslog`.
    pub log_name: String,
    /// Additional filter state to log.
    pub filter_state_objects_to_log: Vec<String>,
    /// Names of request headers that entries contain in addition to Envoy's standard ones.
    pub additional_request_headers_to_log: Vec<String>,
    /// Names of response headers that entries contain; Envoy logs none by default.
    pub additional_response_headers_to_log: Vec<String>,
    /// Names of response trailers that entries contain, such as `grpc-status`; Envoy logs none by
    /// default.
    pub additional_response_trailers_to_log: Vec<String>,
}

/// Access logs of connections to a gRPC service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyTcpGrpcV3LogProvider {
    /// The access log service, `host` or `namespace/host`.
    pub service: String,
    /// The port of the access log service.
    pub port: u32,
    /// The name of the log; empty is `tcp_envoy_accesslog`.
    pub log_name: String,
    /// Additional filter state to log.
    pub filter_state_objects_to_log: Vec<String>,
}

/// Access logs to an OpenTelemetry collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyOpenTelemetryLogProvider {
    /// The OpenTelemetry collector, `host` or `namespace/host`.
    pub service: String,
    /// The port of the collector.
    pub port: u32,
    /// The name of the log; empty is `otel_envoy_accesslog`.
    pub log_name: String,
    /// The format; `None` is Istio's default text.
    pub log_format: Option<AccessLogFormat>,
}
