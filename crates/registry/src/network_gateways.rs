//! Gateways into networks from other networks: those of mesh networks, and services with a network
//! label.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::directory::NetworkGateway;
use super::kubernetes_service::NODE_SELECTOR_ANNOTATION;
use super::mesh_inputs::{MeshInputs, Role};
use super::model::{Labels, Service};
use super::networks::NETWORK_LABEL;
use super::remote_gateway::{HBONE, REMOTE_CLASS, service_account};
use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::kubernetes::{Node, NodeAddressType, Service as Declared, ServiceType};
use navarch_api::mesh::MeshNetworks;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_api::object::{NamespacedName, Object};

/// The label of a gateway service that names its mTLS port.
const PORT_LABEL: &str = "networking.istio.io/gatewayPort";
/// The mTLS port of gateways between networks, unless labelled otherwise.
const DEFAULT_PORT: u16 = 15443;
/// The TLS option of a listener that sets its TLS mode.
const MODE_OPTION: &str = "gateway.istio.io/listener-protocol";
/// The HBONE port of gateways between networks.
const HBONE_PORT: u16 = 15008;

/// A gateway whose address is still to be determined.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GatewayAddress {
    /// The network behind it.
    network: NetworkId,
    /// The port of the service for mTLS, 0 for none.
    port: u16,
    /// The port of the service for HBONE, 0 for none.
    hbone_port: u16,
}

/// The network gateways that a Kubernetes Service declares.
#[must_use]
pub(super) fn gateways_of_service<'a>(
    service: &Service,
    declared: &Object<Declared>,
    nodes: impl IntoIterator<Item = &'a Arc<Object<Node>>>,
    mesh_inputs: &MeshInputs,
) -> BTreeSet<NetworkGateway> {
    let gateway_addresses = gateway_addresses(service, mesh_inputs);
    if gateway_addresses.is_empty() {
        return BTreeSet::new();
    }

    let cluster = &mesh_inputs.settings.cluster_id;
    let addresses = match service.external_addresses.get(cluster) {
        Some(addresses) => addresses.clone(),
        None => node_addresses(declared, nodes),
    };
    let node_ports = service.external_ports.get(cluster);
    let outer_port = |port: u16| {
        node_ports
            .and_then(|ports| ports.get(&port))
            .copied()
            .unwrap_or(port)
    };

    let gateway = |address: &Arc<str>, entry: &GatewayAddress| NetworkGateway {
        network: entry.network.clone(),
        cluster: cluster.clone(),
        address: address.clone(),
        port: outer_port(entry.port),
        hbone_port: entry.hbone_port,
        service_account: NamespacedName::default(),
    };

    addresses
        .iter()
        .flat_map(|address| {
            gateway_addresses
                .iter()
                .map(move |entry| gateway(address, entry))
        })
        .collect()
}

/// The network gateways that a Gateway of the Gateway API declares: one for each of its addresses
/// and listeners that pass mutual TLS through or accept HBONE. Gateways that represent gateways of
/// other networks are only used in the configuration cluster.
#[must_use]
pub(super) fn gateways_of_object(
    object: &Object<KubernetesGateway>,
    mesh_inputs: &MeshInputs,
) -> BTreeSet<NetworkGateway> {
    let labels = &object.meta.labels;
    let spec = &object.spec;
    let network = labels
        .get(NETWORK_LABEL)
        .filter(|network| !network.is_empty());
    let elsewhere = spec.gateway_class_name == REMOTE_CLASS && mesh_inputs.role == Role::Remote;
    let Some(network) =
        network.filter(|_| mesh_inputs.settings.clusters.gateways_by_gateway_api && !elsewhere)
    else {
        return BTreeSet::new();
    };

    let account = service_account(object);
    let service_account = NamespacedName::new(object.meta.key.namespace.as_str(), account.as_str());
    let mut gateways = BTreeSet::new();

    for address in spec
        .addresses
        .iter()
        .filter(|address| matches!(&*address.kind, "IPAddress" | "Hostname"))
    {
        for listener in &spec.listeners {
            let Ok(port) = u16::try_from(listener.port) else {
                continue;
            };

            let takes_hbone = listener.protocol == HBONE;
            if takes_hbone || passes_tls_on(labels, listener) {
                gateways.insert(NetworkGateway {
                    network: NetworkId::new(network),
                    cluster: mesh_inputs.settings.cluster_id.clone(),
                    address: Arc::from(address.value.as_str()),
                    port,
                    hbone_port: if takes_hbone { port } else { 0 },
                    service_account: service_account.clone(),
                });
            }
        }
    }

    gateways
}

/// Whether a listener passes TLS through to the cluster in the SNI (Istio's `IsAutoPassthrough`).
fn passes_tls_on(labels: &Labels, listener: &Listener) -> bool {
    let Some(tls) = &listener.tls else {
        return false;
    };
    if tls
        .options
        .get(MODE_OPTION)
        .is_some_and(|mode| mode == "auto-passthrough")
    {
        return true;
    }
    let own = listener.port.to_string();
    labels
        .get(PORT_LABEL)
        .map_or(own == DEFAULT_PORT.to_string(), |port| **port == *own)
}

/// The networks that a service leads into: by its label, else by mesh networks that refer to it.
fn gateway_addresses(service: &Service, mesh_inputs: &MeshInputs) -> Vec<GatewayAddress> {
    if let Some(network) = service
        .labels
        .get(NETWORK_LABEL)
        .filter(|label| !label.is_empty())
    {
        let labelled = service
            .labels
            .get(PORT_LABEL)
            .and_then(|port| port.parse().ok());
        let open = |port: u16| {
            if service.port(port).is_some() {
                port
            } else {
                0
            }
        };
        let port = open(labelled.unwrap_or(DEFAULT_PORT));
        let hbone_port = open(HBONE_PORT);
        if port == 0 && hbone_port == 0 {
            return Vec::new();
        }
        return vec![GatewayAddress {
            network: NetworkId::new(network),
            port,
            hbone_port,
        }];
    }

    let own = mesh_inputs.networks.networks.iter().filter(|(_, network)| {
        let registries = network
            .endpoints
            .iter()
            .filter_map(|endpoints| endpoints.from_registry.as_deref());
        registries
            .into_iter()
            .any(|registry| registry == mesh_inputs.settings.cluster_id.as_str())
    });

    let gateway_addresses = own.flat_map(|(id, network)| {
        let named = network.gateways.iter().filter(|gateway| {
            gateway
                .registry_service_name
                .as_deref()
                .is_some_and(|name| name == service.key.hostname.as_str())
        });
        named.filter_map(move |gateway| {
            Some(GatewayAddress {
                network: NetworkId::new(id),
                port: u16::try_from(gateway.port).ok()?,
                hbone_port: 0,
            })
        })
    });

    gateway_addresses.collect()
}

/// The external addresses of the nodes that a node-port gateway selects.
fn node_addresses<'a>(
    declared: &Object<Declared>,
    nodes: impl IntoIterator<Item = &'a Arc<Object<Node>>>,
) -> Vec<Arc<str>> {
    let Some(selector) = node_selector(declared) else {
        return Vec::new();
    };
    let chosen = |node: &&Arc<Object<Node>>| {
        selector
            .iter()
            .all(|(key, value)| node.meta.labels.get(key) == Some(value))
    };
    let nodes = nodes.into_iter().filter(chosen);
    nodes
        .filter_map(|node| {
            node.spec
                .address(NodeAddressType::ExternalIp)
                .map(Arc::from)
        })
        .collect()
}

/// The labels of the nodes of a node-port gateway; `None` for other services. Text that is not an
/// object of labels selects all nodes, as in Istio.
#[must_use]
pub(super) fn node_selector(declared: &Object<Declared>) -> Option<Labels> {
    let text = declared.meta.annotations.get(NODE_SELECTOR_ANNOTATION)?;
    if declared.spec.service_type != ServiceType::NodePort {
        return None;
    }
    let selector: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    Some(
        selector
            .into_iter()
            .map(|(key, value)| (Arc::from(key), Arc::from(value)))
            .collect(),
    )
}

/// All gateways by network, each sorted by address and port: those of mesh networks and those of
/// services.
#[must_use]
pub(super) fn gateways_by_network<'a>(
    networks: &MeshNetworks,
    services: impl IntoIterator<Item = &'a BTreeSet<NetworkGateway>>,
) -> OrdMap<NetworkId, Arc<[NetworkGateway]>> {
    let mut all: BTreeSet<NetworkGateway> = services.into_iter().flatten().cloned().collect();

    for (id, network) in &networks.networks {
        for gateway in &network.gateways {
            let address = gateway
                .address
                .as_deref()
                .filter(|address| !address.is_empty());
            if let (Some(address), Ok(port)) = (address, u16::try_from(gateway.port)) {
                all.insert(NetworkGateway {
                    network: NetworkId::new(id),
                    cluster: ClusterId::default(),
                    address: Arc::from(address),
                    port,
                    hbone_port: 0,
                    service_account: NamespacedName::default(),
                });
            }
        }
    }

    let mut by_network: BTreeMap<NetworkId, Vec<NetworkGateway>> = BTreeMap::new();

    for gateway in all {
        by_network
            .entry(gateway.network.clone())
            .or_default()
            .push(gateway);
    }

    let sorted = by_network.into_iter().map(|(network, mut gateways)| {
        gateways.sort_by(|a, b| (&a.address, a.port).cmp(&(&b.address, b.port)));
        (network, Arc::from(gateways))
    });
    sorted.collect()
}
