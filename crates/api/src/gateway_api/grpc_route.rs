//! GRPCRoute.

use serde::{Deserialize, Serialize};

use super::{BackendRef, NamedMatch, ParentReference, RouteFilter, SessionPersistence, exact};

/// `gateway.networking.k8s.io/GRPCRoute`: where gRPC requests go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRoute {
    /// What it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has none.
    pub use_default_gateways: Option<String>,
    /// The hosts that it is about; none is all of its parents'.
    pub hostnames: Vec<String>,
    /// What happens to which request.
    pub rules: Vec<GrpcRouteRule>,
}

/// What happens to the requests that match (`GRPCRouteRule`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteRule {
    /// Its name in the route.
    pub name: Option<String>,
    /// Which requests; one match is enough, and none is every request.
    pub matches: Vec<GrpcRouteMatch>,
    /// What is done to requests and responses.
    pub filters: Vec<RouteFilter>,
    /// Where requests go.
    pub backend_refs: Vec<BackendRef>,
    /// How requests of a session find the same endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// Which requests are meant: all that is said must be true (`GRPCRouteMatch`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteMatch {
    /// The method that they call.
    pub method: Option<GrpcMethodMatch>,
    /// Headers that a call must have, all of them.
    pub headers: Vec<NamedMatch>,
}

/// Which methods are meant (`GRPCMethodMatch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrpcMethodMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default = "exact")]
    pub kind: String,
    /// The service, with its package; absent is every one.
    #[serde(default)]
    pub service: Option<String>,
    /// The method; absent is every one.
    #[serde(default)]
    pub method: Option<String>,
}
