//! Telemetry: what proxies log, trace and count.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wire_enum::wire_enum;
use super::{PolicyTargetReference, PolicyWorkloadSelector};
use crate::duration::Duration;

/// `telemetry.istio.io/Telemetry`: changes to what proxies log, trace and count.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Telemetry {
    /// The workloads it is for; `None` is all of the namespace, or of the mesh in the root namespace.
    pub selector: Option<PolicyWorkloadSelector>,
    /// The old form of `target_refs`, which wins over this.
    pub target_ref: Option<PolicyTargetReference>,
    /// The gateways and services it is for. At most one of selector and targets is set.
    pub target_refs: Vec<PolicyTargetReference>,
    /// Tracing. More than the first counts only by direction.
    pub tracing: Vec<Tracing>,
    /// Metrics.
    pub metrics: Vec<Metrics>,
    /// Access logs.
    pub access_logging: Vec<AccessLogging>,
}

wire_enum! {
    /// The side of a request on which a proxy reports.
    TelemetryMode {
        /// Both.
        ClientAndServer = 0, "CLIENT_AND_SERVER";
        /// Where the request leaves; gateways are clients, too.
        Client = 1, "CLIENT";
        /// Where the request arrives.
        Server = 2, "SERVER";
    }
}

/// An extension provider.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderRef {
    /// Its name in mesh config.
    pub name: String,
}

/// Which reports are meant, by their side.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TelemetrySelector {
    /// The side.
    pub mode: TelemetryMode,
}

/// How requests are traced; what is unset is inherited.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    /// For which side; `None` is both.
    #[serde(rename = "match")]
    pub matches: Option<TelemetrySelector>,
    /// Who gets the spans; the first counts.
    pub providers: Vec<ProviderRef>,
    /// The share of requests that is traced, in percent.
    pub random_sampling_percentage: Option<f64>,
    /// Whether no spans are sent, though their context is passed on.
    pub disable_span_reporting: Option<bool>,
    /// Tags of spans, by name; none at all where it is there and empty.
    pub custom_tags: Option<BTreeMap<String, TracingTag>>,
    /// Whether the request id says whether a request is traced.
    pub use_request_id_for_trace_sampling: Option<bool>,
    /// Whether spans carry Istio's own tags.
    pub enable_istio_tags: Option<bool>,
    /// Whether the context of spans is not passed on.
    pub disable_context_propagation: Option<bool>,
}

/// A tag of spans: at most one member is set.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TracingTag {
    /// A fixed text.
    pub literal: Option<TracingTagText>,
    /// A variable of the proxy's environment.
    pub environment: Option<TracingTagSource>,
    /// A header of the request.
    pub header: Option<TracingTagSource>,
    /// A format as access logs have it.
    pub formatter: Option<TracingTagText>,
}

/// The text of a tag.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TracingTagText {
    /// The text, or the format.
    pub value: String,
}

/// Where a tag comes from.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TracingTagSource {
    /// The name of the variable or header.
    pub name: String,
    /// The tag where there is none.
    pub default_value: String,
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Who gets the metrics; empty inherits.
    pub providers: Vec<ProviderRef>,
    /// Changes to single metrics, in their order.
    pub overrides: Vec<MetricsOverrides>,
    /// How often TCP connections are reported while they live.
    pub reporting_interval: Option<Duration>,
}

/// A change to metrics.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsOverrides {
    /// The metrics that are changed; `None` is all.
    #[serde(rename = "match")]
    pub matches: Option<MetricSelector>,
    /// Whether they are not counted.
    pub disabled: Option<bool>,
    /// Changes to their labels, by name.
    pub tag_overrides: BTreeMap<String, TagOverride>,
}

/// Which metrics are meant: at most one of the two names is set.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSelector {
    /// One of Istio's own.
    pub metric: Option<IstioMetric>,
    /// Any other.
    pub custom_metric: Option<String>,
    /// The side.
    pub mode: TelemetryMode,
}

wire_enum! {
    /// Istio's own metrics.
    IstioMetric {
        /// All of them.
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

/// A change to a label of a metric.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TagOverride {
    /// Whether it is set or dropped.
    pub operation: TagOperation,
    /// What it is set to, a CEL expression.
    pub value: String,
}

wire_enum! {
    /// What is done to a label.
    TagOperation {
        /// It is added or set.
        Upsert = 0, "UPSERT";
        /// It is dropped.
        Remove = 1, "REMOVE";
    }
}

/// What is logged; what is unset is inherited.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogging {
    /// For which side; `None` is both.
    #[serde(rename = "match")]
    pub matches: Option<TelemetrySelector>,
    /// Who gets the log.
    pub providers: Vec<ProviderRef>,
    /// Whether nothing is logged.
    pub disabled: Option<bool>,
    /// Which entries are logged; `None` is all.
    pub filter: Option<AccessLogFilter>,
}

/// Which entries are logged.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessLogFilter {
    /// A CEL expression.
    pub expression: String,
}
