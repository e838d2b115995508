//! `MeshNetworks`: which networks the mesh spans and the gateways between them.

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
    /// Which endpoints are in it.
    pub endpoints: Vec<NetworkEndpoints>,
    /// How it is reached from other networks.
    pub gateways: Vec<IstioNetworkGateway>,
}

/// Some endpoints. One of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkEndpoints {
    /// Those with an address in this range.
    pub from_cidr: Option<String>,
    /// Those that this cluster's registry knows.
    pub from_registry: Option<String>,
}

/// A gateway into a network. One of `registry_service_name` and `address` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IstioNetworkGateway {
    /// The Service behind which it stands, by host name.
    pub registry_service_name: Option<String>,
    /// Its IP address or DNS name.
    pub address: Option<String>,
    /// Its port.
    pub port: u32,
    /// Its locality, `region/zone/subzone`.
    pub locality: String,
}
