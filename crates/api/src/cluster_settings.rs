//! Settings of a mesh over several clusters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::istiod;
use super::names::ClusterId;

/// Settings for several clusters from flags and environment variables. Field docs name Istio's
/// variable or flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSettings {
    /// `--clusterAliases`: aliases that proxies may send as their cluster id, each with the cluster
    /// id it maps to. Default none.
    pub aliases: BTreeMap<ClusterId, ClusterId>,
    /// `ENABLE_MCS_SERVICE_DISCOVERY`, `ENABLE_MCS_HOST`, `ENABLE_MCS_CLUSTER_LOCAL`. Default off.
    pub mcs: McsMode,
    /// `PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY`: WorkloadEntries of remote clusters are read.
    /// They are selected by the Services of their cluster and by ServiceEntries. Default true.
    pub remote_workload_entries: bool,
    /// `PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER`: proxies of remote clusters get Secrets of
    /// their cluster. Default true.
    pub remote_credentials: bool,
    /// `PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API`: Gateways of the Gateway API with a network label
    /// are gateways into that network. Default true.
    pub gateways_by_gateway_api: bool,
    /// The revision of this control plane, which determines the name of the ConfigMap with a remote
    /// cluster's mesh config; empty is `default`.
    pub revision: String,
}

/// How much of Kubernetes' multi-cluster services (MCS) is enabled; each mode includes the previous
/// one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum McsMode {
    /// Disabled: services of the same name in several clusters are one service.
    #[default]
    Off,
    /// `ENABLE_MCS_SERVICE_DISCOVERY`: endpoints are visible to other clusters only if a
    /// ServiceExport exports them.
    Exports,
    /// `ENABLE_MCS_HOST`: imported services have a host in `clusterset.local`.
    Hosts,
    /// `ENABLE_MCS_CLUSTER_LOCAL`: hosts in `cluster.local` refer to the client's own cluster only.
    ClusterLocal,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            aliases: BTreeMap::new(),
            mcs: McsMode::Off,
            remote_workload_entries: true,
            remote_credentials: true,
            gateways_by_gateway_api: true,
            revision: String::new(),
        }
    }
}

impl ClusterSettings {
    /// The mode that the three variables select: each takes effect only together with those before
    /// it.
    #[must_use]
    pub fn mcs_mode(exports: bool, hosts: bool, cluster_local: bool) -> McsMode {
        match (exports, hosts, cluster_local) {
            (false, _, _) => McsMode::Off,
            (true, false, _) => McsMode::Exports,
            (true, true, false) => McsMode::Hosts,
            (true, true, true) => McsMode::ClusterLocal,
        }
    }

    /// The name of the ConfigMap with the mesh config.
    #[must_use]
    pub fn mesh_config_map(&self) -> String {
        istiod::named(istiod::MESH_CONFIG_MAP, &self.revision)
    }
}
