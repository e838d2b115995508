//! The kinds of Kubernetes' multi-cluster services (MCS): which services a cluster exports and
//! imports.

use std::net::IpAddr;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The group and version of the API of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    /// `MCS_API_GROUP`. Default `multicluster.x-k8s.io`.
    pub group: &'static str,
    /// `MCS_API_VERSION`. Default `v1alpha1`.
    pub version: &'static str,
    /// The version as a list of one.
    versions: &'static [&'static str],
}

/// Kubernetes' default.
const DEFAULT: Api = Api {
    group: "multicluster.x-k8s.io",
    version: "v1alpha1",
    versions: &["v1alpha1"],
};

/// The API that the process was started with.
static API: OnceLock<Api> = OnceLock::new();

/// Returns the group and version that the process was started with. As in istiod, they apply to
/// everything that it reads.
#[must_use]
pub fn api() -> Api {
    *API.get().unwrap_or(&DEFAULT)
}

/// Sets another group and version for the lifetime of the process. Takes effect once, before
/// anything is read.
pub fn set_api(group: &str, version: &str) {
    let text = |text: &str| -> &'static str { String::leak(text.to_owned()) };
    let version = text(version);
    let versions: &'static [&'static str] = Vec::leak(vec![version]);
    if (group, version) != (DEFAULT.group, DEFAULT.version) {
        _ = API.set(Api {
            group: text(group),
            version,
            versions,
        });
    }
}

impl Api {
    /// The versions in which the kinds are served.
    pub(crate) fn versions(self) -> &'static [&'static str] {
        self.versions
    }
}

/// The domain of hosts that are the same in all clusters.
pub const CLUSTER_SET_DOMAIN: &str = "clusterset.local";

/// `multicluster.x-k8s.io/ServiceExport`: exports the Service of the same name to other clusters.
/// Only its presence matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceExport {}

/// `multicluster.x-k8s.io/ServiceImport`: the services of the same name in all clusters, as one
/// cluster sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceImport {
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its virtual addresses in the cluster, as written.
    pub ips: Vec<String>,
    /// Its ports. The ports of the Services are used instead.
    pub ports: Vec<serde_json::Value>,
    /// The session affinity of clients.
    pub session_affinity: String,
    /// The duration of the session affinity.
    pub session_affinity_config: serde_json::Value,
    /// The address families of `ips`.
    pub ip_families: Vec<String>,
    /// `Cluster` or `Local`.
    pub internal_traffic_policy: String,
    /// Which endpoints are preferred.
    pub traffic_distribution: String,
}

impl ServiceImport {
    /// Its valid addresses, sorted as text.
    #[must_use]
    pub fn addresses(&self) -> Vec<&str> {
        let valid = self.ips.iter().filter(|ip| ip.parse::<IpAddr>().is_ok());
        let mut addresses: Vec<&str> = valid.map(String::as_str).collect();
        addresses.sort_unstable();
        addresses
    }
}
