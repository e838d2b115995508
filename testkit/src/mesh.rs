//! Navarch and the bookshop as pods of a real node: images, the chart, clients with counts.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::time::Instant;

use crate::bookshop::pods;
use crate::client;
use crate::helm::Helm;
use crate::node::Node;
use crate::tally::Tally;

/// The namespace of Navarch.
pub const NAMESPACE: &str = "istio-system";
/// The tag of the images in the cluster, with the registry `localhost`.
pub const TAG: &str = "test";
/// Timeout until pods are ready.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Builds the images of the mesh in the directory `out` from built programs: `navarch`, and next to
/// it `pilot-agent` and `workload`. Returns their archives; those that are newer than the programs
/// are not rebuilt.
///
/// # Errors
/// If a program is missing or an image cannot be built.
pub fn images(root: &Path, navarch: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let agent = navarch.with_file_name("pilot-agent");
    let workload = navarch.with_file_name("workload");
    for program in [&agent, &workload] {
        ensure!(
            program.exists(),
            "{} is missing: cargo build --workspace --bins",
            program.display()
        );
    }

    std::fs::create_dir_all(out)?;
    let archives =
        ["navarch", "navarch-proxy", "workload"].map(|name| out.join(format!("{name}.tar")));
    let [control, proxy, app] = &archives;
    if !(newer(control, navarch) && newer(proxy, &agent)) {
        let mut command = Command::new(root.join("scripts/image"));
        command.args(["--hub", "localhost", "--tag", TAG, "--strip"]);
        run(command.arg("--program").arg(navarch).arg("--out").arg(out))?;
    }

    if !newer(app, &workload) {
        program_image(root, &workload, pods::IMAGE, app)?;
    }

    Ok(archives.to_vec())
}

/// Packs a built program, with its libraries, as an image whose entry point it is.
///
/// # Errors
/// If it cannot be packed.
pub fn program_image(root: &Path, program: &Path, image: &str, archive: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("root");
    run(Command::new(root.join("scripts/image-root"))
        .arg("program")
        .arg(&files)
        .arg(program))?;

    let name = program.file_name().context("a program must be a file")?;
    let entry_point = format!("--entrypoint=/usr/local/bin/{}", name.display());
    let mut pack = Command::new(root.join("scripts/oci-image"));
    pack.arg(archive)
        .args(["--name", image, &entry_point, "--root"])
        .arg(&files);
    run(&mut pack)
}

/// Whether a file exists and is not older than another.
fn newer(file: &Path, than: &Path) -> bool {
    let time = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    time(file).is_some_and(|made| time(than).is_some_and(|built| made >= built))
}

/// The container IDs in a pod's status, including ended ones.
fn containers(pod: &Value) -> impl Iterator<Item = &str> {
    let statuses = pod
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    statuses.filter_map(|status| status.get("containerID").and_then(Value::as_str))
}

/// Whether a pod has succeeded, or is ready without any of the containers in `ended`.
fn runs_without(pod: &Value, ended: &BTreeSet<String>) -> bool {
    if pod.pointer("/status/phase").and_then(Value::as_str) == Some("Succeeded") {
        return true;
    }
    let conditions = pod
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut ready =
        conditions.filter(|condition| condition.get("type").is_some_and(|kind| kind == "Ready"));
    ready.any(|condition| {
        condition
            .get("status")
            .is_some_and(|status| status == "True")
    }) && containers(pod).all(|id| !ended.contains(id))
}

/// Runs a command, and fails with its output.
fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Navarch on a node.
#[derive(Debug)]
pub struct Mesh {
    /// Cluster that the mesh runs on.
    pub node: Node,
    helm: Helm,
    chart: PathBuf,
}

impl Mesh {
    /// The mesh of the checkout at `root` on a cluster; nothing is installed yet.
    ///
    /// # Errors
    /// If Helm is missing.
    pub fn on(root: &Path, node: Node) -> Result<Self> {
        Ok(Self {
            node,
            helm: Helm::find()?,
            chart: root.join("deploy/charts/navarch"),
        })
    }

    /// Installs or upgrades a release of the chart with the cluster's images, and waits until it is
    /// rolled out. Resource requests fit a small machine; the number of replicas is one, unless
    /// `set` has another.
    ///
    /// # Errors
    /// If Helm fails.
    pub fn install(&self, release: &str, set: &[&str]) -> Result<()> {
        self.install_from(&self.chart, release, set)
    }

    /// Like [`Mesh::install`], from another version of the chart.
    ///
    /// # Errors
    /// If Helm fails.
    pub fn install_from(&self, chart: &Path, release: &str, set: &[&str]) -> Result<()> {
        let small = [
            "global.hub=localhost",
            &format!("global.tag={TAG}"),
            "autoscaleEnabled=false",
            "replicaCount=1",
            "resources.requests.cpu=20m",
            "global.proxy.resources.requests.cpu=10m",
            "global.proxy.resources.requests.memory=40Mi",
        ];
        self.install_chart(release, chart, &[&small[..], set].concat())
    }

    /// Installs or upgrades a release of a chart in the namespace of the control plane, and waits
    /// until it is rolled out.
    ///
    /// # Errors
    /// If Helm fails.
    pub fn install_chart(&self, release: &str, chart: &Path, set: &[&str]) -> Result<()> {
        self.upgrade(release, chart, &["--install", "--create-namespace"], set)
    }

    /// Upgrades a release of another chart to this one with values from a file, without CRDs, and
    /// waits until it is rolled out. The image of the control plane is the cluster's.
    ///
    /// # Errors
    /// If Helm fails.
    pub fn take_over(&self, release: &str, values: &Path) -> Result<()> {
        let values = values.display().to_string();
        let flags = ["--values", &values, "--skip-crds"];
        let tag = format!("tag={TAG}");
        self.upgrade(release, &self.chart, &flags, &["hub=localhost", &tag])
    }

    /// Runs `helm upgrade` with further flags and values.
    fn upgrade(&self, release: &str, chart: &Path, flags: &[&str], set: &[&str]) -> Result<()> {
        let chart = chart.display().to_string();
        let mut arguments = vec!["upgrade", release, &chart, "--namespace", NAMESPACE];
        arguments.extend(["--wait", "--timeout", "120s"]);
        arguments.extend(flags);
        for value in set {
            arguments.extend(["--set", value]);
        }
        let outcome = self.helm.run(Some(&self.node.kubeconfig()), &arguments);
        outcome.map(drop).with_context(|| self.describe(NAMESPACE))
    }

    /// Installs the gateway of a network (the gateway chart), with the node's address as its load
    /// balancer address, and waits until it is rolled out.
    ///
    /// # Errors
    /// If Helm fails, or the gateway does not become ready.
    pub fn network_gateway(&self, release: &str, network: &str) -> Result<()> {
        let chart = self.chart.with_file_name("gateway").display().to_string();
        let network = format!("networkGateway={network}");
        let mut arguments = vec![
            "upgrade",
            "--install",
            release,
            &chart,
            "--namespace",
            NAMESPACE,
        ];

        let small = [
            "autoscaling.enabled=false",
            "resources.requests.cpu=10m",
            "resources.requests.memory=40Mi",
        ];
        for value in [&network, "imagePullPolicy=IfNotPresent"]
            .into_iter()
            .chain(small)
        {
            arguments.extend(["--set", value]);
        }
        self.helm.run(Some(&self.node.kubeconfig()), &arguments)?;
        let status = serde_json::json!({"status": {"loadBalancer": {"ingress": [{"ip": self.node.address()?}]}}});
        let patch = [
            "patch",
            "service",
            release,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status.to_string(),
        ];

        self.node
            .kubectl(&[&["--namespace", NAMESPACE], &patch[..]].concat())?;
        self.rolled_out(NAMESPACE)
    }

    /// Rolls a release back to its previous revision, and waits until that is rolled out.
    ///
    /// # Errors
    /// If Helm fails.
    pub fn roll_back(&self, release: &str) -> Result<()> {
        let arguments = [
            "rollback",
            release,
            "--namespace",
            NAMESPACE,
            "--wait",
            "--timeout=120s",
        ];
        let outcome = self.helm.run(Some(&self.node.kubeconfig()), &arguments);
        outcome.map(drop).with_context(|| self.describe(NAMESPACE))
    }

    /// Uninstalls a release.
    ///
    /// # Errors
    /// If Helm fails.
    pub fn uninstall(&self, release: &str) -> Result<()> {
        let arguments = ["uninstall", release, "--namespace", NAMESPACE, "--wait"];
        self.helm
            .run(Some(&self.node.kubeconfig()), &arguments)
            .map(drop)
    }

    /// Applies objects.
    ///
    /// # Errors
    /// If one is rejected.
    pub fn apply(&self, objects: &[Value]) -> Result<()> {
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.node.apply(&documents.join("\n---\n"))
    }

    /// Installs the bookshop, and waits until all of it is ready.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn bookshop(&self, root: &Path) -> Result<()> {
        self.apply(&pods::objects(root)?)?;
        for namespace in [pods::NAMESPACE, pods::OUTSIDE, pods::GATEWAY] {
            self.rolled_out(namespace)?;
        }
        Ok(())
    }

    /// Waits until every Deployment of a namespace is rolled out.
    ///
    /// # Errors
    /// On a timeout, with the namespace's pods.
    pub fn rolled_out(&self, namespace: &str) -> Result<()> {
        let timeout = format!("--timeout={}s", WAIT_TIMEOUT.as_secs());
        let outcome = self.node.kubectl(&[
            "--namespace",
            namespace,
            "rollout",
            "status",
            "deployment",
            &timeout,
        ]);
        outcome.map(drop).with_context(|| self.describe(namespace))
    }

    /// Waits until a pod is ready.
    ///
    /// # Errors
    /// On a timeout, with the namespace's pods.
    pub fn ready(&self, namespace: &str, pod: &str) -> Result<()> {
        let pod = format!("pod/{pod}");
        let timeout = format!("--timeout={}s", WAIT_TIMEOUT.as_secs());
        let outcome = self.node.kubectl(&[
            "--namespace",
            namespace,
            "wait",
            "--for=condition=Ready",
            &pod,
            &timeout,
        ]);
        outcome.map(drop).with_context(|| self.describe(namespace))
    }

    /// Stops the node, starts it again, and waits until every pod of these namespaces is ready in
    /// new containers. Until the kubelet has updated a pod, the API server shows it as ready, with
    /// the address and the containers that ended with the node.
    ///
    /// # Errors
    /// On a timeout, with the namespace's pods.
    pub async fn reboot(&mut self, namespaces: &[&str]) -> Result<()> {
        let mut ended = BTreeSet::new();

        for namespace in namespaces {
            for pod in self.pods(namespace)? {
                ended.extend(containers(&pod).map(str::to_owned));
            }
        }

        self.node.reboot()?;
        let deadline = Instant::now() + WAIT_TIMEOUT;

        for namespace in namespaces {
            while !self
                .pods(namespace)?
                .iter()
                .all(|pod| runs_without(pod, &ended))
            {
                ensure!(
                    Instant::now() < deadline,
                    "pods were not started again: {}",
                    self.describe(namespace)
                );
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }

        Ok(())
    }

    fn pods(&self, namespace: &str) -> Result<Vec<Value>> {
        match self
            .node
            .get(namespace, &["pods"])?
            .get_mut("items")
            .map(Value::take)
        {
            Some(Value::Array(pods)) => Ok(pods),
            other => bail!("pods of {namespace} are not a list: {other:?}"),
        }
    }

    /// A description of a namespace's pods for errors.
    fn describe(&self, namespace: &str) -> String {
        let seen = |arguments: &[&str]| {
            self.node
                .kubectl(arguments)
                .unwrap_or_else(|error| format!("{error:#}"))
        };
        let pods = seen(&["--namespace", namespace, "get", "pods", "--output=wide"]);
        let events = seen(&[
            "--namespace",
            namespace,
            "get",
            "events",
            "--sort-by=.lastTimestamp",
        ]);

        let events: Vec<&str> = events.lines().rev().take(15).collect();
        format!(
            "{pods}\n{}",
            events.into_iter().rev().collect::<Vec<_>>().join("\n")
        )
    }

    /// The address of a pod.
    ///
    /// # Errors
    /// If it has none.
    pub fn address(&self, namespace: &str, pod: &str, port: u16) -> Result<SocketAddr> {
        let pod = self.node.get(namespace, &["pod", pod])?;
        let ip = pod
            .pointer("/status/podIP")
            .and_then(Value::as_str)
            .context("the pod has no address")?;
        Ok(SocketAddr::new(ip.parse()?, port))
    }

    /// The address of a Service.
    ///
    /// # Errors
    /// If it has none.
    pub fn service(&self, namespace: &str, name: &str, port: u16) -> Result<SocketAddr> {
        let service = self.node.get(namespace, &["service", name])?;
        let ip = service
            .pointer("/spec/clusterIP")
            .and_then(Value::as_str)
            .context("the Service has no address")?;
        Ok(SocketAddr::new(ip.parse()?, port))
    }

    /// Starts a [`pods::client`] and waits until it sends requests.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn client(&self, namespace: &str, name: &str, rate: u32, targets: &[String]) -> Result<()> {
        self.apply(&[pods::client(namespace, name, rate, targets)])?;
        self.ready(namespace, name)
    }
}

/// The counts of a client at an address, without the API server.
///
/// # Errors
/// If it does not respond.
pub async fn counted(client: SocketAddr) -> Result<Tally> {
    Ok(serde_json::from_str(
        &client::get(client, "client", "/", &[]).await?.body,
    )?)
}

/// Waits until a client has sent this number of requests more than `before`, and returns its
/// counts.
///
/// # Errors
/// If it sends no requests.
pub async fn more(client: SocketAddr, before: &Tally, requests: u64) -> Result<Tally> {
    let end = Instant::now() + WAIT_TIMEOUT;
    loop {
        let now = counted(client).await?;
        let requested = now.asked.saturating_sub(before.asked);
        if requested >= requests {
            return Ok(now);
        }
        ensure!(
            Instant::now() < end,
            "{client} asked {requested} times in {WAIT_TIMEOUT:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
