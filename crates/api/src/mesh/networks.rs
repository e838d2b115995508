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

/// One network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// The endpoints in the network.
    pub endpoints: Vec<NetworkEndpoints>,
    /// The gateways for traffic from other networks.
    pub gateways: Vec<IstioNetworkGateway>,
}

/// Endpoints of a network. One of the two is set.
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
    /// The host name of its Service.
    pub registry_service_name: Option<String>,
    /// Its IP address or DNS name.
    pub address: Option<String>,
    /// Its port.
    pub port: u32,
    /// Its locality, `region/zone/subzone`.
    pub locality: String,
}
