//! Telemetry: access logs, traces and metrics of proxies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector};
use crate::duration::Duration;

/// `telemetry.istio.io/Telemetry`: settings for the access logs, traces and metrics of proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Telemetry {
    /// Selects workloads; unset selects all workloads of the namespace, or of the mesh in the root
    /// namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// Deprecated form of `target_refs`; `target_refs` takes precedence.
    pub target_ref: Option<PolicyTargetReference>,
    /// Gateways and services that the settings apply to. Mutually exclusive with `selector`.
    pub target_refs: Vec<PolicyTargetReference>,
    /// Tracing settings; for the same side, later entries override earlier entries.
    pub tracing: Vec<Tracing>,
    /// Metrics settings.
    pub metrics: Vec<Metrics>,
    /// Access log settings.
    pub access_logging: Vec<AccessLogging>,
}

wire_enum! {
    /// The side of a request that the proxy reports for.
    TelemetryMode {
        /// Client and server.
        ClientAndServer = 0, "CLIENT_AND_SERVER";
        /// The proxy of the client; includes gateways.
        Client = 1, "CLIENT";
        /// The proxy of the server.
        Server = 2, "SERVER";
    }
}

/// References an extension provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderRef {
    /// The provider's name in mesh config.
    pub name: String,
}

/// Selects reports by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TelemetrySelector {
    /// The side of the request that the proxy is on.
    pub mode: TelemetryMode,
}

/// Tracing settings; unset fields are inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    /// The side; unset selects client and server.
    #[serde(rename = "match")]
    pub matches: Option<TelemetrySelector>,
    /// Providers that receive the spans; only the first provider is used.
    pub providers: Vec<ProviderRef>,
    /// Percentage of requests that are traced.
    pub random_sampling_percentage: Option<f64>,
    /// Whether the proxy suppresses spans but still propagates the trace context.
    pub disable_span_reporting: Option<bool>,
    /// Span tags by name; an empty map removes all tags, unset inherits.
    pub custom_tags: Option<BTreeMap<String, TracingTag>>,
    /// Whether the request ID determines if a request is traced.
    pub use_request_id_for_trace_sampling: Option<bool>,
    /// Whether spans contain Istio's own tags.
    pub enable_istio_tags: Option<bool>,
    /// Whether the proxy does not propagate the trace context.
    pub disable_context_propagation: Option<bool>,
}

/// The value of a span tag: at most one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TracingTag {
    /// A fixed text.
    pub literal: Option<TracingTagText>,
    /// An environment variable of the proxy.
    pub environment: Option<TracingTagSource>,
    /// A header of the request.
    pub header: Option<TracingTagSource>,
    /// An access log format string.
    pub formatter: Option<TracingTagText>,
}

/// The text of a span tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TracingTagText {
    /// The text, or the format string.
    pub value: String,
}

/// The source of a span tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TracingTagSource {
    /// The name of the environment variable or header.
    pub name: String,
    /// The tag's value if the source is absent.
    pub default_value: String,
}

/// Metrics settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Providers that receive the metrics; empty inherits.
    pub providers: Vec<ProviderRef>,
    /// Changes to individual metrics, in the order of application.
    pub overrides: Vec<MetricsOverrides>,
    /// Interval of the metrics for open TCP connections.
    pub reporting_interval: Option<Duration>,
}

/// A change to one or all metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsOverrides {
    /// The metrics that are changed; unset selects all.
    #[serde(rename = "match")]
    pub matches: Option<MetricSelector>,
    /// Whether the metrics are disabled.
    pub disabled: Option<bool>,
    /// Changes to the labels of the metrics, by label name.
    pub tag_overrides: BTreeMap<String, TagOverride>,
}

/// Selects metrics: at most one of the two names is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSelector {
    /// One of Istio's standard metrics.
    pub metric: Option<IstioMetric>,
    /// The name of any other metric.
    pub custom_metric: Option<String>,
    /// The side of the request that the proxy is on.
    pub mode: TelemetryMode,
}

wire_enum! {
    /// Istio's standard metrics.
    IstioMetric {
        /// All standard metrics.
        All = 0, "ALL_METRICS";
        /// `istio_requests_total`.
        RequestCount = 1, "REQUEST_COUNT";
        /// `istio_request_duration_milliseconds`.
        RequestDuration = 2, "REQUEST_DURATION";
        /// `istio_request_bytes`.
        RequestSize = 3, "REQUEST_SIZE";
        /// `istio_response_bytes`.
        ResponseSize = 4, "RESPONSE_SIZE";
        /// `istio_tcp_connections_opened_total`.
        TcpOpenedConnections = 5, "TCP_OPENED_CONNECTIONS";
        /// `istio_tcp_connections_closed_total`.
        TcpClosedConnections = 6, "TCP_CLOSED_CONNECTIONS";
        /// `istio_tcp_sent_bytes_total`.
        TcpSentBytes = 7, "TCP_SENT_BYTES";
        /// `istio_tcp_received_bytes_total`.
        TcpReceivedBytes = 8, "TCP_RECEIVED_BYTES";
        /// `istio_request_messages_total`.
        GrpcRequestMessages = 9, "GRPC_REQUEST_MESSAGES";
        /// `istio_response_messages_total`.
        GrpcResponseMessages = 10, "GRPC_RESPONSE_MESSAGES";
    }
}

/// A change to one label of a metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TagOverride {
    /// Whether the label is set or removed.
    pub operation: TagOperation,
    /// CEL expression for the label's value.
    pub value: String,
}

wire_enum! {
    /// The operation on a label.
    TagOperation {
        /// Adds or overwrites the label.
        Upsert = 0, "UPSERT";
        /// Removes the label.
        Remove = 1, "REMOVE";
    }
}

/// Access log settings; unset fields are inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogging {
    /// The side; unset selects client and server.
    #[serde(rename = "match")]
    pub matches: Option<TelemetrySelector>,
    /// Providers that receive the access log.
    pub providers: Vec<ProviderRef>,
    /// Whether access logging is disabled.
    pub disabled: Option<bool>,
    /// Condition for logging; unset logs all requests and connections.
    pub filter: Option<AccessLogFilter>,
}

/// Condition for logging a request or connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogFilter {
    /// CEL expression; the entry is logged if the result is true.
    pub expression: String,
}
