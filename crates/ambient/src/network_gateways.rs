//! Network gateways of all clusters (Istio's `serviceregistry/ambient/networks.go`).

use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::remote_gateway::{KnownGateway, KnownGateways};

use crate::mesh::MeshFacts;
use crate::networks::are_joined;

/// The gateways of all networks: those declared in the configuration cluster before those of remote
/// clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AllGateways;

/// The gateways into one network, the preferred one first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GatewaysInto(pub(crate) NetworkId);

/// The gateways that remote clusters declare; empty without multi-network ambient mode.
pub(crate) fn of_remotes(view: &View<'_>) -> Vec<KnownGateway> {
    if !are_joined(view) {
        return Vec::new();
    }
    let own = view.get(&MeshFacts).cluster.clone();
    view.get(&AllGateways)
        .iter()
        .filter(|known| known.cluster != own)
        .cloned()
        .collect()
}

impl Query for AllGateways {
    type Value = KnownGateways;

    fn compute(&self, view: &View<'_>) -> KnownGateways {
        let mut known = KnownGateways::default();
        let mesh = view.get(&MeshFacts);
        for gateway in view.list_all::<KubernetesGateway>() {
            known.add_own(&mesh.cluster, gateway);
        }
        let clusters: Vec<ClusterId> = view.remote_clusters().cloned().collect();
        for cluster in &clusters {
            for gateway in view.list_all_in::<KubernetesGateway>(cluster) {
                known.add_remote(cluster, gateway);
            }
        }
        known
    }
}

impl Query for GatewaysInto {
    type Value = Vec<KnownGateway>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        if !are_joined(view) {
            return Vec::new();
        }
        view.get(&AllGateways).into_network(&self.0).to_vec()
    }
}
