//! Istio's own kinds, as their specs are written: every field of every kind, used or not.
//!
//! All API versions of a kind share one spec. The fields are those of `istio.io/api`. Names follow
//! the protos, in Rust case, except where a message is nested or its name is ambiguous (`TLSmode`
//! is [`ClientTlsMode`] and [`ServerTlsMode`]). An absent scalar is its zero value, an absent
//! message or wrapper `None`. [`validation`](super::validation) defines what is valid.

mod authorization_policy;
mod client_tls;
mod connection_pool;
mod destination_rule;
mod envoy_filter;
mod fault;
mod gateway;
mod http_match;
mod http_route;
mod l4_route;
mod load_balancer;
mod peer_authentication;
mod proxy_config;
mod request_authentication;
mod selector;
mod service_entry;
mod sidecar;
mod status;
mod telemetry;
mod traffic_extension;
mod virtual_service;
mod wasm_plugin;
pub(crate) mod wire_enum;
mod workload_entry;
mod workload_group;

pub use authorization_policy::{
    AuthorizationAction, AuthorizationCondition, AuthorizationFrom, AuthorizationOperation,
    AuthorizationPolicy, AuthorizationProvider, AuthorizationRule, AuthorizationSource,
    AuthorizationTo,
};
pub use client_tls::{ClientTlsMode, ClientTlsSettings};
pub use connection_pool::{
    ConnectionKeepalive, ConnectionPoolSettings, H2UpgradePolicy, HttpSettings, OutlierDetection,
    TcpKeepalive, TcpSettings,
};
pub use destination_rule::{
    DestinationRule, PortTrafficPolicy, ProxyProtocol, ProxyProtocolVersion, RetryBudget, Subset,
    TrafficPolicy, TunnelSettings,
};
pub use envoy_filter::{
    ApplyTo, ClusterMatch, EnvoyConfigMatch, EnvoyConfigPatch, EnvoyFilter, EnvoyPatch,
    FilterClass, FilterMatch, ListenerFilterChainMatch, ListenerMatch, PatchContext,
    PatchOperation, ProxyMatch, RouteConfigurationMatch, RouteMatch, RouteMatchAction,
    SubFilterMatch, VirtualHostMatch, WaypointMatch, WaypointRouteMatch,
};
pub use fault::{Abort, Delay, HttpFaultInjection};
pub use gateway::{
    Gateway, Port, Server, ServerTlsMode, ServerTlsSettings, TlsCertificate, TlsProtocol,
};
pub use http_match::{HttpMatchRequest, StringMatch};
pub use http_route::{
    CorsPolicy, Delegate, HeaderOperations, Headers, HttpBody, HttpDirectResponse,
    HttpMirrorPolicy, HttpRedirect, HttpRetry, HttpRewrite, HttpRoute, HttpRouteDestination,
    RedirectPortSelection, RegexRewrite, UnmatchedPreflights,
};
pub use l4_route::{L4MatchAttributes, RouteDestination, TcpRoute, TlsMatchAttributes, TlsRoute};
pub use load_balancer::{
    BackendUtilizationLb, ConsistentHashLb, CookieAttribute, Distribute, Failover, HttpCookie,
    LoadBalancerSettings, LocalityLoadBalancerSetting, MagLev, RingHash, SimpleLb,
    WarmupConfiguration, ZoneAwareLoadBalancerSetting,
};
pub use peer_authentication::{MutualTls, MutualTlsMode, PeerAuthentication};
pub use proxy_config::{ProxyConfig, ProxyImage};
pub use request_authentication::{
    ClaimToHeader, JwtHeader, JwtPresence, JwtRule, RequestAuthentication,
};
pub use selector::{PolicyTargetReference, PolicyWorkloadSelector, PortSelector, WorkloadSelector};
pub use service_entry::{
    Location, Resolution, ServiceEntry, ServiceEntryAddress, ServiceEntryStatus, ServicePort,
};
pub use sidecar::{
    CaptureMode, IstioEgressListener, IstioIngressListener, OutboundTrafficPolicy,
    OutboundTrafficPolicyMode, Sidecar, SidecarPort,
};
pub use status::{IstioCondition, IstioStatus, MessageLevel, MessageType, ValidationMessage};
pub use telemetry::{
    AccessLogFilter, AccessLogging, IstioMetric, MetricSelector, Metrics, MetricsOverrides,
    ProviderRef, TagOperation, TagOverride, Telemetry, TelemetryMode, TelemetrySelector, Tracing,
    TracingTag, TracingTagSource, TracingTagText,
};
pub use traffic_extension::{ExecutionPhase, LuaConfig, TrafficExtension, WasmConfig};
pub use virtual_service::{Destination, MESH_GATEWAY, Percent, VirtualService};
pub use wasm_plugin::{
    EnvValueSource, EnvVar, FailStrategy, PluginPhase, PluginType, PullPolicy, TrafficSelector,
    VmConfig, WasmPlugin, WorkloadMode,
};
pub use workload_entry::WorkloadEntry;
pub use workload_group::{WorkloadGroup, WorkloadGroupMetadata};
