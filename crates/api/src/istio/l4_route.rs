//! Routes of a VirtualService below HTTP: TLS by SNI, and TCP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Destination;

/// A route for TLS connections that are passed through unopened.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsRoute {
    /// When the route applies: one of these must match.
    #[serde(rename = "match")]
    pub matches: Vec<TlsMatchAttributes>,
    /// Where the connection goes, by weight.
    pub route: Vec<RouteDestination>,
}

/// A route for TCP connections.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpRoute {
    /// When the route applies: one of these must match; empty always applies.
    #[serde(rename = "match")]
    pub matches: Vec<L4MatchAttributes>,
    /// Where the connection goes, by weight.
    pub route: Vec<RouteDestination>,
}

/// One weighted destination of a TLS or TCP route.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteDestination {
    /// The service.
    pub destination: Option<Destination>,
    /// Share of connections relative to the route's other destinations; 0 on the only one means all.
    pub weight: i32,
}

/// What a TCP connection must show; all that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct L4MatchAttributes {
    /// IPs or CIDRs of which one must hold the destination address.
    pub destination_subnets: Vec<String>,
    /// The service port; 0 is any.
    pub port: u32,
    /// IP or CIDR of the client. Read by nothing.
    pub source_subnet: String,
    /// Labels that the client workload must carry; for sidecars only.
    pub source_labels: BTreeMap<String, String>,
    /// Gateways for which this match counts, in place of the VirtualService's own list.
    pub gateways: Vec<String>,
    /// Namespace of the client workload; for sidecars only.
    pub source_namespace: String,
}

/// What a TLS connection must show; all that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsMatchAttributes {
    /// SNI names of which one must match; each must be a subset of one of the VirtualService's hosts.
    pub sni_hosts: Vec<String>,
    /// IPs or CIDRs of which one must hold the destination address.
    pub destination_subnets: Vec<String>,
    /// The service port; 0 is any.
    pub port: u32,
    /// Labels that the client workload must carry; for sidecars only.
    pub source_labels: BTreeMap<String, String>,
    /// Gateways for which this match counts, in place of the VirtualService's own list.
    pub gateways: Vec<String>,
    /// Namespace of the client workload; for sidecars only.
    pub source_namespace: String,
}
