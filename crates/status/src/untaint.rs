//! Removes a taint from nodes once istio-cni is ready on them (istiod's
//! `pilot/pkg/controllers/untaint`). Nodes are created with the taint, so that no pod starts before
//! its traffic can be captured.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use navarch_kubernetes::{InWords, is_conflict_or_gone};

/// The label of istio-cni's pods.
const CNI: &str = "k8s-app=istio-cni-node";
/// Retry delay.
const RETRY: Duration = Duration::from_secs(2);

/// Removes a taint from nodes on which istio-cni is ready
/// (`PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS`).
#[derive(Clone, Debug)]
pub struct NodeUntaint {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The namespace of istio-cni.
    pub namespace: String,
    /// The key of the taint.
    pub taint: String,
}

/// A node that has the taint.
#[derive(Clone, Debug, PartialEq)]
struct Tainted {
    /// Its `resourceVersion`.
    version: Option<String>,
    taints: Vec<Taint>,
}

/// The state of the cluster.
#[derive(Debug, Default)]
struct World {
    /// The nodes of istio-cni's ready pods, by pod.
    ready: BTreeMap<String, String>,
    /// The nodes that have the taint.
    tainted: BTreeMap<String, Tainted>,
    /// The pods of an unfinished list.
    listed_pods: BTreeSet<String>,
    /// The nodes of an unfinished list.
    listed_nodes: BTreeSet<String>,
}

impl World {
    /// Applies an event about a pod of istio-cni.
    fn take_pod(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.listed_pods.clear(),
            Event::InitApply(pod) => {
                self.listed_pods.insert(pod.name_any());
                self.put_pod(&pod);
            }
            Event::InitDone => self.ready.retain(|name, _| self.listed_pods.contains(name)),
            Event::Apply(pod) => self.put_pod(&pod),
            Event::Delete(pod) => _ = self.ready.remove(&pod.name_any()),
        }
    }

    /// Adds or updates a pod.
    fn put_pod(&mut self, pod: &Pod) {
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .filter(|_| is_ready(pod));
        match node {
            Some(node) => _ = self.ready.insert(pod.name_any(), node),
            None => _ = self.ready.remove(&pod.name_any()),
        }
    }

    /// Applies an event about a node.
    fn take_node(&mut self, event: Event<Node>, taint: &str) {
        match event {
            Event::Init => self.listed_nodes.clear(),
            Event::InitApply(node) => {
                self.listed_nodes.insert(node.name_any());
                self.put_node(&node, taint);
            }
            Event::InitDone => self
                .tainted
                .retain(|name, _| self.listed_nodes.contains(name)),
            Event::Apply(node) => self.put_node(&node, taint),
            Event::Delete(node) => _ = self.tainted.remove(&node.name_any()),
        }
    }

    /// Adds or updates a node.
    fn put_node(&mut self, node: &Node, taint: &str) {
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        if taints.iter().any(|one| one.key == taint) {
            self.tainted.insert(
                node.name_any(),
                Tainted {
                    version: node.resource_version(),
                    taints,
                },
            );
        } else {
            self.tainted.remove(&node.name_any());
        }
    }

    /// The nodes whose taint must be removed. Few have it at a time.
    fn due(&self) -> Vec<String> {
        if self.tainted.is_empty() {
            return Vec::new();
        }
        let ready: BTreeSet<&String> = self.ready.values().collect();
        self.tainted
            .keys()
            .filter(|node| ready.contains(node))
            .cloned()
            .collect()
    }
}

impl NodeUntaint {
    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let pods = Api::<Pod>::namespaced(self.cluster.0.clone(), &self.namespace);
        let nodes = Api::<Node>::all(self.cluster.0.clone());
        let mut pods =
            std::pin::pin!(watcher(pods, watcher::Config::default().labels(CNI)).default_backoff());
        let mut all_nodes =
            std::pin::pin!(watcher(nodes.clone(), watcher::Config::default()).default_backoff());
        let mut world = World::default();
        let mut failed = false;

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = pods.next() => match event {
                    Ok(event) => world.take_pod(event),
                    Err(error) => tracing::warn!(error = %InWords(&error), "failed to watch istio-cni pods"),
                },
                Some(event) = all_nodes.next() => match event {
                    Ok(event) => world.take_node(event, &self.taint),
                    Err(error) => tracing::warn!(error = %InWords(&error), "failed to watch nodes"),
                },
                () = tokio::time::sleep(RETRY), if failed => {}
            }

            failed = false;

            for name in world.due() {
                match self.untaint(&nodes, &name, world.tainted.get(&name)).await {
                    Ok(()) => _ = world.tainted.remove(&name),
                    // The node has changed, which the watch will report.
                    Err(error) if is_conflict_or_gone(&error) => {}
                    Err(error) => {
                        tracing::warn!(node = name, taint = self.taint, error = %InWords(&error), "failed to remove the node taint");
                        failed = true;
                    }
                }
            }
        }
    }

    /// Removes the taint from a node as it was read.
    async fn untaint(
        &self,
        nodes: &Api<Node>,
        name: &str,
        node: Option<&Tainted>,
    ) -> Result<(), kube::Error> {
        let Some(node) = node else { return Ok(()) };
        let kept: Vec<&Taint> = node
            .taints
            .iter()
            .filter(|taint| taint.key != self.taint)
            .collect();

        // With the version, nothing is written if the node has changed.
        let patch =
            json!({ "metadata": { "resourceVersion": node.version }, "spec": { "taints": kept } });
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        tracing::info!(
            node = name,
            taint = self.taint,
            "istio-cni is ready on the node; removed the taint"
        );

        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one.type_ == "Ready" && one.status == "True")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAINT: &str = "cni.istio.io/not-ready";

    fn pod(name: &str, node: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [] },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    }

    fn node(name: &str, taints: &[&str]) -> Node {
        let taints: Vec<_> = taints
            .iter()
            .map(|key| json!({ "key": key, "effect": "NoSchedule" }))
            .collect();
        serde_json::from_value(
            json!({ "metadata": { "name": name }, "spec": { "taints": taints } }),
        )
        .unwrap()
    }

    #[test]
    fn nodes_are_due_that_have_the_taint_and_a_ready_pod() {
        let mut world = World::default();
        world.take_node(Event::Apply(node("a", &[TAINT, "other"])), TAINT);
        world.take_node(Event::Apply(node("b", &["other"])), TAINT);
        world.take_pod(Event::Apply(pod("cni-a", "a", "False")));
        world.take_pod(Event::Apply(pod("cni-b", "b", "True")));
        assert_eq!(world.due(), Vec::<String>::new());
        world.take_pod(Event::Apply(pod("cni-a", "a", "True")));
        assert_eq!(world.due(), ["a"]);
        // Without the taint, or without the pod, there is nothing to do.
        world.take_node(Event::Apply(node("a", &["other"])), TAINT);
        assert_eq!(world.due(), Vec::<String>::new());
        world.take_node(Event::Apply(node("b", &[TAINT])), TAINT);
        assert_eq!(world.due(), ["b"]);
        world.take_pod(Event::Delete(pod("cni-b", "b", "True")));
        assert_eq!(world.due(), Vec::<String>::new());
    }

    #[test]
    fn objects_missing_from_a_relist_are_removed() {
        let mut world = World::default();
        for name in ["a", "b"] {
            world.take_node(Event::Apply(node(name, &[TAINT])), TAINT);
            world.take_pod(Event::Apply(pod(&format!("cni-{name}"), name, "True")));
        }
        assert_eq!(world.due(), ["a", "b"]);
        world.take_pod(Event::Init);
        world.take_pod(Event::InitApply(pod("cni-b", "b", "True")));
        world.take_pod(Event::InitDone);
        assert_eq!(world.due(), ["b"]);
        world.take_node(Event::Init, TAINT);
        world.take_node(Event::InitDone, TAINT);
        assert_eq!(world.due(), Vec::<String>::new());
    }
}
