//! `MeshNetworks`: the networks of the mesh and the gateways between them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The networks of the mesh (`mesh/v1alpha1/network.proto`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshNetworks {
    /// The networks by id.
    pub networks: BTreeMap<String, Network>,
}

/// Endpoints that reach each other directly; endpoints of other networks reach them through its
/// gateways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// Which endpoints belong to the network: by cluster or by address range.
    pub endpoints: Vec<NetworkEndpoints>,
    /// The gateways for traffic from other networks.
    pub gateways: Vec<IstioNetworkGateway>,
}

/// Endpoints of a network. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkEndpoints {
    /// Endpoints with an address in this range.
    pub from_cidr: Option<String>,
    /// Endpoints in the registry of this cluster.
    pub from_registry: Option<String>,
}

/// A gateway into a network. One of `registry_service_name` and `address` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioNetworkGateway {
    /// The host name of the gateway's Service.
    pub registry_service_name: Option<String>,
    /// The IP address or DNS name of the gateway.
    pub address: Option<String>,
    /// From 1 to 65535, usually 15443; clients of other networks connect to it with mutual TLS.
    pub port: u32,
    /// The locality of the gateway, `region/zone/subzone`.
    pub locality: String,
}
