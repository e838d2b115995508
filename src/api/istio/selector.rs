//! Selectors of workloads and ports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Selects workloads by labels, as ServiceEntry and Sidecar do (`networking.istio.io`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSelector {
    /// All of these labels must be on the workload. Empty selects every workload of the namespace.
    pub labels: BTreeMap<String, String>,
}

/// Selects workloads by labels, as policies and DestinationRule do (`type.istio.io`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyWorkloadSelector {
    /// All of these labels must be on the workload. Empty selects every workload of the namespace.
    pub match_labels: BTreeMap<String, String>,
}

/// Names one port by its number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortSelector {
    /// The port number; 0 is unset.
    pub number: u32,
}
