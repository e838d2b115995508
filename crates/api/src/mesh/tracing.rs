//! Tracing settings of the proxy config.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::istio::ClientTlsSettings;
use crate::istio::wire_enum::wire_enum;

/// The destination and the content of a proxy's traces. At most one tracer should be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    /// To Zipkin.
    pub zipkin: Option<Zipkin>,
    /// To Lightstep.
    pub lightstep: Option<Lightstep>,
    /// To Datadog.
    pub datadog: Option<Datadog>,
    /// To Google Cloud.
    pub stackdriver: Option<Stackdriver>,
    /// To an OpenCensus agent.
    pub open_census_agent: Option<OpenCensusAgent>,
    /// Tags to add to each span, by name.
    pub custom_tags: BTreeMap<String, CustomTag>,
    /// The maximum length of the path; 0 is 256.
    pub max_path_tag_length: u32,
    /// Percentage of traced requests.
    pub sampling: f64,
    /// TLS settings for the tracer.
    pub tls_settings: Option<ClientTlsSettings>,
    /// Whether spans contain Istio's own tags; `None` is true.
    pub enable_istio_tags: Option<bool>,
}

/// Traces to Zipkin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Zipkin {
    /// `host:port`.
    pub address: String,
}

/// Traces to Lightstep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lightstep {
    /// `host:port`.
    pub address: String,
    /// The token.
    pub access_token: String,
}

/// Traces to Datadog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Datadog {
    /// `host:port`.
    pub address: String,
}

/// Traces to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stackdriver {
    /// Whether spans are printed too.
    pub debug: bool,
    /// Maximum number of attributes of a span; `None` is 200.
    pub max_number_of_attributes: Option<i64>,
    /// Maximum number of annotations of a span; `None` is 200.
    pub max_number_of_annotations: Option<i64>,
    /// Maximum number of messages of a span; `None` is 200.
    pub max_number_of_message_events: Option<i64>,
}

/// Traces to an OpenCensus agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenCensusAgent {
    /// A gRPC target such as `dns:host:port`.
    pub address: String,
    /// The headers that propagate the trace context.
    pub context: Vec<TraceContext>,
}

wire_enum! {
    /// Headers that propagate the trace context.
    TraceContext {
        /// Envoy's default.
        Unspecified = 0, "UNSPECIFIED";
        /// `traceparent` and `tracestate`.
        W3cTraceContext = 1, "W3C_TRACE_CONTEXT";
        /// `grpc-trace-bin`.
        GrpcBin = 2, "GRPC_BIN";
        /// `X-Cloud-Trace-Context`.
        CloudTraceContext = 3, "CLOUD_TRACE_CONTEXT";
        /// `X-B3-*`.
        B3 = 4, "B3";
    }
}

/// The source of a tag's value. One field should be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomTag {
    /// A fixed value.
    pub literal: Option<LiteralTag>,
    /// The proxy's environment.
    pub environment: Option<EnvironmentTag>,
    /// The request.
    pub header: Option<RequestHeaderTag>,
}

/// A fixed value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiteralTag {
    /// The value.
    pub value: String,
}

/// A value from the proxy's environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvironmentTag {
    /// The variable.
    pub name: String,
    /// The value if the variable is unset.
    pub default_value: String,
}

/// A value from the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestHeaderTag {
    /// The header.
    pub name: String,
    /// The value if the header is absent.
    pub default_value: String,
}
