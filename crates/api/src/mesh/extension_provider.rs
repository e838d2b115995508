//! Services that proxies use for authorization, traces, metrics, logs and secrets.

use serde::{Deserialize, Serialize};

use super::access_log_provider::{
    EnvoyFileAccessLogProvider, EnvoyHttpGrpcV3LogProvider, EnvoyOpenTelemetryLogProvider,
    EnvoyTcpGrpcV3LogProvider,
};
use super::ext_authz_provider::{
    EnvoyExternalAuthorizationGrpcProvider, EnvoyExternalAuthorizationHttpProvider,
};
use super::tracing_provider::{
    DatadogTracingProvider, LightstepTracingProvider, OpenCensusAgentTracingProvider,
    OpenTelemetryTracingProvider, SkyWalkingTracingProvider, StackdriverProvider,
    ZipkinTracingProvider,
};

/// One provider. Exactly one field beside `name` should be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionProvider {
    /// The name that other objects reference.
    pub name: String,
    /// Authorization over HTTP.
    pub envoy_ext_authz_http: Option<EnvoyExternalAuthorizationHttpProvider>,
    /// Authorization over gRPC.
    pub envoy_ext_authz_grpc: Option<EnvoyExternalAuthorizationGrpcProvider>,
    /// Traces to Zipkin.
    pub zipkin: Option<ZipkinTracingProvider>,
    /// Traces to Lightstep.
    pub lightstep: Option<LightstepTracingProvider>,
    /// Traces to Datadog.
    pub datadog: Option<DatadogTracingProvider>,
    /// Traces, metrics and logs to Google Cloud.
    pub stackdriver: Option<StackdriverProvider>,
    /// Traces to an OpenCensus agent.
    pub opencensus: Option<OpenCensusAgentTracingProvider>,
    /// Traces to Apache SkyWalking.
    pub skywalking: Option<SkyWalkingTracingProvider>,
    /// Traces to an OpenTelemetry collector.
    pub opentelemetry: Option<OpenTelemetryTracingProvider>,
    /// Istio's standard metrics, which Prometheus scrapes from proxies. The built-in provider
    /// `prometheus` sets it.
    pub prometheus: Option<PrometheusMetricsProvider>,
    /// Access logs to a local file or the standard output. The built-in provider `envoy` sets it.
    pub envoy_file_access_log: Option<EnvoyFileAccessLogProvider>,
    /// Access logs of requests to a gRPC service.
    pub envoy_http_als: Option<EnvoyHttpGrpcV3LogProvider>,
    /// Access logs of connections to a gRPC service.
    pub envoy_tcp_als: Option<EnvoyTcpGrpcV3LogProvider>,
    /// Access logs to an OpenTelemetry collector.
    pub envoy_otel_als: Option<EnvoyOpenTelemetryLogProvider>,
    /// Secrets from an SDS server.
    pub sds: Option<SdsProvider>,
}

/// Metrics for Prometheus; has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PrometheusMetricsProvider {}

/// Secrets from an SDS server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SdsProvider {
    /// The name of the provider in credential names.
    pub name: String,
    /// The SDS server, `host` or `namespace/host`.
    pub service: String,
    /// The port of the SDS server.
    pub port: u32,
}

/// A header to send. One of `value` and `env_name` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHeader {
    /// Required, such as `Authorization`.
    pub name: String,
    /// Sent as it is; takes precedence over `env_name`.
    pub value: Option<String>,
    /// The environment variable of the control plane with the value.
    pub env_name: Option<String>,
}
