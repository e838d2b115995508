//! `navarch shadow` beside a real istiod on a real API server, if `scripts/istiod` has built it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use navarch_testkit::cluster::{Cluster, World};
use navarch_testkit::istio::{self, Istiod, IstiodConfig};
use navarch_testkit::skip::skip_test;
use navarch_testkit::{client, wait};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::proxy::{Reaction, Sidecar, connect};

/// The mesh config of istiod, and of the ConfigMap that the shadow reads.
const MESH: &str =
    "accessLogFile: /dev/stdout\ndefaultConfig: {holdApplicationUntilProxyStarts: true}\n";
/// The objects beside the services, VirtualServices and DestinationRules of the world.
const FURTHER: &str = include_str!("objects.yaml");
const SERVICES: usize = 40;
const SIDECARS: usize = 6;

/// A cluster with istiod and sidecars.
struct Bed {
    istiod: Istiod,
    kubeconfig: PathBuf,
    /// Sidecars that are connected to istiod.
    _sidecars: Vec<Sidecar>,
    cluster: Cluster,
    /// The pods of the sidecars.
    pods: Vec<Value>,
    folder: TempDir,
}

impl Bed {
    async fn start(program: &Path) -> Self {
        let world = World {
            services: SERVICES,
            pods: 2,
            rules: SERVICES / 2,
            namespaces: 3,
            ..World::default()
        };
        let cluster = Cluster::start_with(World::cluster_config()).await.unwrap();
        cluster
            .apply_crds(Path::new(env!("CARGO_MANIFEST_DIR")))
            .unwrap();
        cluster.seed(world).await.unwrap();
        cluster.wait_seen(SERVICES).await.unwrap();
        cluster.apply(FURTHER).unwrap();
        cluster.apply(&mesh_config_map()).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let mesh = folder.path().join("mesh.yaml");
        std::fs::write(&mesh, MESH).unwrap();
        let kubeconfig = cluster.admin_kubeconfig();
        let log = folder.path().join("istiod.log");
        let config = IstiodConfig {
            folder: program,
            kubeconfig: &kubeconfig,
            mesh_config: &mesh,
            log: &log,
            variables: &[],
            has_tls: true,
        };
        let istiod = Istiod::start(config).await.unwrap();

        let mut sidecars = Vec::new();
        let pods: Vec<Value> = (0..SIDECARS).map(|service| world.pod(service, 0)).collect();
        for pod in &pods {
            sidecars.push(connected(&istiod, pod).await);
        }
        let http = istiod.http;
        wait::until("istiod lists the sidecars", async || {
            let page = client::get(http, "localhost", "/debug/adsz", &[]).await;
            let body = page.map(|reply| reply.body).unwrap_or_default();
            let page: Value = serde_json::from_str(&body).unwrap_or_default();
            page["totalClients"] == SIDECARS
        })
        .await;

        Self {
            istiod,
            kubeconfig,
            _sidecars: sidecars,
            cluster,
            pods,
            folder,
        }
    }

    /// The report by istiod's plaintext port with further arguments, and the exit code.
    async fn shadow(&self, further: &[&str]) -> (Value, i32) {
        self.shadow_at(self.istiod.xds, further).await
    }

    /// The report by a port of istiod's, and the exit code.
    async fn shadow_at(&self, xds: SocketAddr, further: &[&str]) -> (Value, i32) {
        let mut command = Command::new("timeout");
        command
            .args(["120", env!("CARGO_BIN_EXE_navarch"), "shadow", "-o", "json"])
            .arg(format!("--address={}", self.istiod.http))
            .arg(format!("--xds-address={xds}"))
            .arg("--settle=1s")
            .args(further)
            .env_clear()
            .env("KUBECONFIG", &self.kubeconfig);

        let output = spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|_| panic!("{output:?}"));
        (report, output.status.code().unwrap())
    }
}

impl Bed {
    /// The files with istiod's root, and with a token of the service account of a sidecar, by the
    /// namespace and name of the account.
    async fn credentials(&self, namespace: &str, account: &str) -> [String; 2] {
        let writer = self.cluster.writer().await.unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": account, "namespace": namespace },
        });
        writer.put(&object).await.unwrap();

        let map = format!("/api/v1/namespaces/{namespace}/configmaps/istio-ca-root-cert");
        let root = wait::until_some("istiod publishes its root", async || {
            let map = writer.get(&map).await.unwrap_or_default();
            let root = map["data"]["root-cert.pem"].as_str().map(str::to_owned);
            wait::wanted(root.unwrap_or_default(), |root| !root.is_empty())
        })
        .await;

        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "audiences": ["istio-ca"] },
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let issuing = self
            .cluster
            .call("POST", &path, "application/json", &request);
        let issued = issuing.await.unwrap();
        let token = issued["status"]["token"].as_str().unwrap();

        let files = [("ca.pem", root.as_str()), ("token", token)];
        files.map(|(name, text)| {
            let file = self.folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.display().to_string()
        })
    }
}

/// Connects the sidecar of a pod.
async fn connected(istiod: &Istiod, pod: &Value) -> Sidecar {
    let metadata = &pod["metadata"];
    let labels = metadata["labels"].as_object().unwrap();
    let labels: Vec<(&str, &str)> = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    connect(
        istiod.xds,
        metadata["name"].as_str().unwrap(),
        metadata["namespace"].as_str().unwrap(),
        pod["status"]["podIP"].as_str().unwrap(),
        &labels,
        Reaction::Accept,
    )
    .await
}

fn mesh_config_map() -> String {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "istio", "namespace": "istio-system" },
        "data": { "mesh": MESH },
    });
    map.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_of_a_real_istiod_finds_only_what_differs() {
    let Some(program) = istio::istiod() else {
        skip_test("scripts/istiod has built no istiod");
        return;
    };
    let bed = Bed::start(&program).await;

    let (report, code) = bed.shadow(&[]).await;
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["compared"], SIDECARS, "{report:#}");

    // With another setting on one side, the field is named, at every sidecar.
    let (report, code) = bed.shadow(&["--env=PILOT_HTTP10=true"]).await;
    assert_eq!(code, 1, "{report:#}");
    let groups = report["groups"].as_array().unwrap();
    let group = groups
        .iter()
        .find(|group| group["examples"].to_string().contains("acceptHttp10"));
    let group = group.unwrap_or_else(|| panic!("no acceptHttp10 in {report:#}"));
    assert_eq!(group["proxies"].as_array().unwrap().len(), SIDECARS);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_token_gets_the_answers_for_its_own_proxy_alone() {
    let Some(program) = istio::istiod() else {
        skip_test("scripts/istiod has built no istiod");
        return;
    };
    let bed = Bed::start(&program).await;
    let name = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
    let proxy_of = |pod: &Value| {
        let proxy = format!("{}.{}", name(pod, "name"), name(pod, "namespace"));
        format!("--proxy={proxy}")
    };
    let [own, other, ..] = bed.pods.as_slice() else {
        panic!("{:?}", bed.pods)
    };
    // Sidecars of this test have the name of their pod as service account.
    let [ca, token] = bed
        .credentials(&name(own, "namespace"), &name(own, "name"))
        .await;
    let ca = format!("--xds-ca-file={ca}");
    let token = format!("--xds-token-file={token}");
    let secure = bed.istiod.secure.unwrap();

    let (report, code) = bed.shadow_at(secure, &[&ca, &token, &proxy_of(own)]).await;
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["compared"], 1, "{report:#}");

    let (report, code) = bed
        .shadow_at(secure, &[&ca, &token, &proxy_of(other)])
        .await;
    assert_eq!(code, 2, "{report:#}");
    let reason = report["failed"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("service account"), "{report:#}");
}
