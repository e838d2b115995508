//! TLSRoute and TCPRoute.

use serde::{Deserialize, Serialize};

use super::{BackendRef, ParentReference};

/// `gateway.networking.k8s.io/TLSRoute`: routes for TLS connections, by SNI.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsRoute {
    /// The parents that it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has no default Gateways.
    pub use_default_gateways: Option<String>,
    /// The SNI names; empty means all hosts of its parents.
    pub hostnames: Vec<String>,
    /// The rules, with the backends of connections.
    pub rules: Vec<L4RouteRule>,
}

/// `gateway.networking.k8s.io/TCPRoute`: routes for TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpRoute {
    /// The parents that it attaches to.
    pub parent_refs: Vec<ParentReference>,
    /// `All` or `None`: whether it attaches to default Gateways. istiod has no default Gateways.
    pub use_default_gateways: Option<String>,
    /// The rules, with the backends of connections.
    pub rules: Vec<L4RouteRule>,
}

/// The backends of connections (`TLSRouteRule`, `TCPRouteRule`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct L4RouteRule {
    /// Unique in the route. Envoy's configuration does not contain it.
    pub name: Option<String>,
    /// The weighted backends.
    pub backend_refs: Vec<BackendRef>,
}
