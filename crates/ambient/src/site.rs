//! Sites: the clusters whose individual workloads are sent to ztunnel.
//!
//! These are the cluster that configures the mesh and, with `AMBIENT_ENABLE_MULTI_NETWORK`, the
//! remote clusters in its network. The inputs of a workload (Services, nodes, namespaces,
//! waypoints) are in its own cluster; policies are those of the cluster that configures the mesh.
//! Agrees with Istio's `MergedGlobalWorkloadsCollection`.

use std::sync::Arc;

use navarch_api::names::{ClusterId, NetworkId};
use navarch_proto::istio::workload::GatewayAddress;
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;

use crate::mesh::{MeshFacts, gateway_of};
use crate::networks::{are_joined, network_of};

/// A cluster whose individual workloads are sent to ztunnel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) cluster_ref: ClusterRef,
    pub(crate) cluster: ClusterId,
    /// The network of the cluster; empty in a mesh with a single network.
    pub(crate) network: NetworkId,
    /// The gateway into its network.
    pub(crate) gateway: Option<GatewayAddress>,
}

/// A remote cluster as a site; `None` if it is not a site, or does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SiteOf(pub(crate) ClusterId);

/// The remote clusters that are sites.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RemoteSites;

/// All sites, the configuration cluster first.
pub(crate) fn site_clusters(view: &View<'_>) -> Vec<ClusterRef> {
    let near = remote_sites(view);
    [ClusterRef::Config]
        .into_iter()
        .chain(near.iter().cloned().map(ClusterRef::Remote))
        .collect()
}

pub(crate) fn remote_sites(view: &View<'_>) -> Arc<Vec<ClusterId>> {
    if are_joined(view) {
        view.get(&RemoteSites)
    } else {
        Arc::default()
    }
}

impl Query for RemoteSites {
    type Value = Vec<ClusterId>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mesh = view.get(&MeshFacts);
        let clusters: Vec<ClusterId> = view.remote_clusters().cloned().collect();
        clusters
            .into_iter()
            .filter(|cluster| network_of(view, cluster) == mesh.network)
            .collect()
    }
}

impl Query for SiteOf {
    type Value = Option<Arc<Site>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let cluster = remote_sites(view)
            .iter()
            .find(|near| **near == self.0)?
            .clone();
        let network = network_of(view, &cluster);
        let gateway = gateway_of(&network, view);
        Some(Arc::new(Site {
            cluster_ref: ClusterRef::Remote(cluster.clone()),
            cluster,
            network,
            gateway,
        }))
    }
}
