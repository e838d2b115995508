//! Kinds of the Gateway API and of its Inference Extension, as their specs are written.
//!
//! All API versions of a kind share one spec. Fields are those of `sigs.k8s.io/gateway-api` (v1.6,
//! experimental channel) and `sigs.k8s.io/gateway-api-inference-extension` (v1), in Rust case; what
//! their CRDs default is defaulted here, so that an object from a file equals one from an API
//! server. Enumerations that a later version may extend (types of filters and matches, protocols,
//! modes) stay strings: the translation interprets them, and reports unknown ones in the status.
//!
//! The kind `Gateway` is [`KubernetesGateway`] here, as in Istio's code, to distinguish it from
//! Istio's own. `UDPRoute` is not supported by istiod, and not here either.

mod backend;
mod backend_tls_policy;
mod backend_traffic_policy;
mod filter;
mod gateway;
mod gateway_class;
mod grpc_route;
mod http_route;
mod inference_pool;
mod l4_route;
mod listener;
mod listener_set;
mod reference;
mod reference_grant;
mod session_persistence;
mod settings;

pub use backend::{BackendPort, BackendTls, ExternalHostname, XBackend};
pub use backend_tls_policy::{
    BackendTlsPolicy, BackendTlsValidation, PolicyTarget, SubjectAltName,
};
pub use backend_traffic_policy::{
    BudgetDetails, RequestRate, RetryConstraint, XBackendTrafficPolicy,
};
pub use filter::{
    CorsFilter, Fraction, HeaderFilter, HttpHeader, MirrorFilter, PathModifier, RedirectFilter,
    RewriteFilter, RouteFilter,
};
pub use gateway::{
    AllowedListeners, FrontendTls, FrontendValidation, GatewayAddress, GatewayBackendTls,
    GatewayCondition, GatewayInfrastructure, GatewayStatus, GatewayTls, KubernetesGateway,
    ListenerNamespaces, ParametersRef, PortFrontendTls, TlsValidation,
};
pub use gateway_class::GatewayClass;
pub use grpc_route::{GrpcMethodMatch, GrpcRoute, GrpcRouteMatch, GrpcRouteRule};
pub use http_route::{
    HttpPathMatch, HttpRetry, HttpRoute, HttpRouteMatch, HttpRouteRule, HttpTimeouts, NamedMatch,
};
pub use inference_pool::{
    EndpointPickerRef, InferencePool, PICKER_FAILURE_MODE_LABEL, PICKER_PORT_LABEL,
    PICKER_SERVICE_LABEL, POOL_LABEL, POOL_SEMANTICS, PoolPort, PoolSelector, SEMANTICS_LABEL,
    pool_service_name,
};
pub use l4_route::{L4RouteRule, TcpRoute, TlsRoute};
pub use listener::{AllowedRoutes, Listener, ListenerTls, RouteGroupKind, RouteNamespaces};
pub use listener_set::{ListenerSet, ParentGateway};
pub use reference::{
    BackendObject, BackendRef, CertificateRef, LocalObject, ObjectReference, ParentReference,
};
pub use reference_grant::{GrantFrom, GrantTo, ReferenceGrant};
pub use session_persistence::{CookieConfig, SessionPersistence};
pub use settings::GatewayApiSettings;

/// The group of the Gateway API's kinds.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// The group of the Gateway API's experimental kinds.
pub const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

/// The group of the Inference Extension's kinds.
pub const INFERENCE_GROUP: &str = "inference.networking.k8s.io";

/// [`GROUP`], as a default of serde.
fn gateway_group() -> String {
    GROUP.to_owned()
}

/// The default kind of references to Gateways.
fn gateway_kind() -> String {
    "Gateway".to_owned()
}

/// The default kind of references to Services.
fn service_kind() -> String {
    "Service".to_owned()
}

/// The default kind of references to Secrets.
fn secret_kind() -> String {
    "Secret".to_owned()
}

/// The default type of matches.
fn exact() -> String {
    "Exact".to_owned()
}
