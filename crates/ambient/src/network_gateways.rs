//! The gateways by which workloads of other networks are reached, of all clusters (Istio's `serviceregistry/ambient/networks.go`).

use std::collections::BTreeMap;

use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::remote_gateway::{RemoteGateway, gateways_there, remote_gateways};

use crate::mesh::MeshFacts;

/// A gateway, and which object stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownGateway {
    pub(crate) gateway: RemoteGateway,
    pub(crate) source: NamespacedName,
    /// The cluster of the object.
    pub(crate) cluster: ClusterId,
}

/// The gateways of all networks: those that objects of the own cluster stand for before those of remote clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KnownGateways;

/// The gateways into one network, the one that is used first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GatewaysInto(pub(crate) NetworkId);

impl KnownGateway {
    /// Its key: object and address.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}/{}", self.source.namespace, self.source.name, self.gateway.address)
    }
}

/// The gateways that remote clusters bring; none where networks are not joined.
pub(crate) fn of_remotes(view: &View<'_>) -> Vec<KnownGateway> {
    if !are_joined(view) {
        return Vec::new();
    }
    let own = view.get(&MeshFacts).cluster.clone();
    view.get(&KnownGateways).values().flatten().filter(|known| known.cluster != own).cloned().collect()
}

/// Whether the networks of the mesh are joined.
fn are_joined(view: &View<'_>) -> bool {
    view.mesh().settings.gateway_api.east_west
}

impl Query for KnownGateways {
    type Value = BTreeMap<NetworkId, Vec<KnownGateway>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut known: Self::Value = BTreeMap::new();
        let mut take = |cluster: &ClusterId, source: NamespacedName, gateways: Vec<RemoteGateway>| {
            for gateway in gateways {
                let into = known.entry(gateway.network.clone()).or_default();
                // One object and address in two clusters is one gateway.
                if !into.iter().any(|one| one.source == source && one.gateway.address == gateway.address) {
                    into.push(KnownGateway { gateway, source: source.clone(), cluster: cluster.clone() });
                }
            }
        };
        let mesh = view.get(&MeshFacts);
        let own = &mesh.cluster;
        for gateway in view.list_all::<KubernetesGateway>() {
            take(own, gateway.meta.key(), remote_gateways(gateway));
        }
        let clusters: Vec<ClusterId> = view.remote_clusters().cloned().collect();
        for cluster in &clusters {
            for gateway in view.list_all_in::<KubernetesGateway>(cluster) {
                take(cluster, gateway.meta.key(), gateways_there(gateway));
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
        view.get(&KnownGateways).get(&self.0).cloned().unwrap_or_default()
    }
}
