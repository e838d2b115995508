//! GRPCRoute.

use serde::{Deserialize, Serialize};

use super::{BackendRef, NamedMatch, ParentReference, RouteFilter, SessionPersistence, exact};

/// `gateway.networking.k8s.io/GRPCRoute`: routes for gRPC requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRoute {
    /// The parents that it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has no default Gateways.
    pub use_default_gateways: Option<String>,
    /// Hosts of the requests; empty means all hosts of its parents.
    pub hostnames: Vec<String>,
    /// The rules: conditions and actions.
    pub rules: Vec<GrpcRouteRule>,
}

/// Conditions on requests, and actions on those that match (`GRPCRouteRule`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteRule {
    /// Unique in the route; names its routes in Envoy, which are otherwise
    /// `namespace.route.position`.
    pub name: Option<String>,
    /// Conditions, one of which must match; empty matches every request.
    pub matches: Vec<GrpcRouteMatch>,
    /// Filters for requests and responses.
    pub filters: Vec<RouteFilter>,
    /// The backends of the requests.
    pub backend_refs: Vec<BackendRef>,
    /// How requests of a session reach the same endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// Conditions on a request, all of which must match (`GRPCRouteMatch`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteMatch {
    /// The method of the call.
    pub method: Option<GrpcMethodMatch>,
    /// Headers, all of which must match.
    pub headers: Vec<NamedMatch>,
}

/// A condition on the method (`GRPCMethodMatch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrpcMethodMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default = "exact")]
    pub kind: String,
    /// The service, with its package; unset matches any.
    #[serde(default)]
    pub service: Option<String>,
    /// The method; unset matches any.
    #[serde(default)]
    pub method: Option<String>,
}
