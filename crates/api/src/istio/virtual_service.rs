//! VirtualService: how requests for a host are routed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HttpRoute, PortSelector, TcpRoute, TlsRoute};

/// `networking.istio.io/VirtualService`: routes for the traffic to some hosts.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualService {
    /// The hosts that clients ask for: DNS names (a short name is completed with the object's namespace), wildcards or IPs.
    /// Empty only in a delegate.
    pub hosts: Vec<String>,
    /// Gateways to which the routes apply, as `namespace/name` or `name`; `mesh` stands for all sidecars. Empty is `mesh`.
    pub gateways: Vec<String>,
    /// Routes for HTTP and terminated HTTPS, the first that matches wins.
    pub http: Vec<HttpRoute>,
    /// Routes for TLS that is passed through, by SNI.
    pub tls: Vec<TlsRoute>,
    /// Routes for plain TCP.
    pub tcp: Vec<TcpRoute>,
    /// Namespaces that see this object: `.` its own, `*` all, `~` none, or names. Empty is the mesh default.
    pub export_to: Vec<String>,
}

/// A service, or a subset of one, as the place where traffic goes.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Destination {
    /// The service's host; a short name is completed with the object's namespace.
    pub host: String,
    /// A subset that a DestinationRule of the host names; empty is the whole service.
    pub subset: String,
    /// The service's port; needed when the service has several.
    pub port: Option<PortSelector>,
}

/// A share of requests.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Percent {
    /// 0.0 to 100.0.
    pub value: f64,
}
