//! VirtualService: how requests for a host are routed.

use serde::{Deserialize, Serialize};

use super::{HttpRoute, PortSelector, TcpRoute, TlsRoute};

/// The reserved name for all sidecars in the gateways of a VirtualService.
pub const MESH_GATEWAY: &str = "mesh";

/// `networking.istio.io/VirtualService`: routes for traffic to a set of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualService {
    /// Hosts of the requests: DNS names (a short name is completed with the object's namespace),
    /// wildcards or IPs. Empty only in a delegate.
    pub hosts: Vec<String>,
    /// Gateways of the routes, as `namespace/name` or `name`; `mesh` selects all sidecars. Empty is
    /// `mesh`.
    pub gateways: Vec<String>,
    /// Routes for HTTP and terminated HTTPS; the first match applies.
    pub http: Vec<HttpRoute>,
    /// Routes for passthrough TLS, matched by SNI.
    pub tls: Vec<TlsRoute>,
    /// Routes for plain TCP.
    pub tcp: Vec<TcpRoute>,
    /// Namespaces that see this object: `.` is its own, `*` all, `~` none, else names. Empty is the
    /// mesh default.
    pub export_to: Vec<String>,
}

/// A service, or a subset of a service, that receives traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Destination {
    /// The service's host; a short name is completed with the object's namespace.
    pub host: String,
    /// A subset that a DestinationRule of the host defines; empty is the whole service.
    pub subset: String,
    /// The service's port; required when the service has several ports.
    pub port: Option<PortSelector>,
}

/// A percentage of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Percent {
    /// The percentage, from 0.0 to 100.0.
    pub value: f64,
}
