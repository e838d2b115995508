//! WorkloadGroup: what workloads that are no pods have in common, and what a new one registers as.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WorkloadEntry;
use crate::mesh::ReadinessProbe;

/// `networking.istio.io/WorkloadGroup`: the model for the WorkloadEntries of workloads that register themselves.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadGroup {
    /// Metadata for the entries.
    pub metadata: Option<WorkloadGroupMetadata>,
    /// What the entries say, but for what each workload tells of itself.
    pub template: Option<WorkloadEntry>,
    /// How agents find out whether their workload is ready.
    pub probe: Option<ReadinessProbe>,
}

/// Metadata that every entry of a group gets.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadGroupMetadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}
