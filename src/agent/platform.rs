//! The cloud around the proxy, if there is one: what it says of region, zone and instance.

use std::collections::BTreeMap;

use super::node::Locality;

/// What a cloud says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// What telemetry tells of, such as `gcp_project`.
    pub metadata: BTreeMap<String, String>,
    /// Where the instance runs.
    pub locality: Locality,
    /// The instance's labels.
    pub labels: BTreeMap<String, String>,
    /// Whether a pod runs here: then labels of the instance are not the workload's.
    pub kubernetes: bool,
}

impl Default for Platform {
    fn default() -> Self {
        Self { metadata: BTreeMap::new(), locality: Locality::default(), labels: BTreeMap::new(), kubernetes: true }
    }
}
