//! Gateways of the Gateway API that lead into other networks (Istio's
//! `serviceregistry/ambient/networks.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::networks::NETWORK_LABEL;
use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::names::{ClusterId, NetworkId, ServiceAccount};
use navarch_api::object::{NamespacedName, Object};

/// The class of Gateways that represent a gateway of another network.
pub(super) const REMOTE_CLASS: &str = "istio-remote";
/// The class of Gateways between the networks of an ambient mesh.
const EAST_WEST_CLASS: &str = "istio-east-west";
/// The annotation that names the ServiceAccount of a Gateway's proxies.
const ACCOUNT_ANNOTATION: &str = "gateway.istio.io/service-account";
/// The protocol of listeners for HBONE.
pub(super) const HBONE: &str = "HBONE";

/// A gateway into another network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteGateway {
    /// Network whose workloads are behind the gateway.
    pub network: NetworkId,
    /// Its address or host.
    pub address: Arc<str>,
    /// Its port for HBONE.
    pub port: u16,
    /// The ServiceAccount of its proxies, in the namespace of the Gateway.
    pub service_account: ServiceAccount,
}

/// A gateway into a network, and the Gateway object that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownGateway {
    /// Its address, port and identity.
    pub gateway: RemoteGateway,
    /// Namespace and name of the Gateway object.
    pub source: NamespacedName,
    /// The cluster of the Gateway object.
    pub cluster: ClusterId,
}

/// The gateways into all networks, by network: the first of each network is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownGateways(BTreeMap<NetworkId, Vec<KnownGateway>>);

impl KnownGateway {
    /// Its key: object and address.
    #[must_use]
    pub fn name(&self) -> String {
        format!(
            "{}/{}/{}",
            self.source.namespace, self.source.name, self.gateway.address
        )
    }
}

impl KnownGateways {
    /// Adds a Gateway of the configuration cluster. All of these must be added before those of
    /// remote clusters.
    pub fn add_own(&mut self, cluster: &ClusterId, gateway: &Object<KubernetesGateway>) {
        self.add(cluster, &gateway.meta.key(), remote_gateways(gateway));
    }

    /// Adds a Gateway of a remote cluster if its class is `istio-east-west` and it terminates
    /// HBONE.
    pub fn add_remote(&mut self, cluster: &ClusterId, gateway: &Object<KubernetesGateway>) {
        self.add(cluster, &gateway.meta.key(), declared_gateways(gateway));
    }

    fn add(&mut self, cluster: &ClusterId, source: &NamespacedName, gateways: Vec<RemoteGateway>) {
        for gateway in gateways {
            let into = self.0.entry(gateway.network.clone()).or_default();
            // The same object and address in two clusters is one gateway.
            if !into
                .iter()
                .any(|known| known.source == *source && known.gateway.address == gateway.address)
            {
                into.push(KnownGateway {
                    gateway,
                    source: source.clone(),
                    cluster: cluster.clone(),
                });
            }
        }
    }

    /// In the order in which they were added, hence the one in use first; empty if none is known.
    #[must_use]
    pub fn into_network(&self, network: &NetworkId) -> &[KnownGateway] {
        self.0.get(network).map_or(&[], |known| known)
    }

    /// All gateways, network by network.
    pub fn iter(&self) -> impl Iterator<Item = &KnownGateway> {
        self.0.values().flatten()
    }
}

/// The network gateways that a Gateway declares, one for each of its addresses.
#[must_use]
pub fn remote_gateways(gateway: &Object<KubernetesGateway>) -> Vec<RemoteGateway> {
    let meta = &gateway.meta;
    let spec = &gateway.spec;
    let network = meta
        .labels
        .get(NETWORK_LABEL)
        .filter(|network| !network.is_empty());
    let listener = spec
        .listeners
        .iter()
        .find(|listener| listener.protocol == HBONE);
    let port = listener.and_then(|listener| u16::try_from(listener.port).ok());
    let (Some(network), Some(port)) = (
        network.filter(|_| spec.gateway_class_name == REMOTE_CLASS),
        port,
    ) else {
        return Vec::new();
    };

    by_address(gateway, network, port)
}

/// The gateways into another network that a Gateway of a remote cluster declares, one for each of
/// its addresses. As in istiod, they have no port.
fn declared_gateways(gateway: &Object<KubernetesGateway>) -> Vec<RemoteGateway> {
    let meta = &gateway.meta;
    let spec = &gateway.spec;
    let ends_tunnels = |listener: &Listener| {
        listener.protocol == HBONE
            && listener
                .tls
                .as_ref()
                .is_some_and(|tls| tls.mode == "Terminate")
    };

    let network = meta
        .labels
        .get(NETWORK_LABEL)
        .filter(|network| !network.is_empty());
    match network {
        Some(network)
            if spec.gateway_class_name == EAST_WEST_CLASS
                && spec.listeners.iter().any(ends_tunnels) =>
        {
            by_address(gateway, network, 0)
        }
        Some(_) | None => Vec::new(),
    }
}

/// The ServiceAccount of a Gateway's proxies, in its namespace (Istio's `GatewaySA`).
pub(super) fn service_account(gateway: &Object<KubernetesGateway>) -> ServiceAccount {
    let meta = &gateway.meta;
    let spec = &gateway.spec;
    match meta
        .annotations
        .get(ACCOUNT_ANNOTATION)
        .filter(|name| !name.is_empty())
    {
        Some(name) => ServiceAccount::new(name),
        None if spec.gateway_class_name == REMOTE_CLASS => {
            ServiceAccount::new(format!("{}-{REMOTE_CLASS}", meta.key.name))
        }
        None => ServiceAccount::new(&meta.key.name),
    }
}

/// The gateway into a network for each of a Gateway's addresses.
fn by_address(gateway: &Object<KubernetesGateway>, network: &str, port: u16) -> Vec<RemoteGateway> {
    let service_account = service_account(gateway);
    let addresses = gateway
        .spec
        .status
        .addresses
        .iter()
        .filter(|address| matches!(&*address.kind, "IPAddress" | "Hostname"));
    let at = |address: &str| RemoteGateway {
        network: NetworkId::new(network),
        address: Arc::from(address),
        port,
        service_account: service_account.clone(),
    };
    addresses.map(|address| at(&address.value)).collect()
}
