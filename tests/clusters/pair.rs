//! Two nodes with a network link.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use navarch_testkit::joined;
use navarch_testkit::mesh::{self, Mesh};
use navarch_testkit::node::{self, Node};
use navarch_testkit::wait::until_some;
use serde_json::{Value, json};

use crate::{program, root};

/// The gateway between the networks: a release, its Deployment and its Service.
pub(crate) const GATEWAY: &str = "istio-eastwestgateway";
/// How long terminating pods may take to disappear.
const LEAVING: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The status of both control planes, computed when a failure prints it.
struct PairStatus<'a>(&'a Pair);

impl fmt::Debug for PairStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.logs())
    }
}

pub(crate) struct Side {
    /// Its name, which is also the name of its region and the prefix of its network's name.
    pub(crate) name: &'static str,
    /// The mesh in its cluster.
    pub(crate) mesh: Mesh,
}

/// Both sides.
pub(crate) struct Pair {
    pub(crate) west: Side,
    pub(crate) east: Side,
}

impl Pair {
    /// Starts both in parallel, and links their networks.
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let images = mesh::images(root(), &program("navarch"), folder.path())?;
        let images: Vec<&Path> = images.iter().map(AsRef::as_ref).collect();
        let start = |name, networks| -> Result<Side> {
            let mesh = Mesh::on(root(), Node::start_in(root(), &images, networks)?)?;
            Ok(Side { name, mesh })
        };
        let [one, other] = node::free_networks()?;

        let (west, east) = std::thread::scope(|scope| {
            let west = scope.spawn(|| start("west", one));
            let east = start("east", other);
            (west.join(), east)
        });
        let pair = Self {
            west: west.map_err(|_| anyhow!("a node's thread failed"))??,
            east: east?,
        };
        joined::wire(&pair.west.mesh.node, &pair.east.mesh.node)?;

        Ok(pair)
    }

    /// Both, in order.
    pub(crate) fn sides(&self) -> [&Side; 2] {
        [&self.west, &self.east]
    }

    /// Runs something on both sides in parallel.
    pub(crate) fn in_both(&self, work: impl Fn(&Side) -> Result<()> + Sync) -> Result<()> {
        std::thread::scope(|scope| {
            let west = scope.spawn(|| work(&self.west));
            let east = work(&self.east);
            west.join().map_err(|_| anyhow!("a thread failed"))??;
            east
        })
    }

    /// Waits until a condition holds; the failure's text contains the last log lines of the control
    /// planes.
    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let look = async || {
            if condition().await {
                Ok(())
            } else {
                Err(PairStatus(self))
            }
        };
        until_some(what, look).await;
    }

    /// The last log lines of the control planes.
    fn logs(&self) -> String {
        let logs = self.sides().map(|side| {
            let log = side.kubectl(mesh::NAMESPACE, &["logs", "deployment/istiod", "--tail=40"]);
            format!(
                "{}:\n{}",
                side.name,
                log.unwrap_or_else(|error| format!("{error:#}"))
            )
        });
        logs.join("\n")
    }

    /// Waits until the metrics of a side's control plane contain this line.
    pub(crate) async fn counts(&self, side: &Side, wanted: &str) {
        self.until(
            &format!(
                "the metrics of the control plane of {} contain {wanted}",
                side.name
            ),
            async || {
                // The port does not respond while the control plane restarts.
                side.page("/metrics")
                    .await
                    .is_ok_and(|page| page.lines().any(|line| line == wanted))
            },
        )
        .await;
    }

    pub(crate) fn other(&self, side: &Side) -> &Side {
        if side.name == self.west.name {
            &self.east
        } else {
            &self.west
        }
    }
}

impl Side {
    /// The name of its network.
    pub(crate) fn network(&self) -> String {
        format!("{}-net", self.name)
    }

    /// Runs kubectl in a namespace.
    pub(crate) fn kubectl(&self, namespace: &str, arguments: &[&str]) -> Result<String> {
        self.mesh
            .node
            .kubectl(&[&["--namespace", namespace], arguments].concat())
    }

    /// Labels the control plane's namespace with its network, and the node with its region; sets
    /// annotations, if any.
    pub(crate) fn place(&self, annotations: &Value) -> Result<()> {
        let metadata = json!({
            "name": mesh::NAMESPACE,
            "labels": {"topology.istio.io/network": self.network()},
            "annotations": annotations,
        });
        self.mesh
            .apply(&[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})])?;
        let region = format!("topology.kubernetes.io/region={}", self.name);
        self.mesh
            .node
            .kubectl(&["label", "--overwrite", "node", "--all", &region])
            .map(drop)
    }

    /// Installs the chart with the values of every cluster of the mesh, and these.
    pub(crate) fn install(&self, set: &[String]) -> Result<()> {
        let mut values = vec![
            "global.meshID=mesh".to_owned(),
            format!("global.multiCluster.clusterName={}", self.name),
            format!("global.network={}", self.network()),
        ];
        values.extend_from_slice(set);
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.mesh.install("navarch", &values)
    }

    /// Starts the gateway between the networks, which forwards TLS by SNI to services.
    pub(crate) fn gateway(&self) -> Result<()> {
        self.mesh.network_gateway(GATEWAY, &self.network())?;
        self.mesh.apply(&[json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "cross-network-gateway", "namespace": mesh::NAMESPACE},
            "spec": {
                "selector": {"istio": "eastwestgateway"},
                "servers": [{
                    "port": {"number": 15443, "name": "tls", "protocol": "TLS"},
                    "tls": {"mode": "AUTO_PASSTHROUGH"},
                    "hosts": ["*.local"],
                }],
            },
        })])
    }

    /// Scales a Deployment, and waits until no pod of its namespace is terminating.
    pub(crate) fn scale(&self, namespace: &str, deployment: &str, replicas: u32) -> Result<()> {
        let deployment = format!("deployment/{deployment}");
        let replicas = format!("--replicas={replicas}");
        self.kubectl(namespace, &["scale", &deployment, &replicas])?;
        self.settled(namespace)
    }

    /// Waits until all Deployments of a namespace are rolled out and none of its pods is
    /// terminating.
    pub(crate) fn settled(&self, namespace: &str) -> Result<()> {
        self.mesh.rolled_out(namespace)?;
        let end = Instant::now() + LEAVING;
        loop {
            let list = self.mesh.node.get(namespace, &["pods"])?;
            let pods = list["items"].as_array().context("a list")?;
            if pods
                .iter()
                .all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "pods of {namespace} are still terminating after {LEAVING:?}"
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// A page of the control plane's monitoring port.
    pub(crate) async fn page(&self, path: &str) -> Result<String> {
        let address = self.mesh.service(mesh::NAMESPACE, "istiod", 15014)?;
        Ok(navarch_testkit::client::get(address, "istiod", path, &[])
            .await?
            .body)
    }

    /// Creates the Secret by which its control plane reads another cluster, with a token of that
    /// name.
    pub(crate) async fn reads(&self, other: &Side, token: &str) -> Result<()> {
        let secret = joined::remote_secret(&other.mesh.node, other.name, token).await?;
        self.mesh.apply(&[secret])
    }
}
