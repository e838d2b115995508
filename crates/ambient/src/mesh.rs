//! Mesh-wide inputs of all workloads and services.

use std::sync::Arc;

use navarch_proto::istio::workload::GatewayAddress;

use super::site::Site;
use super::wire::{gateway_by_host, gateway_by_ip};
use navarch_api::gateway_api::KubernetesGateway;
use navarch_api::names::{ClusterId, Namespace, NetworkId};
use navarch_push::cluster_ref::ClusterRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::NETWORK_LABEL;
use navarch_registry::remote_gateway::remote_gateways;

/// Mesh-wide inputs of all workloads and services.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MeshFacts;

/// The value of [`MeshFacts`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mesh {
    /// Whether it is in ambient mode.
    pub(super) is_ambient: bool,
    /// The cluster of this control plane.
    pub(super) cluster: ClusterId,
    /// The namespace whose policies apply to the mesh.
    pub(super) root_namespace: Namespace,
    pub(super) trust_domain: Arc<str>,
    /// The network of the cluster; empty in a mesh with a single network.
    pub(super) network: NetworkId,
    /// The cluster as a site of workloads.
    pub(super) site: Arc<Site>,
    /// Which selectors match other kinds of workloads.
    pub(super) selection: Selection,
    /// Whether ztunnel gets dry-run policies (`AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY`).
    pub(super) dry_run: bool,
    /// Whether waypoints are allowed implicitly.
    pub(super) auto_allow_waypoints: bool,
}

/// Which selectors match other kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// ServiceEntries select pods.
    pub(super) entries_select_pods: bool,
    /// Services select WorkloadEntries.
    pub(super) services_select_entries: bool,
}

/// The gateway into a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewayOf(NetworkId);

impl Mesh {
    /// The trust domain in workloads: empty for the default one.
    pub(super) fn workload_trust_domain(&self) -> String {
        if &*self.trust_domain == "cluster.local" {
            String::new()
        } else {
            self.trust_domain.to_string()
        }
    }
}

impl Query for MeshFacts {
    type Value = Mesh;

    fn compute(&self, view: &View<'_>) -> Mesh {
        let mesh = view.mesh();
        let config = &mesh.config;
        let settings = &mesh.settings;
        let network = view
            .namespace_labels(&settings.system_namespace)
            .and_then(|labels| labels.get(NETWORK_LABEL));
        let network = network.map(NetworkId::new).unwrap_or_default();
        let site = Site {
            cluster_ref: ClusterRef::Config,
            cluster: settings.cluster_id.clone(),
            gateway: gateway_of(&network, view),
            network: network.clone(),
        };

        Mesh {
            is_ambient: settings.ambient,
            cluster: settings.cluster_id.clone(),
            root_namespace: Namespace::new(&config.root_namespace),
            trust_domain: Arc::from(config.trust_domain.as_str()),
            site: Arc::new(site),
            network,
            selection: Selection {
                entries_select_pods: settings.service_entries_select_pods,
                services_select_entries: settings.services_select_workload_entries,
            },
            dry_run: settings.ambient_dry_run,
            auto_allow_waypoints: settings.auto_allow_waypoints,
        }
    }
}

/// The gateway into a network, if any.
pub(super) fn gateway_of(network: &NetworkId, view: &View<'_>) -> Option<GatewayAddress> {
    (*view.get(&GatewayOf(network.clone()))).clone()
}

impl Query for GatewayOf {
    type Value = Option<GatewayAddress>;

    fn compute(&self, view: &View<'_>) -> Option<GatewayAddress> {
        view.list_all::<KubernetesGateway>().find_map(|gateway| {
            let remote = remote_gateways(gateway)
                .into_iter()
                .find(|remote| remote.network == self.0 && remote.port != 0)?;
            Some(match remote.address.parse() {
                Ok(address) => gateway_by_ip(address, &remote.network, remote.port),
                Err(_) => {
                    gateway_by_host(&gateway.meta.key.namespace, &remote.address, remote.port)
                }
            })
        })
    }
}
