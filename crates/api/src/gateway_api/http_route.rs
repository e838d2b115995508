//! HTTPRoute.

use serde::{Deserialize, Serialize};

use super::{BackendRef, ParentReference, RouteFilter, SessionPersistence, exact};

/// `gateway.networking.k8s.io/HTTPRoute`: where HTTP requests go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRoute {
    /// What it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has none.
    pub use_default_gateways: Option<String>,
    /// The hosts that it is about; none is all of its parents'.
    pub hostnames: Vec<String>,
    /// What happens to which request.
    pub rules: Vec<HttpRouteRule>,
}

/// What happens to the requests that match (`HTTPRouteRule`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteRule {
    /// Its name in the route.
    pub name: Option<String>,
    /// Which requests; one match is enough.
    pub matches: Vec<HttpRouteMatch>,
    /// What is done to requests and responses.
    pub filters: Vec<RouteFilter>,
    /// Where requests go.
    pub backend_refs: Vec<BackendRef>,
    /// How long answers may take.
    pub timeouts: Option<HttpTimeouts>,
    /// Which requests are tried again.
    pub retry: Option<HttpRetry>,
    /// How requests of a session find the same endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// How long answers may take, as the Gateway API writes durations (`HTTPRouteTimeouts`); zero is for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpTimeouts {
    /// For the whole request.
    pub request: Option<String>,
    /// For one try at a backend.
    pub backend_request: Option<String>,
}

/// Which requests are tried again (`HTTPRouteRetry`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRetry {
    /// Codes of responses after which it is tried again.
    pub codes: Vec<i32>,
    /// How often at most.
    pub attempts: Option<i32>,
    /// The shortest time between two tries.
    pub backoff: Option<String>,
}

/// Which requests are meant: all that is said must be true (`HTTPRouteMatch`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteMatch {
    /// Path that a request must have; any if absent.
    pub path: HttpPathMatch,
    /// Headers that a request must have, all of them.
    pub headers: Vec<NamedMatch>,
    /// Their query parameters.
    pub query_params: Vec<NamedMatch>,
    /// HTTP method in upper case; any if absent.
    pub method: Option<String>,
}

/// Which paths are meant (`HTTPPathMatch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpPathMatch {
    /// `Exact`, `PathPrefix` (of whole segments) or `RegularExpression`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the path is compared with.
    pub value: String,
}

/// Which values of a header or query parameter are meant (`HTTPHeaderMatch`, `HTTPQueryParamMatch`, `GRPCHeaderMatch`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default = "exact")]
    pub kind: String,
    /// Name of the header or query parameter.
    pub name: String,
    /// What the value is compared with.
    pub value: String,
}

impl Default for HttpRoute {
    /// One rule that takes every request, as an API server has it.
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
    /// Every request matches, as an API server has it.
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
    /// Every path.
    fn default() -> Self {
        Self { kind: "PathPrefix".to_owned(), value: "/".to_owned() }
    }
}
