//! Services that take traces.

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
    /// The longest path that is kept; 0 is 256.
    pub max_tag_length: u32,
    /// Whether trace ids have 64 bits rather than 128.
    pub enable_64bit_trace_id: bool,
    /// The path that takes spans; empty is `/api/v2/spans`.
    pub path: String,
    /// Which headers carry the trace on.
    pub trace_context_option: TraceContextOption,
    /// How long a request may take.
    pub timeout: Option<Duration>,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

wire_enum! {
    /// Which headers carry a trace on.
    TraceContextOption {
        /// B3.
        UseB3 = 0, "USE_B3";
        /// B3, with W3C Trace Context read as well and both sent.
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
    /// The longest path that is kept; 0 is 256.
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
    /// The longest path that is kept; 0 is 256.
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
    /// The token, where one is asked for.
    pub access_token: String,
}

/// Traces, metrics and logs to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StackdriverProvider {
    /// Whether spans are printed too; superseded.
    pub debug: bool,
    /// Most attributes of a span; superseded.
    pub max_number_of_attributes: Option<i64>,
    /// Most annotations of a span; superseded.
    pub max_number_of_annotations: Option<i64>,
    /// Most messages of a span; superseded.
    pub max_number_of_message_events: Option<i64>,
    /// The longest path that is kept; 0 is 256.
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
    /// Which headers carry the trace on.
    pub context: Vec<TraceContext>,
    /// The longest path that is kept; 0 is 256.
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
    /// The longest path that is kept; 0 is 256.
    pub max_tag_length: u32,
    /// Speak HTTP; `None` is gRPC.
    pub http: Option<HttpService>,
    /// How gRPC is spoken.
    pub grpc: Option<GrpcService>,
    /// Where attributes of the resource come from.
    pub resource_detectors: Option<ResourceDetectors>,
    /// What the service is called in spans.
    pub service_attribute_enrichment: ServiceAttributeEnrichment,
    /// Samples as Dynatrace says; `None` samples by Istio's own settings.
    pub dynatrace_sampler: Option<DynatraceSampler>,
}

wire_enum! {
    /// What the service is called in spans.
    ServiceAttributeEnrichment {
        /// By its canonical name.
        IstioCanonical = 0, "ISTIO_CANONICAL";
        /// By OpenTelemetry's conventions for Kubernetes.
        OtelSemanticConventions = 1, "OTEL_SEMANTIC_CONVENTIONS";
    }
}

/// How HTTP is spoken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpService {
    /// The path.
    pub path: String,
    /// How long a request may take.
    pub timeout: Option<Duration>,
    /// Headers to send.
    pub headers: Vec<HttpHeader>,
}

/// How gRPC is spoken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcService {
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// Metadata to send.
    pub initial_metadata: Vec<HttpHeader>,
}

/// Where attributes of the resource come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceDetectors {
    /// The proxy's environment, `OTEL_RESOURCE_ATTRIBUTES`.
    pub environment: Option<EnvironmentResourceDetector>,
    /// Dynatrace's agent.
    pub dynatrace: Option<DynatraceResourceDetector>,
}

/// Reads the proxy's environment; there is nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvironmentResourceDetector {}

/// Asks Dynatrace's agent; there is nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceResourceDetector {}

/// Samples as Dynatrace says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceSampler {
    /// The tenant.
    pub tenant: String,
    /// The cluster within the tenant.
    pub cluster_id: i32,
    /// Most root spans per minute until Dynatrace has said; 0 is 1000.
    pub root_spans_per_minute: u32,
    /// Where Dynatrace is asked; `None` takes the collector's own service.
    pub http_service: Option<DynatraceApi>,
}

/// Where Dynatrace is asked for its sampling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynatraceApi {
    /// The service.
    pub service: String,
    /// Its port.
    pub port: u32,
    /// How HTTP is spoken.
    pub http: Option<HttpService>,
}
