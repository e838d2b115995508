//! Selectors of workloads and ports.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selects workloads by labels, as ServiceEntry and Sidecar do (`networking.istio.io`).
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSelector {
    /// All of these labels must be on the workload. Empty selects every workload of the namespace.
    pub labels: BTreeMap<String, String>,
}

/// Selects workloads by labels, as policies and DestinationRule do (`type.istio.io`).
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyWorkloadSelector {
    /// All of these labels must be on the workload. Empty selects every workload of the namespace.
    pub match_labels: BTreeMap<String, String>,
}

/// Names one port by its number.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortSelector {
    /// The port number; 0 is unset.
    pub number: u32,
}

/// Names an object that a policy is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyTargetReference {
    /// The object's API group; empty is the core group.
    pub group: String,
    /// The object's kind: Gateway, GatewayClass, Service or ServiceEntry.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The object's namespace; only the policy's own, which is meant when empty, is supported.
    pub namespace: String,
}
