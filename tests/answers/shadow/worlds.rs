//! `navarch shadow` beside a real istiod on real API servers with the bookshop and random worlds, which
//! `scripts/shadow-worlds` makes and names by `NAVARCH_SHADOW_WORLDS`: no difference is expected that
//! is not documented.

use std::path::{Path, PathBuf};
use std::process::Command;

use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::json::Codec;
use navarch_shadow::twin::Twins;
use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::istio::{self, Istiod, IstiodConfig};
use navarch_testkit::skip::skip_test;
use navarch_testkit::{client, gateway_api, wait};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// The type that a proxy asks for to be listed.
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const WORKLOADS: &str = "type.googleapis.com/istio.workload.Address";
/// Settings of istiod in all worlds: it writes no objects.
const VARIABLE: &str = "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false";

/// The bookshop, or what scripts/mass_worlds has made for one seed.
struct ShadowWorld {
    folder: PathBuf,
    proxies: Vec<Value>,
    /// The environment variables of istiod, as `NAME=VALUE`.
    variables: Vec<String>,
    /// Mesh config.
    mesh: String,
}

impl ShadowWorld {
    /// The worlds in `folder`, by area and seed.
    fn all(folder: &Path) -> Vec<Self> {
        let folders = |parent: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(parent).unwrap();
            let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            folders.sort();
            folders
        };
        let areas = folders(folder);
        let worlds = areas.iter().flat_map(|area| folders(area));
        worlds.map(Self::read).collect()
    }

    fn read(folder: PathBuf) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let variables = text("env");
        let variables = variables.lines().chain([VARIABLE]);
        Self {
            proxies: serde_json::from_str(&text("proxies.yaml")).unwrap(),
            variables: variables.map(str::to_owned).collect(),
            mesh: match text("mesh.yaml") {
                empty if empty.is_empty() => "{}".to_owned(),
                mesh => mesh,
            },
            folder,
        }
    }

    /// Its objects, and those that both control planes need.
    fn objects(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("input.yaml")).unwrap();
        let documents = text.split("\n---\n").filter(|text| !text.trim().is_empty());
        let mut objects: Vec<Value> = documents
            .map(|document| serde_saphyr::from_str(document).unwrap())
            .collect();
        objects.push(self.istiod());
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "istio", "namespace": "istio-system" },
            "data": { "mesh": self.mesh },
        }));
        objects
    }

    /// The pod of istiod, of which the shadow reads the variables.
    fn istiod(&self) -> Value {
        let variable = |text: &String| {
            let (name, value) = text.split_once('=').unwrap();
            json!({ "name": name, "value": value })
        };
        let env: Vec<Value> = self.variables.iter().map(variable).collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "istiod-1", "namespace": "istio-system",
                "labels": { "app": "istiod", "istio.io/rev": "default" },
            },
            "spec": { "containers": [{ "name": "discovery", "image": "istiod", "env": env }] },
        })
    }

    /// Its proxies as istiod's debug pages would list them.
    fn twins(&self) -> Twins {
        let name = |proxy: &Value| {
            let text = |key: &str| proxy[key].as_str().unwrap();
            format!("{}.{}", text("pod"), text("namespace"))
        };
        let client = |proxy: &Value| {
            let mut metadata = json!({
                "NAMESPACE": proxy["namespace"], "INSTANCE_IPS": proxy["ip"],
                "CLUSTER_ID": "Kubernetes",
            });
            let own = proxy["metadata"].as_object().cloned();
            metadata
                .as_object_mut()
                .unwrap()
                .extend(own.unwrap_or_default());
            let locality = proxy["locality"].as_str().unwrap_or_default();
            let mut parts = locality.splitn(3, '/');
            let mut part = || parts.next().unwrap_or_default();
            json!({
                "connectionId": format!("{}-1", name(proxy)), "metadata": metadata,
                "locality": { "region": part(), "zone": part(), "sub_zone": part() },
            })
        };
        let kind = |proxy: &Value| json!({ "proxy": name(proxy), "proxy_type": proxy["type"] });

        let clients: Vec<Value> = self.proxies.iter().map(client).collect();
        let kinds: Vec<Value> = self.proxies.iter().map(kind).collect();
        let mut twins = Twins::default();
        let listed = json!({ "clients": clients });
        twins.add(&listed, &Value::from(kinds), "cluster.local");
        twins
    }
}

/// Writes the objects, and returns how many the API server rejects: the two control planes read the
/// same ones in any case.
async fn write(cluster: &Cluster, world: &ShadowWorld) -> usize {
    let writer = cluster.writer().await.unwrap();
    let mut rejected = 0;
    for mut object in world.objects() {
        let is_namespaced = !matches!(
            object["kind"].as_str(),
            Some("Namespace" | "Node" | "GatewayClass" | "IngressClass")
        );
        if is_namespaced && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
        if let Err(error) = writer.put(&object).await {
            println!("  rejected: {error:#}");
            rejected += 1;
        }
    }
    rejected
}

/// Connects all proxies of a world until the tasks are dropped; returns their number.
async fn connect(istiod: &Istiod, twins: &Twins, tasks: &mut JoinSet<()>) -> usize {
    let codec = Codec::new();
    for twin in twins.twins.values() {
        let channel = Endpoint::from_shared(format!("http://{}", istiod.xds)).unwrap();
        let channel = channel.connect().await.unwrap();
        let mut service = AggregatedDiscoveryServiceClient::new(channel);
        let (requests, outgoing) = mpsc::channel(8);
        let is_ztunnel = twin.kind == "ztunnel";
        let first = DeltaDiscoveryRequest {
            node: Some(twin.node(&codec).unwrap()),
            type_url: if is_ztunnel { WORKLOADS } else { CLUSTERS }.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(first).await.unwrap();

        let outgoing = ReceiverStream::new(outgoing);
        let responses = service.delta_aggregated_resources(outgoing).await.unwrap();
        let mut responses = responses.into_inner();
        tasks.spawn(async move {
            while let Ok(Some(response)) = responses.message().await {
                let acknowledgement = DeltaDiscoveryRequest {
                    type_url: response.type_url,
                    response_nonce: response.nonce,
                    ..DeltaDiscoveryRequest::default()
                };
                if requests.send(acknowledgement).await.is_err() {
                    return;
                }
            }
        });
    }
    twins.twins.len()
}

/// The report on a world, and the exit code.
async fn shadow(istiod: &Istiod, kubeconfig: &Path) -> (Value, i32) {
    let mut command = Command::new("timeout");
    command
        .args(["300", env!("CARGO_BIN_EXE_navarch"), "shadow", "-o", "json"])
        .args(["--sample=0", "--settle=5s"])
        .arg(format!("--address={}", istiod.http))
        .arg(format!("--xds-address={}", istiod.xds))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .env_clear();
    let output = spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|_| panic!("{output:?}"));
    (report, output.status.code().unwrap())
}

/// Compares one world; returns its report if something is unexplained or was not compared.
async fn compare(program: &Path, world: &ShadowWorld) -> Option<Value> {
    let cluster = Cluster::start_with(World::cluster_config()).await.unwrap();
    cluster
        .apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))
        .unwrap();
    cluster.apply(&gateway_api::crds().unwrap()).unwrap();
    let rejected = write(&cluster, world).await;

    let folder = tempfile::tempdir().unwrap();
    let mesh = folder.path().join("mesh.yaml");
    std::fs::write(&mesh, &world.mesh).unwrap();
    let kubeconfig = cluster.admin_kubeconfig();
    let config = IstiodConfig {
        folder: program,
        kubeconfig: &kubeconfig,
        mesh_config: &mesh,
        log: &folder.path().join("istiod.log"),
        variables: &world.variables,
        has_tls: false,
    };
    let istiod = Istiod::start(config).await.unwrap();

    let mut tasks = JoinSet::new();
    let connected = connect(&istiod, &world.twins(), &mut tasks).await;
    wait::until("istiod lists the proxies", async || {
        let page = client::get(istiod.http, "localhost", "/debug/adsz", &[]).await;
        let body = page.map(|reply| reply.body).unwrap_or_default();
        let page: Value = serde_json::from_str(&body).unwrap_or_default();
        page["totalClients"] == connected
    })
    .await;

    let (report, code) = shadow(&istiod, &kubeconfig).await;
    let compared = &report["compared"];
    println!(
        "{}: exit code {code}, {compared} of {connected} proxies compared, {rejected} objects rejected",
        world.folder.display()
    );
    (code != 0 || *compared != connected).then_some(report)
}

#[tokio::test(flavor = "multi_thread")]
async fn worlds_have_no_unexplained_difference() {
    let Some(folder) = std::env::var_os("NAVARCH_SHADOW_WORLDS") else {
        skip_test("scripts/shadow-worlds makes the worlds");
        return;
    };
    let program = istio::istiod().expect("scripts/istiod has built no istiod");
    let worlds = ShadowWorld::all(Path::new(&folder));
    assert!(!worlds.is_empty(), "no worlds in NAVARCH_SHADOW_WORLDS");

    let mut different = Vec::new();
    for world in &worlds {
        if let Some(report) = compare(&program, world).await {
            std::fs::write(world.folder.join("report.json"), format!("{report:#}")).unwrap();
            different.push(world.folder.join("report.json"));
        }
    }
    assert!(different.is_empty(), "differences: {different:?}");
}
