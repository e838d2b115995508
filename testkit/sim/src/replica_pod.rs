//! The pod of a replica, as kubelet and its controller keep it: replicas find each other by their
//! pods.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api_server::ApiServer;
use crate::link::Condition;
use crate::replica::SYSTEM_NAMESPACE;

/// How often kubelet probes it.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the pod of a process that has ended is there.
const TERMINATION: Duration = Duration::from_secs(5);
/// How long a node may be silent until its pods are not known to be ready, and how long after that
/// they are deleted.
const NODE_MONITOR_GRACE: Duration = Duration::from_secs(40);
const EVICTION: Duration = Duration::from_secs(120);

/// How a process is, as kubelet sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It runs; whether it is ready.
    Runs(bool),
    /// It was asked to stop.
    Stops,
    /// It has crashed; with the condition of its connections, which are silent if the node has.
    Crashed(Condition),
}

/// Keeps the pod of this name until it is deleted.
pub(crate) async fn keep(server: ApiServer, name: String, life: impl Fn() -> Life) {
    let mut shown = None;
    let ended = loop {
        let is_ready = match life() {
            Life::Runs(is_ready) => is_ready,
            ended @ (Life::Stops | Life::Crashed(_)) => break ended,
        };
        if shown != Some(is_ready) {
            let ready = if is_ready { "True" } else { "False" };
            server.apply(&pod(&name, ready, &json!({})));
            shown = Some(is_ready);
        }
        sleep(PROBE_INTERVAL).await;
    };

    match ended {
        Life::Crashed(Condition::Silent) => {
            sleep(NODE_MONITOR_GRACE).await;
            server.apply(&pod(&name, "Unknown", &json!({})));
            sleep(EVICTION).await;
        }
        Life::Crashed(_) => {
            server.apply(&pod(&name, "False", &json!({})));
            sleep(TERMINATION).await;
        }
        Life::Stops | Life::Runs(_) => {
            let deletes = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
            server.apply(&pod(&name, "True", &deletes));
            sleep(TERMINATION).await;
        }
    }
    server.delete("", "Pod", SYSTEM_NAMESPACE, &name);
}

/// The pod with this status of its condition, and further metadata.
fn pod(name: &str, ready: &str, metadata: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": SYSTEM_NAMESPACE, "labels": { "app": "istiod" } },
        "spec": {
            "serviceAccountName": "istiod", "nodeName": "node-0",
            "containers": [{ "name": "discovery" }],
        },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    });
    if let (Some(all), Some(further)) = (pod["metadata"].as_object_mut(), metadata.as_object()) {
        all.extend(further.clone());
    }
    pod
}
