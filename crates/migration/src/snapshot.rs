//! What a control plane makes of the objects of a mesh: a snapshot, and the proxies of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::names::is_kubernetes_name;
use navarch_api::status_port;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::{Change, MeshState};
use navarch_push::proxy::Proxy;
use navarch_registry::workload_name_of_pod;
use serde_json::Value;

use super::judge::{MeshSettings, proxy_of};
use super::objects::{Objects, POD, items, name, namespace, text};
use super::pods::{DataPlane, PROXY_CONTAINER, is_alive, proxies};

/// The variable of agents with the name of their workload.
const WORKLOAD_NAME: &str = "ISTIO_META_WORKLOAD_NAME";

/// A snapshot of a mesh, as a control plane would have it.
#[derive(Debug)]
pub struct Snapshot {
    /// The input of translation.
    pub context: Arc<PushContext>,
    /// Why objects could not be read.
    pub problems: Vec<String>,
}

/// A pod with a sidecar.
#[derive(Debug)]
pub struct SidecarPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// The name of its workload as in Istio's metrics: what its agent is started with, else what the
    /// registry names it by, else its own. It is the name of an object in Kubernetes.
    pub workload: String,
    /// `metadata.name`.
    pub name: String,
    /// When the container of the proxy has started, as text of RFC 3339; empty if it is not known.
    pub started: String,
    /// Whether it runs, so that its agent can respond.
    pub is_running: bool,
    /// The port on which its agent has metrics; 0 if it has none.
    pub status_port: u16,
    /// The proxy that its agent connects.
    pub proxy: Proxy,
}

impl Snapshot {
    /// The snapshot of these objects, those of other revisions included.
    pub(crate) fn of(objects: &Objects, settings: &MeshSettings) -> Self {
        let mut changes = vec![Change::Mesh(Arc::new(settings.mesh.clone()))];
        let mut problems = Vec::new();
        for (_, object) in objects.iter() {
            let (subject, outcome) = decode_value(object);
            match outcome {
                Outcome::Read { object, .. } => {
                    changes.push(Change::Put(object.without_internal_annotations()));
                }
                Outcome::Ignored => {}
                Outcome::Rejected(error) => problems.push(format!("{subject}: {error}")),
            }
        }

        let mut state = MeshState::new(settings.settings.clone());
        state.apply(changes);
        Self {
            context: state.context(),
            problems,
        }
    }

    /// The snapshot that the control plane with these settings has of these objects.
    #[must_use]
    pub fn of_revision(objects: &Objects, settings: &MeshSettings) -> Self {
        let mut own = objects.clone();
        own.take_others(settings.revision());
        Self::of(&own, settings)
    }
}

/// The pods with sidecars, by namespace and name. Those without an address, which have no proxy
/// yet, are left out.
#[must_use]
pub fn sidecar_pods(objects: &Objects, settings: &MeshSettings) -> Vec<SidecarPod> {
    let pods = objects.of(POD).map(|(_, pod)| pod);
    pods.filter(|pod| is_alive(pod) && DataPlane::of(pod) == DataPlane::Sidecar)
        .filter_map(|pod| {
            Some(SidecarPod {
                namespace: namespace(pod).to_owned(),
                workload: workload(pod),
                name: name(pod).to_owned(),
                started: started(pod).to_owned(),
                is_running: text(pod, "/status/phase") == "Running",
                status_port: status_port::of_pod(pod),
                proxy: proxy_of(pod, settings)?,
            })
        })
        .collect()
}

/// The names of all pods by namespace and name of their workload, as [`SidecarPod::workload`] has
/// it: also of those that start, have ended, or have no sidecar.
#[must_use]
pub fn pods_by_workload(objects: &Objects) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut workloads: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (_, pod) in objects.of(POD) {
        let key = (namespace(pod).to_owned(), workload(pod));
        let pods = workloads.entry(key).or_default();
        pods.insert(name(pod).to_owned());
    }
    workloads
}

/// The name of the workload of a pod. Kubernetes checks neither variables nor the names of owners,
/// so that they may have any text. Without the variable it is the registry's name, by which the
/// control plane's page shows the workload.
fn workload(pod: &Value) -> String {
    let variables = proxies(pod).flat_map(|container| items(container, "/env"));
    let named = variables
        .filter(|variable| text(variable, "/name") == WORKLOAD_NAME)
        .map(|variable| text(variable, "/value"));
    let named = named.last().map(str::to_owned);
    let mut candidates = named.into_iter().chain(name_in_registry(pod));
    candidates
        .find(|candidate| is_kubernetes_name(candidate))
        .unwrap_or_else(|| name(pod).to_owned())
}

/// The workload of a pod in the registry, which has only valid pods.
fn name_in_registry(pod: &Value) -> Option<String> {
    let (_, outcome) = decode_value(pod);
    match outcome {
        Outcome::Read {
            object: AnyObject::Pod(pod),
            ..
        } => Some(workload_name_of_pod(&pod).to_string()),
        Outcome::Read { .. } | Outcome::Ignored | Outcome::Rejected(_) => None,
    }
}

/// When the container of a pod's proxy has started.
fn started(pod: &Value) -> &str {
    let own = items(pod, "/status/containerStatuses");
    let mut statuses = own.chain(items(pod, "/status/initContainerStatuses"));
    let proxy = statuses.find(|status| text(status, "/name") == PROXY_CONTAINER);
    proxy.map_or("", |status| text(status, "/state/running/startedAt"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod of a StatefulSet whose proxy has these variables.
    fn pod(metadata: Value, env: Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "web-1", "namespace": "shop" },
            "spec": { "containers": [{ "name": "istio-proxy", "env": env }] },
            "status": { "containerStatuses": [{
                "name": "istio-proxy",
                "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
            }] },
        });
        let fields = metadata.as_object().unwrap().clone();
        pod["metadata"].as_object_mut().unwrap().extend(fields);
        pod
    }

    fn of_owner(name: &str) -> Value {
        json!({ "generateName": "web-", "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "u",
              "controller": true },
        ] })
    }

    #[test]
    fn the_workload_of_a_pod_is_what_its_agent_is_started_with() {
        let pod = |env| pod(of_owner("db"), env);
        assert_eq!(workload(&pod(json!([]))), "db");
        let named = pod(json!([{ "name": WORKLOAD_NAME, "value": "nightly" }]));
        assert_eq!(workload(&named), "nightly");
        for forged in ["", "a/b", "web\nkind: Forged", "web\u{1b}[2J"] {
            let forged = pod(json!([{ "name": WORKLOAD_NAME, "value": forged }]));
            assert_eq!(workload(&forged), "db");
        }

        assert_eq!(started(&named), "2026-01-01T00:00:00Z");
        assert_eq!(started(&json!({})), "");
    }

    #[test]
    fn without_the_variable_it_has_its_name_in_the_registry() {
        let workload = |metadata: Value| workload(&pod(metadata, json!([])));
        assert_eq!(workload(of_owner("a/b")), "web-1");

        let mut not_generated = of_owner("db");
        not_generated["generateName"] = json!("");
        assert_eq!(workload(not_generated), "web-1");

        let mut labelled = of_owner("db");
        labelled["labels"] = json!({ "service.istio.io/workload-name": "store" });
        assert_eq!(workload(labelled), "store");
    }
}
