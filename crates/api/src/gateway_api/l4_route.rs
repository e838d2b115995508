//! TLSRoute and TCPRoute.

use serde::{Deserialize, Serialize};

use super::{BackendRef, ParentReference};

/// `gateway.networking.k8s.io/TLSRoute`: where TLS connections go, by SNI.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsRoute {
    /// What it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has none.
    pub use_default_gateways: Option<String>,
    /// The names that clients ask for; none is all of its parents'.
    pub hostnames: Vec<String>,
    /// Where connections go.
    pub rules: Vec<L4RouteRule>,
}

/// `gateway.networking.k8s.io/TCPRoute`: where TCP connections go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpRoute {
    /// What it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has none.
    pub use_default_gateways: Option<String>,
    /// Where connections go.
    pub rules: Vec<L4RouteRule>,
}

/// Where connections go (`TLSRouteRule`, `TCPRouteRule`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct L4RouteRule {
    /// Its name in the route.
    pub name: Option<String>,
    /// Where connections go, by weight.
    pub backend_refs: Vec<BackendRef>,
}
