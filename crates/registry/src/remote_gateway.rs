//! Gateways of the Gateway API behind which other networks lie (Istio's `serviceregistry/ambient/networks.go`).

use std::sync::Arc;

use super::networks::NETWORK_LABEL;
use navarch_api::gateway_api::{KubernetesGateway, Listener};
use navarch_api::names::{NetworkId, ServiceAccount};
use navarch_api::object::Object;

/// The class of Gateways that stand for one of another network.
pub(super) const REMOTE_CLASS: &str = "istio-remote";
/// The class of Gateways between the networks of an ambient mesh.
const EAST_WEST_CLASS: &str = "istio-east-west";
/// The annotation that says which ServiceAccount a Gateway's proxies have.
const ACCOUNT_ANNOTATION: &str = "gateway.istio.io/service-account";
/// The protocol of listeners for HBONE.
pub(super) const HBONE: &str = "HBONE";

/// A way into another network.
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

/// The ways into another network that a Gateway stands for, one for each of its addresses.
#[must_use]
pub fn remote_gateways(gateway: &Object<KubernetesGateway>) -> Vec<RemoteGateway> {
    let (meta, spec) = (&gateway.meta, &gateway.spec);
    let network = meta.labels.get(NETWORK_LABEL).filter(|network| !network.is_empty());
    let listener = spec.listeners.iter().find(|listener| listener.protocol == HBONE);
    let port = listener.and_then(|listener| u16::try_from(listener.port).ok());
    let (Some(network), Some(port)) = (network.filter(|_| spec.gateway_class_name == REMOTE_CLASS), port) else {
        return Vec::new();
    };
    by_address(gateway, network, port)
}

/// The ways into another network that a Gateway of a remote cluster is, one for each of its addresses. As with istiod, they have no
/// port.
#[must_use]
pub fn gateways_there(gateway: &Object<KubernetesGateway>) -> Vec<RemoteGateway> {
    let (meta, spec) = (&gateway.meta, &gateway.spec);
    let ends_tunnels = |listener: &Listener| {
        listener.protocol == HBONE && listener.tls.as_ref().is_some_and(|tls| tls.mode == "Terminate")
    };
    let network = meta.labels.get(NETWORK_LABEL).filter(|network| !network.is_empty());
    match network {
        Some(network) if spec.gateway_class_name == EAST_WEST_CLASS && spec.listeners.iter().any(ends_tunnels) => {
            by_address(gateway, network, 0)
        }
        Some(_) | None => Vec::new(),
    }
}

/// The way into a network by each of a Gateway's addresses.
fn by_address(gateway: &Object<KubernetesGateway>, network: &str, port: u16) -> Vec<RemoteGateway> {
    let (meta, spec) = (&gateway.meta, &gateway.spec);
    let named = meta.annotations.get(ACCOUNT_ANNOTATION).filter(|name| !name.is_empty());
    let service_account = match named {
        Some(name) => ServiceAccount::new(name),
        None if spec.gateway_class_name == EAST_WEST_CLASS => ServiceAccount::new(&meta.key.name),
        None => ServiceAccount::new(format!("{}-{REMOTE_CLASS}", meta.key.name)),
    };
    let addresses = spec.status.addresses.iter().filter(|one| matches!(&*one.kind, "IPAddress" | "Hostname"));
    let at = |address: &str| RemoteGateway {
        network: NetworkId::new(network),
        address: Arc::from(address),
        port,
        service_account: service_account.clone(),
    };
    addresses.map(|one| at(&one.value)).collect()
}
