//! Mesh config: the settings of the mesh, of its proxies and of its networks.
//!
//! ```text
//! defaults ─┐
//! text ─────┴─ apply ─▶ MeshConfig ─▶ validation ─▶ accepted
//! ```
//!
//! Types carry every field of `mesh/v1alpha1`, used or not. Names follow the protos, in Rust case.
//! An absent scalar is its zero value, an absent message or wrapper `None`, and a oneof is one
//! `Option` per member. Two messages that are always set after applying have no `Option`:
//! `default_config` and `default_providers`.

mod access_log_provider;
mod apply;
mod config;
mod connection_settings;
mod defaults;
mod ext_authz_provider;
mod extension_provider;
mod ingress_rule;
mod label_selector;
mod networks;
mod private_key_provider;
mod proxy_config;
mod proxy_headers;
mod readiness_probe;
mod service_entry_visibility;
mod tracing;
mod tracing_provider;

pub use access_log_provider::{
    AccessLogFormat, EnvoyFileAccessLogProvider, EnvoyHttpGrpcV3LogProvider,
    EnvoyOpenTelemetryLogProvider, EnvoyTcpGrpcV3LogProvider,
};
pub use config::{
    AccessLogEncoding, Ca, Certificate, CertificateData, ConfigSource, DefaultProviders,
    DefaultTrafficPolicy, H2UpgradePolicy, InboundTrafficPolicy, InboundTrafficPolicyMode,
    IngressControllerMode, MeshConfig, NormalizationType, OutboundTrafficPolicy,
    OutboundTrafficPolicyMode, ProxyPathNormalization, Resource, ServiceScope, ServiceScopeConfigs,
    ServiceSettings, Settings, TlsConfig, TlsProtocol,
};
pub use connection_settings::{
    ConnectionProfile, ConnectionSettings, HeadersWithUnderscoresAction,
    PathWithEscapedSlashesAction,
};
pub use ext_authz_provider::{
    EnvoyExternalAuthorizationGrpcProvider, EnvoyExternalAuthorizationHttpProvider,
    EnvoyExternalAuthorizationRequestBody,
};
pub use extension_provider::{
    ExtensionProvider, HttpHeader, PrometheusMetricsProvider, SdsProvider,
};
pub use ingress_rule::IngressRule;
pub use label_selector::{LabelSelector, LabelSelectorRequirement};
pub use networks::{IstioNetworkGateway, MeshNetworks, Network, NetworkEndpoints};
pub use private_key_provider::{CryptoMb, PrivateKeyProvider, Qat};
pub use proxy_config::{
    AuthenticationPolicy, ForwardClientCertDetails, InboundInterceptionMode, ProxyConfig,
    ProxyImage, ProxyProtocolConfiguration, ProxyStatsMatcher, RemoteService, Sds, Topology,
    TracingServiceName,
};
pub use proxy_headers::{
    AttemptCount, EnvoyDebugHeaders, MetadataExchangeHeaders, MetadataExchangeMode, ProxyHeaders,
    RequestId, ServerHeader, SetCurrentClientCertDetails, XForwardedHost, XForwardedPort,
};
pub use readiness_probe::{
    ExecHealthCheckConfig, GrpcHealthCheckConfig, HttpHealthCheckConfig, ProbeHeader,
    ReadinessProbe, TcpHealthCheckConfig,
};
pub use service_entry_visibility::{
    ServiceEntryMatchRule, ServiceEntryVisibility, ServiceEntryVisibilityPolicy, Visibility,
};
pub use tracing::{
    CustomTag, Datadog, EnvironmentTag, Lightstep, LiteralTag, OpenCensusAgent, RequestHeaderTag,
    Stackdriver, TraceContext, Tracing, Zipkin,
};
pub use tracing_provider::{
    DatadogTracingProvider, DynatraceApi, DynatraceResourceDetector, DynatraceSampler,
    EnvironmentResourceDetector, GrpcService, HttpService, LightstepTracingProvider,
    OpenCensusAgentTracingProvider, OpenTelemetryTracingProvider, ResourceDetectors,
    ServiceAttributeEnrichment, SkyWalkingTracingProvider, StackdriverLogging, StackdriverProvider,
    TraceContextOption, ZipkinTracingProvider,
};
