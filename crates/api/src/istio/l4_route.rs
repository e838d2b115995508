//! TLS and TCP routes of a VirtualService; TLS is matched by SNI.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Destination;

/// A route for passthrough TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsRoute {
    /// Match conditions, of which one must match.
    #[serde(rename = "match")]
    pub matches: Vec<TlsMatchAttributes>,
    /// Weighted destinations of the connection.
    pub route: Vec<RouteDestination>,
}

/// A route for TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TcpRoute {
    /// Match conditions, of which one must match; empty matches all connections.
    #[serde(rename = "match")]
    pub matches: Vec<L4MatchAttributes>,
    /// Weighted destinations of the connection.
    pub route: Vec<RouteDestination>,
}

/// One weighted destination of a TLS or TCP route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RouteDestination {
    /// The service, or the subset of a service, that receives the connections.
    pub destination: Option<Destination>,
    /// Weight relative to the route's other destinations; 0 on the only destination sends it all
    /// connections.
    pub weight: i32,
}

/// Match conditions of a TCP connection; all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct L4MatchAttributes {
    /// IPs or CIDRs, one of which must contain the destination address.
    pub destination_subnets: Vec<String>,
    /// The service port; 0 matches any port.
    pub port: u32,
    /// IP or CIDR of the client. Ignored.
    pub source_subnet: String,
    /// Labels that the client workload must have; applies to sidecars only.
    pub source_labels: BTreeMap<String, String>,
    /// Gateways that the match applies to, instead of the VirtualService's own list.
    pub gateways: Vec<String>,
    /// Namespace of the client workload; applies to sidecars only.
    pub source_namespace: String,
}

/// Match conditions of a TLS connection; all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsMatchAttributes {
    /// SNI names, one of which must match; each must be covered by one of the VirtualService's
    /// hosts.
    pub sni_hosts: Vec<String>,
    /// IPs or CIDRs, one of which must contain the destination address.
    pub destination_subnets: Vec<String>,
    /// The service port; 0 matches any port.
    pub port: u32,
    /// Labels that the client workload must have; applies to sidecars only.
    pub source_labels: BTreeMap<String, String>,
    /// Gateways that the match applies to, instead of the VirtualService's own list.
    pub gateways: Vec<String>,
    /// Namespace of the client workload; applies to sidecars only.
    pub source_namespace: String,
}
