//! The mesh that moves, and what its cluster does after each step: the gateway controller deploys
//! the waypoint, a rolling restart replaces the pod, and istio-cni hands the new one to ztunnel.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use super::callers::{Expected, HOST, Request};
use super::meshes::MeshCase;
use crate::ambient::{members, workloads};
use crate::cni::Enrolled;
use crate::node::{
    self, App, define_gateways, deployed_waypoint, start_app, start_ztunnel_with, waypoint_status,
};
use crate::pod::{PORT, Pod, PodKind, send_command};
use crate::world::{self, CALLERS_NAMESPACE, NAMESPACE, Variables, World};
use crate::ztunnel::{Asks, Ztunnel};

/// Settings of the control plane. It creates no Deployments for gateways, since no kubelet would
/// run them.
const VARIABLES: Variables<'_> = &[
    ("PILOT_ENABLE_AMBIENT", "true"),
    ("NAVARCH_SIDECAR_WAYPOINTS", "true"),
    ("CA_TRUSTED_NODE_ACCOUNTS", "istio-system/ztunnel"),
    ("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "false"),
];
/// The pods of the workload that moves: with a sidecar, and its replacement.
const BEFORE: &str = "web";
const AFTER: &str = "web-two";
const WAYPOINT: &str = "waypoint";
/// The time without a request after which a pod without endpoints is deleted.
const QUIET: Duration = Duration::from_secs(2);
/// How long the deleted pod may take to end.
const END: Duration = Duration::from_secs(20);

/// A mesh in which a namespace moves. Dropping it stops everything.
pub(super) struct Moving {
    pub(super) mesh: MeshCase,
    /// Stopped before the namespaces are removed.
    ztunnel: Ztunnel,
    sidecars: Vec<(&'static str, Pod)>,
    /// The pod that moves, until it is replaced.
    before: Option<Pod>,
    after: Option<App>,
    waypoint: Option<Pod>,
    /// The caller in ambient mode.
    walker: Option<App>,
    world: World,
}

impl Moving {
    /// Starts a mesh with sidecars.
    pub(super) async fn start(mesh: MeshCase, program: &Path) -> Result<Self> {
        let world = World::empty(VARIABLES).await?;
        define_gateways(&world)?;
        for object in objects(&world, mesh)?.iter().chain(&(mesh.objects)()) {
            world.writer().put(object).await?;
        }
        let mut world = world.with_control_plane().await?;

        let mut sidecars = Vec::new();
        for name in ["caller", "intruder"] {
            sidecars.push((name, world.pod(name, PodKind::HboneSidecar).await?));
        }
        let before = world.pod(BEFORE, PodKind::HboneSidecar).await?;
        let walker = mesh
            .has_ambient_caller
            .then(|| start_app(&mut world, "walker"))
            .transpose()?;

        let space = world.space("ztunnel")?;
        let enrolled = walker.as_ref().map(|app| Enrolled {
            name: "walker-1".to_owned(),
            namespace: CALLERS_NAMESPACE,
            account: "walker".to_owned(),
            space: app.space.clone(),
        });
        let enrolled: Vec<Enrolled> = enrolled.into_iter().collect();
        let starting = start_ztunnel_with(&world, &space, program, &enrolled, Asks::ForAll);
        let ztunnel = starting.await?;

        let moving = Self {
            mesh,
            ztunnel,
            sidecars,
            before: Some(before),
            after: None,
            waypoint: None,
            walker,
            world,
        };
        let sidecars = moving.sidecars.iter().map(|(_, pod)| pod);
        for pod in sidecars.chain(&moving.before) {
            pod.wait_ready().await?;
        }
        Ok(moving)
    }

    /// The pods that send requests.
    pub(super) fn callers(&self) -> impl Iterator<Item = &'static str> {
        let sidecars = self.sidecars.iter().map(|(name, _)| *name);
        sidecars.chain(self.walker.as_ref().map(|_| "walker"))
    }

    /// The command socket of a caller.
    pub(super) fn socket(&self, caller: &str) -> Result<PathBuf> {
        let sidecar = self.sidecars.iter().find(|(name, _)| *name == caller);
        let of_sidecar = sidecar.map(|(_, pod)| pod.socket());
        let of_walker = || self.walker.as_ref().map(|app| app.socket.clone());
        of_sidecar.or_else(of_walker).context("no such caller")
    }

    /// The file as long as which callers send requests.
    pub(super) fn begin(&self) -> Result<PathBuf> {
        let file = self.world.folder().join("moving");
        std::fs::write(&file, "")?;
        Ok(file)
    }

    /// Waits until the mesh behaves as the walker says, at the first time: proxies have got their
    /// configuration.
    pub(super) async fn wait_served(&self) -> Result<()> {
        let order = json!({"op": "get", "host": HOST, "path": "/open"});
        for caller in ["caller", "walker"] {
            if !self.callers().any(|name| name == caller) {
                continue;
            }
            let socket = self.socket(caller)?;
            until(&format!("{caller} is served"), async || {
                let answer = send_command(&socket, &order).await;
                answer.is_ok_and(|answer| answer["status"] == 200)
            })
            .await;
        }
        Ok(())
    }

    /// Waits until the pods of the service have answered so many further requests.
    pub(super) async fn wait_answered(&self, further: u64) -> Result<()> {
        let of_before = self.before.as_ref().map(Pod::socket);
        let of_after = self.after.as_ref().map(|app| app.socket.clone());
        let sockets: Vec<PathBuf> = of_before.into_iter().chain(of_after).collect();
        let count = async || -> Result<u64> {
            let mut sum = 0;
            for socket in &sockets {
                sum += answered(socket).await?;
            }
            Ok(sum)
        };

        let enough = count().await? + further;
        until("the service answers requests", async || {
            count().await.is_ok_and(|sum| sum >= enough)
        })
        .await;
        Ok(())
    }

    /// The walker's verdicts on all requests of the mesh, by the control plane.
    pub(super) async fn verdicts(&self) -> Result<Vec<(Request, Expected)>> {
        let mut verdicts = Vec::new();
        for request in self.mesh.requests {
            let pod = format!("{}-1.{CALLERS_NAMESPACE}", request.caller);
            let destination = request.destination();
            let method = format!("--method={}", request.method);
            let address = format!("--address={}", self.world.monitoring()?);
            let arguments = [
                "why",
                "not",
                &pod,
                &destination,
                &method,
                &address,
                "-ojson",
            ];
            let output = run(&arguments).await?;
            let answer: Value =
                serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
            verdicts.push((*request, Expected::of(&answer)?));
        }
        Ok(verdicts)
    }

    /// Does the next step, and returns what was done; `None` if no step is left.
    pub(super) async fn apply(&self) -> Result<Option<String>> {
        let kubeconfig = self.world.cluster().admin_kubeconfig();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let mut arguments = vec!["migrate", "apply", NAMESPACE, "--next", &kubeconfig];
        let variables: Vec<String> = VARIABLES
            .iter()
            .map(|(name, value)| format!("--env={name}={value}"))
            .collect();
        arguments.extend(variables.iter().map(String::as_str));

        let output = run(&arguments).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{output:?}");
        if text.contains("has no step left") {
            return Ok(None);
        }
        let done = text.lines().find_map(|line| line.split_once(" is done: "));
        let (_, step) = done.with_context(|| format!("no step in {text}"))?;
        Ok(Some(step.to_owned()))
    }

    /// Does what a cluster does after a step.
    pub(super) async fn follow(&mut self, step: &str) -> Result<()> {
        if step.starts_with("create waypoint") {
            self.deploy_waypoint().await
        } else if step.starts_with("restart ") {
            self.restart().await
        } else {
            Ok(())
        }
    }

    /// Fails unless the pod was replaced, and the waypoint exists if the mesh needs one.
    pub(super) fn check_moved(&self) -> Result<()> {
        ensure!(
            self.before.is_none() && self.after.is_some(),
            "nothing was restarted"
        );
        ensure!(
            self.waypoint.is_some() == self.mesh.needs_waypoint,
            "the waypoint"
        );
        Ok(())
    }

    /// The gateway controller, and a kubelet.
    async fn deploy_waypoint(&mut self) -> Result<()> {
        for object in deployed_waypoint(&self.world, WAYPOINT)? {
            self.world.writer().put(&object).await?;
        }
        let pod = self.world.pod(WAYPOINT, PodKind::Waypoint).await?;
        pod.wait_ready().await?;
        self.waypoint = Some(pod);

        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": WAYPOINT, "namespace": NAMESPACE},
            "status": waypoint_status(WAYPOINT),
        });
        self.world.writer().put_status(&gateway).await
    }

    /// A rolling restart: the new pod is ready before the old one leaves.
    async fn restart(&mut self) -> Result<()> {
        // ztunnel's endpoints are the ready pods that the Service selects, not those of slices.
        let starting = pod_after(self.world.address(AFTER)?);
        self.put_ready(&starting, false).await?;
        let app = start_app(&mut self.world, AFTER)?;
        let enrolled = Enrolled {
            name: format!("{AFTER}-1"),
            namespace: NAMESPACE,
            account: BEFORE.to_owned(),
            space: app.space.clone(),
        };
        self.ztunnel.add(&enrolled)?;
        let socket = app.socket.clone();
        self.after = Some(app);
        self.wait_enrolled().await;
        self.put_ready(&starting, true).await?;

        self.put_endpoints(&[BEFORE, AFTER]).await?;
        until("the new pod gets requests", async || {
            answered(&socket).await.is_ok_and(|count| count > 0)
        })
        .await;
        self.put_endpoints(&[AFTER]).await?;
        let leaving = pod_before(self.world.address(BEFORE)?);
        self.put_ready(&leaving, false).await?;

        let old = self.before.take().context("the pod has moved already")?;
        until("the old pod gets no more requests", async || {
            let before = answered(&old.socket()).await.ok();
            tokio::time::sleep(QUIET).await;
            before.is_some() && answered(&old.socket()).await.ok() == before
        })
        .await;
        self.world.writer().delete(&leaving).await?;
        ensure!(old.terminate(END).await?, "the old pod does not end");
        Ok(())
    }

    /// Waits until ztunnel has the new pod and its certificate.
    async fn wait_enrolled(&self) {
        let name = format!("{AFTER}-1");
        let identity = format!("spiffe://cluster.local/ns/{NAMESPACE}/sa/{BEFORE}");
        until("ztunnel has the new pod", async || {
            let config = self.ztunnel.config().await.unwrap_or_default();
            let mut certificates = members(&config["certificates"]).into_iter();
            let is_certified = certificates
                .any(|one| one["identity"] == identity.as_str() && one["state"] == "Available");
            is_certified && workloads(&config).contains(name.as_str())
        })
        .await;
    }

    /// Writes a pod, and whether it is ready.
    async fn put_ready(&self, pod: &Value, is_ready: bool) -> Result<()> {
        let mut pod = pod.clone();
        let status = if is_ready { "True" } else { "False" };
        pod["status"]["conditions"][0]["status"] = json!(status);
        self.world.writer().put(&pod).await
    }

    /// Writes the endpoints of the service.
    async fn put_endpoints(&self, pods: &[&'static str]) -> Result<()> {
        let slice = endpoints(&self.world, pods)?;
        self.world.writer().put(&slice).await
    }

    /// The connections that ztunnel says have failed, but for those that a policy closed, and the end
    /// of its output and the control plane's.
    pub(super) fn output(&self) -> String {
        let of_ztunnel = self.ztunnel.output();
        let failed: Vec<&str> = of_ztunnel
            .lines()
            .filter(|line| line.contains(r#""error":"#) && !line.contains("policy"))
            .collect();
        let failed = failed.join("\n");

        [&failed, &of_ztunnel, &self.world.output()]
            .map(|text| node::last(text, 6000))
            .join("\n")
    }
}

/// Runs the program.
async fn run(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new("timeout");
    command
        .args(["120", env!("CARGO_BIN_EXE_navarch")])
        .args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    if output.status.code() == Some(124) {
        bail!("no result in time: {arguments:?}");
    }
    Ok(output)
}

/// The number of requests that an application has answered.
async fn answered(socket: &Path) -> Result<u64> {
    let counts = send_command(socket, &json!({"op": "counts"})).await?;
    counts["answered"].as_u64().context("a count")
}

fn endpoints(world: &World, pods: &[&'static str]) -> Result<Value> {
    let with_address = |name: &&'static str| Ok((*name, world.address(name)?));
    let pods = pods.iter().map(with_address).collect::<Result<Vec<_>>>()?;
    Ok(world::endpoint_slice("web", PORT, &pods))
}

/// A pod of the Deployment `web`.
fn pod_of_web(name: &str, ip: Ipv4Addr, hash: &str) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{hash}"), "controller": true,
        "uid": "0b5e1c4e-6f5b-4a57-9d2a-3f1f1a5a7c11",
    });
    let labels = json!({"app": "web", "pod-template-hash": hash});
    let metadata = json!({"labels": labels, "ownerReferences": [owner]});
    world::pod(NAMESPACE, name, BEFORE, ip, &metadata)
}

/// The pod with a sidecar.
fn pod_before(ip: Ipv4Addr) -> Value {
    with_sidecar(pod_of_web(BEFORE, ip, "1a"))
}

/// Its replacement, after istio-cni.
fn pod_after(ip: Ipv4Addr) -> Value {
    let mut pod = pod_of_web(AFTER, ip, "2b");
    pod["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("false");
    pod["metadata"]["annotations"] = json!({"ambient.istio.io/redirection": "enabled"});
    pod
}

/// A pod as the injector leaves it.
fn with_sidecar(mut pod: Value) -> Value {
    pod["metadata"]["labels"]["security.istio.io/tlsMode"] = json!("istio");
    pod["metadata"]["labels"]["networking.istio.io/tunnel"] = json!("http");
    pod["metadata"]["annotations"] = json!({"sidecar.istio.io/status": "{}"});
    let env = json!([{"name": "ISTIO_META_ENABLE_HBONE", "value": "true"}]);
    let proxy = json!({"name": "istio-proxy", "image": "proxy", "env": env});
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.push(proxy);
    }
    pod
}

/// A workload with pods of these labels, as the API server accepts it.
fn workload(kind: &str, namespace: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    let container = json!({"name": "app", "image": "app"});
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

/// The objects before the first step, but for policies and routes.
fn objects(world: &World, mesh: MeshCase) -> Result<Vec<Value>> {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let account = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    let injected = json!({"istio-injection": "enabled"});
    let mut all = vec![
        namespace("istio-system", json!({})),
        namespace(NAMESPACE, injected.clone()),
        namespace(CALLERS_NAMESPACE, injected),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "istio-waypoint"},
            "spec": {"controllerName": "istio.io/mesh-controller"},
        }),
        account("istio-system", "ztunnel"),
        node::pod("ztunnel", "ztunnel", "ztunnel", world.address("ztunnel")?),
        workload("DaemonSet", "istio-system", "ztunnel"),
        workload("DaemonSet", "istio-system", "istio-cni-node"),
        workload("Deployment", NAMESPACE, "web"),
        account(NAMESPACE, BEFORE),
        pod_before(world.address(BEFORE)?),
        world::service(),
        endpoints(world, &[BEFORE])?,
    ];

    for name in ["caller", "intruder"] {
        let metadata = json!({"labels": {"app": name}});
        let ip = world.address(name)?;
        let pod = world::pod(CALLERS_NAMESPACE, name, name, ip, &metadata);
        all.extend([account(CALLERS_NAMESPACE, name), with_sidecar(pod)]);
    }
    if mesh.has_ambient_caller {
        let metadata = json!({
            "labels": {"app": "walker", "istio.io/dataplane-mode": "ambient"},
            "annotations": {"ambient.istio.io/redirection": "enabled"},
        });
        let ip = world.address("walker")?;
        let pod = world::pod(CALLERS_NAMESPACE, "walker", "walker", ip, &metadata);
        all.extend([account(CALLERS_NAMESPACE, "walker"), pod]);
    }
    Ok(all)
}
