//! A node in ambient mode: pods without sidecars, whose traffic a real ztunnel forwards.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use navarch_testkit::guard::Guard;
use navarch_testkit::process::Process;
use navarch_testkit::wait::until;
use serde_json::{Value, json};

use crate::cni::Enrolled;
use crate::pod::{PORT, send_command};
use crate::world::{self, SERVICE, Variables, World, object};
use crate::ztunnel::{Asks, Ztunnel, ZtunnelConfig, capture};

/// The pods, with their application and service account.
const PODS: [(&str, &str, &str); 4] = [
    ("client", "client", "client"),
    ("stranger", "stranger", "stranger"),
    ("web-one", "web", "web"),
    ("web-two", "web", "web"),
];
/// Settings of the control plane. It creates no Deployments for gateways, since no kubelet would
/// run them.
pub(crate) const NODE_VARIABLES: Variables<'_> = &[
    ("PILOT_ENABLE_AMBIENT", "true"),
    ("CA_TRUSTED_NODE_ACCOUNTS", "istio-system/ztunnel"),
    ("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "false"),
];

/// A pod's application. It is killed when dropped.
pub(crate) struct App {
    pub(crate) space: String,
    pub(crate) socket: PathBuf,
    _process: Process,
    _guard: Guard,
}

/// The node. Dropping it stops everything.
pub(crate) struct Node {
    /// Stopped before the namespaces are removed.
    pub(crate) ztunnel: Ztunnel,
    apps: BTreeMap<&'static str, App>,
    pub(crate) world: World,
    program: PathBuf,
    /// ztunnel's network namespace.
    space: String,
}

impl Node {
    /// Starts the control plane, the pods and ztunnel.
    pub(crate) async fn start(program: PathBuf) -> Result<Self> {
        let world = World::empty(NODE_VARIABLES).await?;
        Self::start_in(world, program, None).await
    }

    /// The same with an API server that has started, and with certificates of this lifetime in
    /// place of a day.
    pub(crate) async fn start_in(
        mut world: World,
        program: PathBuf,
        lifetime: Option<Duration>,
    ) -> Result<Self> {
        world.lifetime = lifetime;
        define_gateways(&world)?;
        for object in objects(&world)? {
            world.writer().put(&object).await?;
        }

        world = world.with_control_plane().await?;
        let mut apps = BTreeMap::new();
        for (name, ..) in PODS {
            apps.insert(name, start_app(&mut world, name)?);
        }

        let space = world.space("ztunnel")?;
        let ztunnel = start_ztunnel(&world, &space, &program, &apps, Asks::ForAll).await?;
        Ok(Self {
            ztunnel,
            apps,
            world,
            program,
            space,
        })
    }

    /// Replaces ztunnel by another one, which gets the existing pods.
    pub(crate) async fn replace_ztunnel(self, asks: Asks) -> Result<Self> {
        let Self {
            ztunnel,
            apps,
            world,
            program,
            space,
        } = self;
        drop(ztunnel);
        let ztunnel = start_ztunnel(&world, &space, &program, &apps, asks).await?;
        Ok(Self {
            ztunnel,
            apps,
            world,
            program,
            space,
        })
    }

    /// The command socket of a pod's application.
    pub(crate) fn socket(&self, name: &str) -> Result<PathBuf> {
        Ok(self
            .apps
            .get(name)
            .context("the node has no such pod")?
            .socket
            .clone())
    }

    /// Sends a command to the application of a pod.
    pub(crate) async fn app(&self, name: &str, order: &Value) -> Result<Value> {
        send_command(&self.socket(name)?, order).await
    }

    /// Sends a request from a pod, and returns the name of the pod that responds.
    pub(crate) async fn ask(&self, from: &str, host: &str, path: &str) -> Result<String> {
        let answer = self
            .app(from, &json!({"op": "get", "host": host, "path": path}))
            .await?;
        let body = answer["body"].as_str().unwrap_or_default();
        ensure!(answer["status"] == 200, "{answer}");
        Ok(body.split(' ').next().unwrap_or_default().to_owned())
    }

    /// Whether the service responds to a pod.
    pub(crate) async fn is_served(&self, from: &str) -> bool {
        self.ask(from, SERVICE, "/").await.is_ok()
    }

    /// Waits until the service responds to a pod, or no longer does.
    pub(crate) async fn wait_served(&self, from: &str, served: bool, why: &str) {
        until(&format!("{why}: {from} is served: {served}"), async || {
            self.is_served(from).await == served
        })
        .await;
    }

    /// Creates or replaces an object.
    pub(crate) async fn put(&self, object: &Value) -> Result<()> {
        self.world.writer().put(object).await
    }

    /// The EndpointSlice of the service without its second pod.
    pub(crate) fn without_web_two(&self) -> Result<Value> {
        endpoints(&self.world, &["web-one"])
    }

    /// Deletes the second pod of the service from the cluster; its application keeps running.
    pub(crate) async fn delete_web_two(&self) -> Result<()> {
        self.world
            .writer()
            .delete(&pod("web-two", "web", "web", self.address("web-two")?))
            .await
    }

    /// Stops that application; the CNI removes the pod from ztunnel.
    pub(crate) fn remove_web_two(&mut self) -> Result<()> {
        self.apps.remove("web-two");
        self.ztunnel.remove("web-two-1")
    }

    /// The address of a pod.
    pub(crate) fn address(&self, name: &str) -> Result<Ipv4Addr> {
        self.world.address(name)
    }

    /// The end of the output of ztunnel and the control plane.
    pub(crate) fn output(&self) -> String {
        [self.ztunnel.output(), self.world.output()]
            .map(|text| last(&text, 6000).to_owned())
            .join("\n")
    }
}

/// The end of a text.
pub(crate) fn last(text: &str, bytes: usize) -> &str {
    text.get(text.len().saturating_sub(bytes)..).unwrap_or(text)
}

/// Starts the application of a pod, with traffic captured for ztunnel.
pub(crate) fn start_app(world: &mut World, name: &'static str) -> Result<App> {
    let space = world.space(name)?;
    capture(&space)?;
    let folder = world.folder().join(name);
    std::fs::create_dir(&folder)?;
    let program = world.folder().join("pod");
    let socket = folder.join("app");
    let words = ["netns", "exec", &space].map(str::to_owned);
    let own = [
        program.display().to_string(),
        name.to_owned(),
        PORT.to_string(),
        socket.display().to_string(),
    ];

    let process = Process::start(
        name,
        Path::new("ip"),
        &[&words[..], &own].concat(),
        &folder.join("app.log"),
    )?;

    let guard = Guard::over(&[process.pid()], None)?;
    Ok(App {
        space,
        socket,
        _process: process,
        _guard: guard,
    })
}

/// Starts a ztunnel with the existing pods.
async fn start_ztunnel(
    world: &World,
    space: &str,
    program: &Path,
    apps: &BTreeMap<&'static str, App>,
    asks: Asks,
) -> Result<Ztunnel> {
    let enrolled = |name: &str| {
        let (_, _, account) = PODS.into_iter().find(|(pod, ..)| *pod == name)?;
        let space = apps.get(name)?.space.clone();
        Some(Enrolled {
            name: format!("{name}-1"),
            namespace: "shop",
            account: account.to_owned(),
            space,
        })
    };

    let pods: Vec<Enrolled> = apps.keys().filter_map(|name| enrolled(name)).collect();
    start_ztunnel_with(world, space, program, &pods, asks).await
}

/// Starts a ztunnel with these pods.
pub(crate) async fn start_ztunnel_with(
    world: &World,
    space: &str,
    program: &Path,
    pods: &[Enrolled],
    asks: Asks,
) -> Result<Ztunnel> {
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "ztunnel-1"}});
    let token = world.token("istio-system", "ztunnel", bound).await?;
    let folder = tempfile::tempdir_in(world.folder())?.keep();
    let config = ZtunnelConfig {
        program,
        space,
        folder: &folder,
        ip: world.address("ztunnel")?,
        token: &token,
        root: world.root(),
        lifetime: world.lifetime,
        asks,
        pods,
    };

    tokio::task::block_in_place(|| Ztunnel::start(&config))
}

/// Installs the CRDs of the Gateway API that waypoints need.
pub(crate) fn define_gateways(world: &World) -> Result<()> {
    for (kind, plural, scope) in [
        ("GatewayClass", "gatewayclasses", "Cluster"),
        ("Gateway", "gateways", "Namespaced"),
    ] {
        let definition = navarch_testkit::cluster::gateway_api_definition(kind, plural, scope);
        world.cluster().apply(&definition.to_string())?;
    }

    world.cluster().wait_for_crds()
}

/// A pod after the kubelet and the CNI have started it.
pub(crate) fn pod(name: &str, app: &str, account: &str, ip: Ipv4Addr) -> Value {
    let namespace = if app == "ztunnel" {
        "istio-system"
    } else {
        "shop"
    };
    let annotations = json!({"ambient.istio.io/redirection": "enabled"});
    world::pod(
        namespace,
        name,
        account,
        ip,
        &json!({"labels": {"app": app}, "annotations": annotations}),
    )
}

/// The endpoints of the service.
fn endpoints(world: &World, pods: &[&'static str]) -> Result<Value> {
    let with_address = |name: &&'static str| Ok((*name, world.address(name)?));
    let pods = pods.iter().map(with_address).collect::<Result<Vec<_>>>()?;
    Ok(world::endpoint_slice("web", PORT, &pods))
}

/// The service, with the waypoint's label if `waypoint` is set.
pub(crate) fn service(waypoint: bool) -> Value {
    let mut service = world::service();
    if waypoint {
        service["metadata"]["labels"] = json!({"istio.io/use-waypoint": "way"});
    }
    service
}

/// The initial objects.
fn objects(world: &World) -> Result<Vec<Value>> {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let account = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    let mut all = vec![
        namespace("istio-system", json!({})),
        namespace("shop", json!({"istio.io/dataplane-mode": "ambient"})),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}),
        account("istio-system", "ztunnel"),
        pod("ztunnel", "ztunnel", "ztunnel", world.address("ztunnel")?),
    ];
    for (name, app, of) in PODS {
        all.extend([
            account("shop", of),
            pod(name, app, of, world.address(name)?),
        ]);
    }
    all.extend([service(false), endpoints(world, &["web-one", "web-two"])?]);
    Ok(all)
}

/// The Gateway of a waypoint with this name, with the objects that its deployment would create.
pub(crate) fn waypoint(world: &World, name: &'static str) -> Result<Vec<Value>> {
    let listeners = json!([{"name": "mesh", "port": 15008, "protocol": "HBONE"}]);
    let spec = json!({"gatewayClassName": "istio-waypoint", "listeners": listeners});
    let api = "gateway.networking.k8s.io/v1";
    let mut gateway = object(api, "Gateway", "shop", name, "spec", spec);
    gateway["status"] = waypoint_status(name);

    let mut all = deployed_waypoint(world, name)?;
    all.push(gateway);
    Ok(all)
}

/// The status of the Gateway of a waypoint whose proxy runs.
pub(crate) fn waypoint_status(name: &str) -> Value {
    let host = format!("{name}.shop.svc.cluster.local");
    json!({"addresses": [{"type": "Hostname", "value": host}]})
}

/// The objects that the deployment of a waypoint creates.
pub(crate) fn deployed_waypoint(world: &World, name: &'static str) -> Result<Vec<Value>> {
    let labels = json!({
        "gateway.networking.k8s.io/gateway-name": name, "gateway.networking.k8s.io/gateway-class-name": "istio-waypoint",
        "gateway.istio.io/managed": "istio.io-mesh-controller",
    });
    let address = world.address(name)?;
    let mut pod = pod(name, name, name, address);
    pod["metadata"]["labels"] = labels.clone();
    pod["metadata"]["annotations"] = json!({});

    let ports =
        json!([{"name": "mesh", "port": 15008, "targetPort": 15008, "appProtocol": "hbone"}]);
    let spec =
        json!({"selector": {"gateway.networking.k8s.io/gateway-name": name}, "ports": ports});
    let mut service = object("v1", "Service", "shop", name, "spec", spec);
    service["metadata"]["labels"] = labels;
    let mut slice = world::endpoint_slice(name, 15008, &[(name, address)]);
    slice["ports"][0]["name"] = json!("mesh");

    Ok(vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "shop"}}),
        pod,
        service,
        slice,
    ])
}
