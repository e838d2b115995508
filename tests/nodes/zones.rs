//! The nodes, their zones, and where pods run.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use navarch_testkit::bookshop::{self, pods};
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::node::Node;
use navarch_testkit::wait;
use serde_json::Value;

use crate::root;

/// The first node. It is in the zone [`NEAR`].
pub(crate) const FIRST: &str = "node";
/// A worker, and its zone.
pub(crate) const NEAR: &str = "near";
/// The other worker, and its zone.
pub(crate) const FAR: &str = "far";
/// The label of nodes that may run replicas of the control plane.
const WORKER: &str = "role=worker";

/// The cluster with its mesh.
pub(crate) struct Zones {
    pub(crate) mesh: Mesh,
}

impl Zones {
    /// Starts the nodes with these images.
    pub(crate) fn start(images: &[&Path]) -> Result<Self> {
        let node = Node::start(root(), images)?;
        std::thread::scope(|scope| {
            let near = scope.spawn(|| node.start_worker(NEAR));
            let far = node.start_worker(FAR);
            near.join()
                .map_err(|_| anyhow::anyhow!("the start of {NEAR} panicked"))?
                .and(far)
        })?;

        for (name, zone) in [(FIRST, NEAR), (NEAR, NEAR), (FAR, FAR)] {
            let zone = format!("topology.kubernetes.io/zone={zone}");
            let region = "topology.kubernetes.io/region=here";
            node.kubectl(&["label", "node", name, &zone, region])?;
        }
        for name in [NEAR, FAR] {
            node.kubectl(&["label", "node", name, WORKER])?;
        }

        let mesh = Mesh::on(root(), node)?;
        Ok(Self { mesh })
    }

    /// Installs two replicas of the control plane on the workers.
    pub(crate) fn install(&self, ambient: bool) -> Result<()> {
        let selector = format!("nodeSelector.{WORKER}");
        let mut set = vec!["replicaCount=2", selector.as_str()];
        if ambient {
            set.push("profile=ambient");
        }
        self.mesh.install("navarch", &set)
    }

    /// The nodes of the pods that match a selector, of those that are not terminating.
    pub(crate) fn nodes_of(&self, namespace: &str, selector: &str) -> Result<Vec<String>> {
        let list = self
            .mesh
            .node
            .get(namespace, &["pods", "--selector", selector])?;
        let pods = list["items"].as_array().context("a list")?;
        Ok(pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
            .collect())
    }

    /// At once, and after updates, whose new pods are scheduled beside the old ones.
    pub(crate) async fn each_replica_has_its_own_node(&self) -> Result<()> {
        self.replicas_are_on_both_workers()?;
        for _ in 0..2 {
            self.mesh.node.kubectl(&[
                "--namespace",
                mesh::NAMESPACE,
                "rollout",
                "restart",
                "deployment/istiod",
            ])?;
            self.mesh.rolled_out(mesh::NAMESPACE)?;
            self.replicas_are_on_both_workers()?;

            wait::until("the old replicas are gone", || async {
                let list = self
                    .mesh
                    .node
                    .get(mesh::NAMESPACE, &["pods", "--selector=app=istiod"]);
                list.is_ok_and(|list| list["items"].as_array().is_some_and(|all| all.len() == 2))
            })
            .await;
        }

        Ok(())
    }

    fn replicas_are_on_both_workers(&self) -> Result<()> {
        let mut nodes = self.nodes_of(mesh::NAMESPACE, "app=istiod")?;
        nodes.sort();
        ensure!(
            nodes == [FAR, NEAR],
            "replicas of the control plane are on {nodes:?}"
        );
        Ok(())
    }

    /// The scheduler spreads the bookshop; its gateway reaches all of it, and `exec` and `logs`
    /// work on each node.
    pub(crate) async fn the_bookshop_spans_nodes(&self) -> Result<()> {
        let list = self.mesh.node.get(pods::NAMESPACE, &["pods"])?;
        let pods = list["items"].as_array().context("a list")?;
        let mut nodes = BTreeSet::new();
        for pod in pods {
            nodes.insert(pod["spec"]["nodeName"].as_str().context("a node")?);
            self.exec_and_logs_work(pod)?;
        }
        ensure!(nodes.len() > 1, "all pods of the bookshop are on {nodes:?}");

        let gateway = self.mesh.service(pods::GATEWAY, pods::GATEWAY, 80)?;
        for (path, expected) in [("/catalog/1", "catalog"), ("/", "storefront")] {
            let answers = bookshop::ask(gateway, pods::HOST, path, 20).await?;
            ensure!(answers.get(expected) == Some(&20), "{path}: {answers:?}");
        }

        Ok(())
    }

    fn exec_and_logs_work(&self, pod: &Value) -> Result<()> {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        let kubectl = |arguments: &[&str]| {
            let namespace = ["--namespace", pods::NAMESPACE];
            self.mesh
                .node
                .kubectl(&[&namespace[..], arguments].concat())
        };
        let log = kubectl(&["logs", name, "--container=istio-proxy"])?;
        ensure!(log.contains("Envoy"), "{name}: the agent's log: {log}");

        let request = ["pilot-agent", "request", "GET", "server_info"];
        let exec = ["exec", name, "--container=istio-proxy", "--"];
        let info = kubectl(&[&exec[..], &request].concat())?;
        ensure!(info.contains("LIVE"), "{name}: {info}");
        Ok(())
    }

    /// Whether a node is Ready.
    pub(crate) fn is_ready(&self, name: &str) -> Result<bool> {
        let node = self.mesh.node.get("default", &["node", name])?;
        let conditions = node["status"]["conditions"].as_array();
        Ok(conditions
            .context("conditions")?
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
    }

    /// Scales a Deployment, and waits for its pods.
    pub(crate) fn scale(&self, namespace: &str, deployment: &str, replicas: u32) -> Result<()> {
        let deployment = format!("deployment/{deployment}");
        let replicas = format!("--replicas={replicas}");
        self.mesh
            .node
            .kubectl(&["--namespace", namespace, "scale", &deployment, &replicas])?;
        self.mesh.rolled_out(namespace)
    }
}
