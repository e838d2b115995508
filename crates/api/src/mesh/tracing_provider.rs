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
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// The maximum length of the path; 0 is 256.
    pub max_tag_length: u32,
    /// Whether trace ids have 64 bits rather than 128.
    pub enable_64bit_trace_id: bool,
    /// The path for spans; empty is `/api/v2/spans`.
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
        /// B3.
        UseB3 = 0, "USE_B3";
        /// B3 and W3C Trace Context: both are read and sent.
        UseB3WithW3cPropagation = 1, "USE_B3_WITH_W3C_PROPAGATION";
    }
}

/// Traces to Lightstep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LightstepTracingProvider {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// The token.
    pub access_token: String,
    /// The maximum length of the path; 0 is 256.
    pub max_tag_length: u32,
}

/// Traces to Datadog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatadogTracingProvider {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// The maximum length of the path; 0 is 256.
    pub max_tag_length: u32,
}

/// Traces to Apache SkyWalking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkyWalkingTracingProvider {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// The token, if required.
    pub access_token: String,
}

/// Traces, metrics and logs to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverProvider {
    /// Whether spans are printed too; obsolete.
    pub debug: bool,
    /// Maximum number of attributes of a span; obsolete.
    pub max_number_of_attributes: Option<i64>,
    /// Maximum number of annotations of a span; obsolete.
    pub max_number_of_annotations: Option<i64>,
    /// Maximum number of messages of a span; obsolete.
    pub max_number_of_message_events: Option<i64>,
    /// The maximum length of the path; 0 is 256.
    pub max_tag_length: u32,
    /// Access logs.
    pub logging: Option<StackdriverLogging>,
}

/// Access logs to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverLogging {
    /// Labels of each entry, as expressions.
    pub labels: BTreeMap<String, String>,
}

/// Traces to an OpenCensus agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenCensusAgentTracingProvider {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// The headers that propagate the trace context.
    pub context: Vec<TraceContext>,
    /// The maximum length of the path; 0 is 256.
    pub max_tag_length: u32,
}

/// Traces to an OpenTelemetry collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTelemetryTracingProvider {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// The maximum length of the path; 0 is 256.
    pub max_tag_length: u32,
    /// Settings for HTTP; `None` is gRPC.
    pub http: Option<HttpService>,
    /// Settings for gRPC.
    pub grpc: Option<GrpcService>,
    /// The sources of resource attributes.
    pub resource_detectors: Option<ResourceDetectors>,
    /// The name of the service in spans.
    pub service_attribute_enrichment: ServiceAttributeEnrichment,
    /// Dynatrace's sampler; `None` samples by Istio's own settings.
    pub dynatrace_sampler: Option<DynatraceSampler>,
}

wire_enum! {
    /// The name of the service in spans.
    ServiceAttributeEnrichment {
        /// The canonical name.
        IstioCanonical = 0, "ISTIO_CANONICAL";
        /// OpenTelemetry's conventions for Kubernetes.
        OtelSemanticConventions = 1, "OTEL_SEMANTIC_CONVENTIONS";
    }
}

/// Settings for HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpService {
    /// The path.
    pub path: String,
    /// Timeout of a request.
    pub timeout: Option<Duration>,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

/// Settings for gRPC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcService {
    /// Timeout of a call.
    pub timeout: Option<Duration>,
    /// Metadata to send.
    pub initial_metadata: Vec<HttpHeader>,
}

/// The sources of resource attributes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceDetectors {
    /// The proxy's environment, `OTEL_RESOURCE_ATTRIBUTES`.
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

/// Samples as Dynatrace configures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceSampler {
    /// The tenant.
    pub tenant: String,
    /// The cluster within the tenant.
    pub cluster_id: i32,
    /// Maximum number of root spans per minute until Dynatrace responds; 0 is 1000.
    pub root_spans_per_minute: u32,
    /// The API of Dynatrace; `None` is the collector's own service.
    pub http_service: Option<DynatraceApi>,
}

/// The API of Dynatrace for its sampling settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceApi {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// Settings for HTTP.
    pub http: Option<HttpService>,
}
