//! WorkloadEntry: a workload that is no pod.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `networking.istio.io/WorkloadEntry`, and an endpoint within a ServiceEntry.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadEntry {
    /// IP, `unix://` path, or DNS name; empty with a network means the network's gateway.
    pub address: String,
    /// Port of the workload by the name of the service's port.
    pub ports: BTreeMap<String, u32>,
    /// Labels of the workload.
    pub labels: BTreeMap<String, String>,
    /// The network it is in; empty is that of its client.
    pub network: String,
    /// Its locality as `region/zone/subzone`.
    pub locality: String,
    /// Share of traffic relative to the service's other endpoints; 0 is 1.
    pub weight: u32,
    /// The service account that it runs as.
    pub service_account: String,
    /// Whether the condition `Healthy` of the status is true. Not part of the spec, so never read with it.
    #[serde(skip)]
    pub healthy: bool,
}

impl WorkloadEntry {
    /// Takes over what counts of an object's `status`.
    pub fn take_status(&mut self, status: &Value) {
        let member = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let mut healthy = conditions.filter(|condition| member(condition, "type") == "Healthy");
        self.healthy = healthy.next().is_some_and(|condition| member(condition, "status") == "True");
    }
}
