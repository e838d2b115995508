//! The kinds of Kubernetes' multi-cluster services (MCS): which services leave their cluster, and which come in.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The group of both kinds.
pub const GROUP: &str = "multicluster.x-k8s.io";

/// The domain of hosts that are the same in all clusters.
pub const CLUSTER_SET_DOMAIN: &str = "clusterset.local";

/// `multicluster.x-k8s.io/ServiceExport`: the Service of its name is offered to other clusters. Only that it is there counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceExport {}

/// `multicluster.x-k8s.io/ServiceImport`: the services of its name of all clusters, as one cluster sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceImport {
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its virtual addresses in the cluster, as written.
    pub ips: Vec<String>,
    /// Its ports. Those of the Services count.
    pub ports: Vec<serde_json::Value>,
    /// Which endpoint a client comes back to.
    pub session_affinity: String,
    /// How long it does.
    pub session_affinity_config: serde_json::Value,
    /// The address families of `ips`.
    pub ip_families: Vec<String>,
    /// `Cluster` or `Local`.
    pub internal_traffic_policy: String,
    /// Which endpoints are preferred.
    pub traffic_distribution: String,
}

impl ServiceImport {
    /// Those of its addresses that are some, sorted as text.
    #[must_use]
    pub fn addresses(&self) -> Vec<&str> {
        let valid = self.ips.iter().filter(|ip| ip.parse::<IpAddr>().is_ok());
        let mut addresses: Vec<&str> = valid.map(String::as_str).collect();
        addresses.sort_unstable();
        addresses
    }
}
