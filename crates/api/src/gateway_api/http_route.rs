//! HTTPRoute.

use serde::{Deserialize, Serialize};

use super::{BackendRef, ParentReference, RouteFilter, SessionPersistence, exact};

/// `gateway.networking.k8s.io/HTTPRoute`: routes for HTTP requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRoute {
    /// The parents that it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has no default Gateways.
    pub use_default_gateways: Option<String>,
    /// Hosts of the requests; empty means all hosts of its parents.
    pub hostnames: Vec<String>,
    /// The rules: conditions and actions.
    pub rules: Vec<HttpRouteRule>,
}

/// Conditions on requests, and actions on those that match (`HTTPRouteRule`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteRule {
    /// Unique in the route; names its routes in Envoy, which are otherwise
    /// `namespace.route.position`.
    pub name: Option<String>,
    /// Conditions, one of which must match.
    pub matches: Vec<HttpRouteMatch>,
    /// Filters for requests and responses.
    pub filters: Vec<RouteFilter>,
    /// The backends of the requests.
    pub backend_refs: Vec<BackendRef>,
    /// The timeouts of requests.
    pub timeouts: Option<HttpTimeouts>,
    /// The retries of requests.
    pub retry: Option<HttpRetry>,
    /// How requests of a session reach the same endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// The timeouts of requests, in the Gateway API's duration format (`HTTPRouteTimeouts`); zero is
/// unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpTimeouts {
    /// Timeout of the whole request.
    pub request: Option<String>,
    /// Timeout of one attempt at a backend.
    pub backend_request: Option<String>,
}

/// The retries of requests (`HTTPRouteRetry`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRetry {
    /// Status codes of responses after which the request is retried.
    pub codes: Vec<i32>,
    /// Maximum number of retries.
    pub attempts: Option<i32>,
    /// Minimum interval between attempts.
    pub backoff: Option<String>,
}

/// Conditions on a request, all of which must match (`HTTPRouteMatch`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteMatch {
    /// The path; unset matches any.
    pub path: HttpPathMatch,
    /// Headers, all of which must match.
    pub headers: Vec<NamedMatch>,
    /// Query parameters, all of which must match.
    pub query_params: Vec<NamedMatch>,
    /// HTTP method in upper case; any if absent.
    pub method: Option<String>,
}

/// A condition on the path (`HTTPPathMatch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpPathMatch {
    /// `Exact`, `PathPrefix` (of whole segments) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value to compare the path with.
    pub value: String,
}

/// A condition on a header or query parameter (`HTTPHeaderMatch`, `HTTPQueryParamMatch`,
/// `GRPCHeaderMatch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default = "exact")]
    pub kind: String,
    /// Name of the header or query parameter.
    pub name: String,
    /// The value to compare with.
    pub value: String,
}

impl Default for HttpRoute {
    /// One rule that matches every request, the default of an API server.
    fn default() -> Self {
        Self {
            parent_refs: Vec::new(),
            use_default_gateways: None,
            hostnames: Vec::new(),
            rules: vec![HttpRouteRule::default()],
        }
    }
}

impl Default for HttpRouteRule {
    /// Matches every request, the default of an API server.
    fn default() -> Self {
        Self {
            name: None,
            matches: vec![HttpRouteMatch::default()],
            filters: Vec::new(),
            backend_refs: Vec::new(),
            timeouts: None,
            retry: None,
            session_persistence: None,
        }
    }
}

impl Default for HttpPathMatch {
    fn default() -> Self {
        Self {
            kind: "PathPrefix".to_owned(),
            value: "/".to_owned(),
        }
    }
}
