//! WorkloadEntry: a workload outside Kubernetes, such as a virtual machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `networking.istio.io/WorkloadEntry`, and an endpoint within a ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadEntry {
    /// IP, `unix://` path, or DNS name; empty with a network selects the network's gateway.
    pub address: String,
    /// Ports of the workload by the name of the service port.
    pub ports: BTreeMap<String, u32>,
    /// Labels of the workload.
    pub labels: BTreeMap<String, String>,
    /// The workload's network; empty is the client's network.
    pub network: String,
    /// The workload's locality as `region/zone/subzone`.
    pub locality: String,
    /// Weight relative to the service's other endpoints; 0 is 1.
    pub weight: u32,
    /// The service account of the workload.
    pub service_account: String,
    /// Whether the condition `Healthy` in `status` is true. Not part of the spec, so decoding skips
    /// the field.
    #[serde(skip)]
    pub healthy: bool,
}

impl WorkloadEntry {
    /// Copies the relevant fields of an object's `status`.
    pub fn take_status(&mut self, status: &Value) {
        let member = |value: &Value, key: &str| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let conditions = status
            .get("conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut healthy = conditions.filter(|condition| member(condition, "type") == "Healthy");
        self.healthy = healthy
            .next()
            .is_some_and(|condition| member(condition, "status") == "True");
    }
}
