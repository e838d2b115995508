//! Selectors for workloads, ports and policy targets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Selects workloads by labels in ServiceEntry, Sidecar and EnvoyFilter (`networking.istio.io`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSelector {
    /// Labels that the workload must have. Empty selects all workloads of the namespace.
    pub labels: BTreeMap<String, String>,
}

/// Selects workloads by labels in policies and DestinationRule (`type.istio.io`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyWorkloadSelector {
    /// Labels that the workload must have. Empty selects all workloads of the namespace.
    pub match_labels: BTreeMap<String, String>,
}

/// Selects one port by its number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PortSelector {
    /// The port number; 0 is unset.
    pub number: u32,
}

/// References an object that a policy applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyTargetReference {
    /// The object's API group; empty is the core group.
    pub group: String,
    /// The object's kind: Gateway, GatewayClass, Service or ServiceEntry.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The object's namespace; only the policy's own namespace, the default, is supported.
    pub namespace: String,
}
