//! Tracing settings of the proxy config.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::istio::ClientTlsSettings;
use crate::istio::wire_enum::wire_enum;

/// The destination and the content of a proxy's traces. At most one tracer should be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tracing {
    /// Sends traces to Zipkin.
    pub zipkin: Option<Zipkin>,
    /// Sends traces to Lightstep.
    pub lightstep: Option<Lightstep>,
    /// Sends traces to Datadog.
    pub datadog: Option<Datadog>,
    /// Sends traces to Google Cloud.
    pub stackdriver: Option<Stackdriver>,
    /// Sends traces to an OpenCensus agent.
    pub open_census_agent: Option<OpenCensusAgent>,
    /// Tags to add to each span, by name.
    pub custom_tags: BTreeMap<String, CustomTag>,
    /// The maximum length of the request path in a span; 0 is 256.
    pub max_path_tag_length: u32,
    /// The percentage of requests that are traced.
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
    /// The address of the collector, `host:port`.
    pub address: String,
}

/// Traces to Lightstep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lightstep {
    /// The address of the collector, `host:port`.
    pub address: String,
    /// The access token of the collector.
    pub access_token: String,
}

/// Traces to Datadog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Datadog {
    /// The address of the agent, `host:port`.
    pub address: String,
}

/// Traces to Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stackdriver {
    /// Whether spans are also printed.
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
    /// The address of the agent: a gRPC target such as `dns:host:port`.
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
    /// An environment variable of the proxy.
    pub environment: Option<EnvironmentTag>,
    /// A header of the incoming request.
    pub header: Option<RequestHeaderTag>,
}

/// A tag with a fixed value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiteralTag {
    /// Set on every span as it is.
    pub value: String,
}

/// A tag with the value of an environment variable of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvironmentTag {
    /// The name of the variable.
    pub name: String,
    /// The value if the variable is unset.
    pub default_value: String,
}

/// A tag with the value of a request header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestHeaderTag {
    /// Header of the incoming request, such as `x-user`; case-insensitive.
    pub name: String,
    /// The value if the header is absent.
    pub default_value: String,
}
