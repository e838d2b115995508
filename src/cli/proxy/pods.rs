//! The pods of a cluster: listed, patched, and asked through the API server's port-forward.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use navarch_agent::local_http::LocalRequest;
use navarch_agent::upgrade::ANNOTATION;
use navarch_agent::upgrade::status::ProxyStatus;
use navarch_api::status_port;
use navarch_kubernetes::InWords;
use serde_json::json;

use super::super::cluster::ForwardedPod;
use super::Target;
use super::fleet::Fleet;

/// The name of the proxy's container.
const CONTAINER: &str = "istio-proxy";
/// The page with the agent's status.
const PAGE: &str = "/navarch/proxy";
/// Timeout of a request to the API server, or to an agent through it.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The name under which the API server notes who has set the annotation.
const FIELD_MANAGER: &str = "navarch-proxy";
/// How many pods the API server returns at once.
const PAGE_SIZE: u32 = 500;

/// The running pods of a target that have a proxy.
pub(super) struct ClusterPods {
    pods: Api<Pod>,
    namespace: String,
    /// The status ports of their agents, by the name of the pod; 0 of an agent without one.
    status_ports: BTreeMap<String, u16>,
}

impl ClusterPods {
    /// Lists them.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(super) async fn list(client: Client, target: &Target) -> anyhow::Result<Self> {
        let namespace = &target.namespace;
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let mut status_ports = BTreeMap::new();
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        loop {
            let listed = tokio::time::timeout(TIMEOUT, pods.list(&parameters)).await;
            let listed = listed
                .with_context(|| format!("the API server did not respond within {TIMEOUT:?}"))?
                .map_err(|error| {
                    anyhow::anyhow!(
                        "failed to list the pods of {namespace}: {}. Request the verb list for pods",
                        InWords(&error)
                    )
                })?;

            let wanted = listed
                .items
                .iter()
                .filter(|pod| has_running_proxy(pod) && is_of(pod, target.name.as_deref()));
            for pod in wanted {
                status_ports.insert(pod.name_any(), status_port_of(pod)?);
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }

        Ok(Self {
            pods,
            namespace: namespace.clone(),
            status_ports,
        })
    }

    /// Their names, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        self.status_ports.keys().cloned().collect()
    }
}

impl Fleet for ClusterPods {
    async fn annotate(&self, pod: &str, wanted: &str) -> anyhow::Result<()> {
        let value = Some(wanted).filter(|wanted| !wanted.is_empty());
        let patch = json!({"metadata": {"annotations": {ANNOTATION: value}}});
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);

        let patched = self.pods.patch_metadata(pod, &parameters, &patch);
        let patched = tokio::time::timeout(TIMEOUT, patched).await;

        patched
            .with_context(|| format!("the API server did not respond within {TIMEOUT:?}"))?
            .map_err(|error| {
                anyhow::anyhow!(
                    "failed to annotate it: {}. Request the verb patch for pods",
                    InWords(&error)
                )
            })?;
        Ok(())
    }

    async fn status(&self, pod: &str) -> anyhow::Result<ProxyStatus> {
        let port = self.status_ports.get(pod).copied().unwrap_or_default();
        if port == 0 {
            anyhow::bail!(
                "its agent has no status port: see status.sidecar.istio.io/port and statusPort"
            );
        }
        let forwarded = ForwardedPod {
            pods: self.pods.clone(),
            namespace: self.namespace.clone(),
            name: pod.to_owned(),
            port,
        };
        let request = LocalRequest::get("localhost", port, PAGE, TIMEOUT);
        let response = forwarded.send(request).await?;
        if !response.status.is_success() {
            anyhow::bail!(
                "its agent has no page {PAGE} (HTTP {}): it is not Navarch's, or an older version",
                response.status
            );
        }
        serde_json::from_slice(&response.body).context("its agent has an invalid status")
    }
}

/// The status port of the agent in a pod.
///
/// # Errors
/// If the pod cannot be written as JSON.
fn status_port_of(pod: &Pod) -> anyhow::Result<u16> {
    let pod = serde_json::to_value(pod).context("failed to read a pod")?;
    Ok(status_port::of_pod(&pod))
}

/// Whether a pod runs, is not terminating, and has a proxy, in either kind of container.
fn has_running_proxy(pod: &Pod) -> bool {
    let is_running = pod
        .status
        .as_ref()
        .is_some_and(|status| status.phase.as_deref() == Some("Running"));
    let containers = pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    let has_proxy = containers
        .into_iter()
        .any(|container| container.name == CONTAINER);
    is_running && has_proxy && pod.metadata.deletion_timestamp.is_none()
}

/// Whether a pod, or the workload that it belongs to, has a name.
fn is_of(pod: &Pod, name: Option<&str>) -> bool {
    let Some(name) = name else { return true };
    pod.metadata.name.as_deref() == Some(name) || workload(pod).as_deref() == Some(name)
}

/// The workload that owns a pod: the owner, or the Deployment of a ReplicaSet.
fn workload(pod: &Pod) -> Option<String> {
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))?;
    let hash = pod.labels().get("pod-template-hash");
    let deployment = hash
        .filter(|_| owner.kind == "ReplicaSet")
        .and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    Some(deployment.unwrap_or(&owner.name).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(name: &str, phase: &str, more: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"pod-template-hash": "5d6"}},
            "spec": {"containers": [{"name": "app"}, {"name": CONTAINER}]},
            "status": {"phase": phase},
        });
        json_patch::merge(&mut pod, more);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_running_pods_with_a_proxy_are_changed() {
        assert!(has_running_proxy(&pod("a", "Running", &json!({}))));
        assert!(!has_running_proxy(&pod("a", "Pending", &json!({}))));
        let ends = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(!has_running_proxy(&pod("a", "Running", &ends)));
        let without = json!({"spec": {"containers": [{"name": "app"}]}});
        assert!(!has_running_proxy(&pod("a", "Running", &without)));
        let native = json!({"spec": {
            "containers": [{"name": "app"}],
            "initContainers": [{"name": CONTAINER, "restartPolicy": "Always"}],
        }});
        assert!(has_running_proxy(&pod("a", "Running", &native)));
    }

    #[test]
    fn an_agent_is_asked_on_its_own_status_port() {
        let annotations =
            json!({"metadata": {"annotations": {(status_port::ANNOTATION): "16020"}}});
        let annotated = pod("a", "Running", &annotations);
        assert_eq!(status_port_of(&annotated).unwrap(), 16020);
        let config = json!([{"name": "PROXY_CONFIG", "value": "{\"statusPort\":16021}"}]);
        let configured = json!({"spec": {"containers": [{"name": CONTAINER, "env": config}]}});
        let configured = pod("a", "Running", &configured);
        assert_eq!(status_port_of(&configured).unwrap(), 16021);

        let plain = pod("a", "Running", &json!({}));
        assert_eq!(status_port_of(&plain).unwrap(), status_port::DEFAULT);
    }

    #[test]
    fn pods_are_found_by_their_name_and_their_workload() {
        let owned = |kind: &str, name: &str| {
            let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true});
            pod(
                "web-5d6-x",
                "Running",
                &json!({"metadata": {"ownerReferences": [owner]}}),
            )
        };
        let of_deployment = owned("ReplicaSet", "web-5d6");
        assert!(is_of(&of_deployment, None));
        assert!(is_of(&of_deployment, Some("web")));
        assert!(is_of(&of_deployment, Some("web-5d6-x")));
        assert!(!is_of(&of_deployment, Some("we")));
        assert!(is_of(&owned("StatefulSet", "db"), Some("db")));
        assert!(!is_of(&pod("alone", "Running", &json!({})), Some("web")));
    }
}
