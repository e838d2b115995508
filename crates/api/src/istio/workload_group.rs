//! WorkloadGroup: the common properties of workloads outside Kubernetes, and the template for their
//! registration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::WorkloadEntry;
use crate::mesh::ReadinessProbe;

/// `networking.istio.io/WorkloadGroup`: the template for the WorkloadEntries of workloads that
/// register themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadGroup {
    /// Labels and annotations of the WorkloadEntries.
    pub metadata: Option<WorkloadGroupMetadata>,
    /// The spec of the WorkloadEntries, without the fields that each workload reports.
    pub template: Option<WorkloadEntry>,
    /// How agents check the readiness of their workload.
    pub probe: Option<ReadinessProbe>,
}

/// Metadata of every WorkloadEntry of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadGroupMetadata {
    /// Labels of the WorkloadEntries.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the WorkloadEntries.
    pub annotations: BTreeMap<String, String>,
}
