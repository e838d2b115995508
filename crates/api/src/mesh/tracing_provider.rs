//! Tracing providers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::extension_provider::HttpHeader;
use super::tracing::TraceContext;
use crate::duration::Duration;
use crate::istio::wire_enum::wire_enum;

/// Traces to Zipkin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZipkinTracingProvider {
    /// The Zipkin collector, `host` or `namespace/host`.
    pub service: String,
    /// The port of the collector.
    pub port: u32,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_tag_length: u32,
    /// Whether trace IDs have 64 bits instead of 128.
    pub enable_64bit_trace_id: bool,
    /// The path of the collector's API; empty is `/api/v2/spans`.
    pub path: String,
    /// The headers that propagate the trace context.
    pub trace_context_option: TraceContextOption,
    /// Timeout of a request.
    pub timeout: Option<Duration>,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

wire_enum! {
    /// Headers that propagate the trace context.
    TraceContextOption {
        /// B3 headers only.
        UseB3 = 0, "USE_B3";
        /// B3 and W3C Trace Context headers: both are read and sent.
        UseB3WithW3cPropagation = 1, "USE_B3_WITH_W3C_PROPAGATION";
    }
}

/// Traces to Lightstep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LightstepTracingProvider {
    /// The Lightstep collector, `host` or `namespace/host`.
    pub service: String,
    /// The port of the collector.
    pub port: u32,
    /// The access token of the collector.
    pub access_token: String,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_tag_length: u32,
}

/// Traces to Datadog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatadogTracingProvider {
    /// The Datadog agent, `host` or `namespace/host`.
    pub service: String,
    /// The port of the agent.
    pub port: u32,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_tag_length: u32,
}

/// Traces to Apache SkyWalking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkyWalkingTracingProvider {
    /// The SkyWalking collector, `host` or `namespace/host`.
    pub service: String,
    /// The port of the collector.
    pub port: u32,
    /// The access token of the collector, if it requires one.
    pub access_token: String,
}

/// Traces, metrics and logs to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverProvider {
    /// Whether spans are also printed; deprecated.
    pub debug: bool,
    /// Maximum number of attributes of a span; deprecated.
    pub max_number_of_attributes: Option<i64>,
    /// Maximum number of annotations of a span; deprecated.
    pub max_number_of_annotations: Option<i64>,
    /// Maximum number of messages of a span; deprecated.
    pub max_number_of_message_events: Option<i64>,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_tag_length: u32,
    /// Settings of access logs.
    pub logging: Option<StackdriverLogging>,
}

/// Access logs to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverLogging {
    /// Labels of each entry, with expressions for their values.
    pub labels: BTreeMap<String, String>,
}

/// Traces to an OpenCensus agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenCensusAgentTracingProvider {
    /// The OpenCensus agent, `host` or `namespace/host`.
    pub service: String,
    /// Port of `service` for OpenCensus' gRPC protocol, usually 55678.
    pub port: u32,
    /// The headers that propagate the trace context.
    pub context: Vec<TraceContext>,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_tag_length: u32,
}

/// Traces to an OpenTelemetry collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTelemetryTracingProvider {
    /// The OpenTelemetry collector, `host` or `namespace/host`.
    pub service: String,
    /// The port of the collector.
    pub port: u32,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_tag_length: u32,
    /// Settings for OTLP over HTTP; `None` is gRPC.
    pub http: Option<HttpService>,
    /// Settings for OTLP over gRPC.
    pub grpc: Option<GrpcService>,
    /// The sources of resource attributes.
    pub resource_detectors: Option<ResourceDetectors>,
    /// The convention for the service name in spans.
    pub service_attribute_enrichment: ServiceAttributeEnrichment,
    /// Dynatrace's sampler; `None` samples according to Istio's own settings.
    pub dynatrace_sampler: Option<DynatraceSampler>,
}

wire_enum! {
    /// The convention for the service name in spans.
    ServiceAttributeEnrichment {
        /// The canonical name of the service.
        IstioCanonical = 0, "ISTIO_CANONICAL";
        /// OpenTelemetry's semantic conventions for Kubernetes.
        OtelSemanticConventions = 1, "OTEL_SEMANTIC_CONVENTIONS";
    }
}

/// Settings of HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpService {
    /// The path of the requests.
    pub path: String,
    /// Timeout of a request.
    pub timeout: Option<Duration>,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

/// Settings of gRPC calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcService {
    /// Timeout of a call.
    pub timeout: Option<Duration>,
    /// Metadata of the calls.
    pub initial_metadata: Vec<HttpHeader>,
}

/// The sources of resource attributes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceDetectors {
    /// The proxy's environment variable `OTEL_RESOURCE_ATTRIBUTES`.
    pub environment: Option<EnvironmentResourceDetector>,
    /// Dynatrace's agent.
    pub dynatrace: Option<DynatraceResourceDetector>,
}

/// Reads the proxy's environment; has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvironmentResourceDetector {}

/// Reads from Dynatrace's agent; has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceResourceDetector {}

/// Samples according to Dynatrace's settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceSampler {
    /// Environment ID that Dynatrace assigned; its deployment page for Istio shows it.
    pub tenant: String,
    /// The ID of the cluster in the tenant.
    pub cluster_id: i32,
    /// Maximum number of root spans per minute until Dynatrace responds; 0 is 1000.
    pub root_spans_per_minute: u32,
    /// The API with the sampling settings; `None` is the collector's own service.
    pub http_service: Option<DynatraceApi>,
}

/// The API of Dynatrace for its sampling settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceApi {
    /// The API's service, `host` or `namespace/host`.
    pub service: String,
    /// The port of the service.
    pub port: u32,
    /// Settings of requests to the API.
    pub http: Option<HttpService>,
}
