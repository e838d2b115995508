//! Used, denied and allowed edges: the evidence of `navarch scope` over metrics of proxies, the
//! response about it, and what a browser shows.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use axum::body::Bytes;
use navarch_testkit::client::{Reply, get, post, send_body};
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::until_some;
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::{browser, drive};
use crate::proxy::{Reaction, Sidecar, connect};
use crate::{dashboard_with, start};

/// The page of a control plane.
const PAGE: &str = "/debug/view/edges";
/// Maximum size of the evidence in a request.
const MAX_BYTES: usize = 16 << 20;

/// A pod with a sidecar, of a Deployment `web`.
const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: web-1a-x
  generateName: web-1a-
  namespace: bookshop
  labels: {app: web, pod-template-hash: 1a}
  annotations: {sidecar.istio.io/status: "{}"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1a, uid: u, controller: true}]
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: app}, {name: istio-proxy}]}
status: {phase: Running, podIP: 10.7.0.1, podIPs: [{ip: 10.7.0.1}]}
"#;

/// Metrics of its proxy: one service answered, another one denied all requests, and one host is not
/// in the registry.
const METRICS: &str = r#"
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="bookshop",destination_service="catalog.bookshop.svc.cluster.local",response_code="200"} 900
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="bookshop",destination_service="catalog.bookshop.svc.cluster.local",response_code="503",response_flags="UH"} 100
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="bookshop",destination_service="ledger.billing.svc.cluster.local",response_code="403"} 5
istio_requests_total{reporter="source",source_workload="web",source_workload_namespace="bookshop",destination_service="outside.example",response_code="200"} 3
envoy_server_uptime{} 86400
"#;

/// A control plane with one connected sidecar, and the evidence about it.
struct Scene {
    folder: TempDir,
    navarch: Navarch,
    _sidecar: Sidecar,
}

impl Scene {
    async fn start() -> Self {
        let (folder, navarch) = start().await;
        std::fs::write(folder.path().join("mesh/pods.yaml"), POD).unwrap();
        let labels = [("app", "web")];
        let sidecar = connect(
            navarch.xds,
            "web-1a-x",
            "bookshop",
            "10.7.0.1",
            &labels,
            Reaction::Accept,
        );
        let scene = Self {
            _sidecar: sidecar.await,
            folder,
            navarch,
        };
        scene.collect();
        scene
    }

    /// The file with the evidence.
    fn file(&self) -> PathBuf {
        self.folder.path().join("calls.json")
    }

    /// Collects the evidence as an operator does.
    fn collect(&self) {
        let metrics = self.folder.path().join("web.txt");
        std::fs::write(&metrics, METRICS).unwrap();
        let output = Command::new(Path::new(env!("CARGO_BIN_EXE_navarch")))
            .args(["scope", "suggest", "-n", "bookshop", "-o", "json", "--from"])
            .arg(self.folder.path().join("mesh"))
            .arg("--metrics")
            .arg(&metrics)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        std::fs::write(self.file(), output.stdout).unwrap();
    }

    fn evidence(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    async fn ask(&self, query: &str, body: String) -> Reply {
        let path = format!("{PAGE}?{query}");
        post(self.navarch.monitoring, "localhost", &path, body)
            .await
            .unwrap()
    }

    /// The edges of a query, once the pod and the resources of its proxy are known.
    async fn edges(&self, query: &str) -> Value {
        let found = until_some("the workload has allowed edges", async || {
            let whole = self
                .ask("namespace=bookshop&workload=web&allowed", self.evidence())
                .await;
            let value: Value = serde_json::from_str(&whole.body).map_err(|_| whole.body.clone())?;
            let allowed = value["allowed"]["rows"].as_array();
            let is_known = allowed.is_some_and(|rows| has(rows, "reviews.bookshop"));
            is_known.then_some(()).ok_or(whole.body)
        });
        found.await;
        let reply = self.ask(query, self.evidence()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }
}

/// Whether there is an edge to a Service.
fn has(rows: &[Value], service: &str) -> bool {
    rows.iter().any(|row| is_to(row, service))
}

fn is_to(row: &Value, service: &str) -> bool {
    row["to"] == format!("{service}.svc.cluster.local")
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_are_used_denied_or_allowed() {
    let scene = Scene::start().await;
    let found = scene.edges("namespace=bookshop&allowed").await;
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{found}");

    let denied = &rows[0];
    assert!(is_to(denied, "ledger.billing"), "{found}");
    assert_eq!(denied["class"], "denied");
    assert_eq!(denied["denied"], 5);
    assert_eq!(denied["toNamespace"], "billing");

    let used = &rows[1];
    assert!(is_to(used, "catalog.bookshop"), "{found}");
    assert_eq!(used["class"], "used");
    assert_eq!(used["from"], "bookshop/web");
    assert_eq!(used["requests"], 1000);
    assert_eq!(used["failed"], 100);
    let rate = used["perSecond"].as_f64().unwrap();
    assert!((0.011..0.012).contains(&rate), "{rate}");
    assert!(used["lastSeen"].is_string(), "{found}");

    let allowed = found["allowed"]["rows"].as_array().unwrap();
    assert!(has(allowed, "reviews.bookshop"), "{found}");
    assert!(!has(allowed, "catalog.bookshop"), "{found}");
    let is_allowed = |row: &Value| row["class"] == "allowed" && row["lastSeen"].is_null();
    assert!(allowed.iter().all(is_allowed), "{found}");
    assert_eq!(found["sidecars"], 1, "{found}");
    assert_eq!(
        found["replica"], "",
        "without POD_NAME it has no name: {found}"
    );
    let web = serde_json::json!({ "name": "web", "isRead": true });
    assert!(
        found["workloads"].as_array().unwrap().contains(&web),
        "{found}"
    );

    // The other end of an edge sees it, too.
    let billing = scene.edges("namespace=billing").await;
    assert_eq!(billing["total"], 1, "{billing}");
    assert_eq!(billing["counts"]["denied"], 1, "{billing}");
    assert!(billing["allowed"].is_null(), "{billing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_are_for_operators_and_limited() {
    let scene = Scene::start().await;
    let first = scene.edges("namespace=bookshop&limit=1").await;
    assert_eq!(first["total"], 2, "{first}");
    assert_eq!(first["rows"].as_array().unwrap().len(), 1, "{first}");
    let filtered = scene.edges("namespace=bookshop&filter=LEDGER").await;
    assert_eq!(filtered["total"], 1, "{filtered}");
    let another = scene.edges("namespace=bookshop&workload=another").await;
    assert_eq!(another["total"], 0, "{another}");

    let without = scene.ask("namespace=bookshop", String::new()).await;
    let without: Value = serde_json::from_str(&without.body).unwrap();
    assert_eq!(without["isRead"], false, "{without}");
    assert_eq!(without["total"], 0, "{without}");

    let unnamed = scene.ask("", scene.evidence()).await;
    assert_eq!(unnamed.status, 400, "{}", unnamed.body);
    let malformed = scene.ask("namespace=bookshop", "{}".to_owned()).await;
    assert_eq!(malformed.status, 400);
    assert!(
        malformed
            .body
            .contains("is not the JSON output of navarch scope"),
        "{}",
        malformed.body
    );
    // The connection may end before all of the body is written.
    let large = " ".repeat(MAX_BYTES + 1);
    let path = format!("{PAGE}?namespace=bookshop");
    let monitoring = scene.navarch.monitoring;
    if let Ok(large) = post(monitoring, "localhost", &path, large).await {
        assert_eq!(large.status, 413, "{}", large.body);
    }

    let objects = format!("[{}]", vec!["{}"; 300_001].join(","));
    let many = scene.ask("namespace=bookshop", objects).await;
    assert_eq!(many.status, 413, "{}", many.body);
    assert!(many.body.contains("too many edges"), "{}", many.body);

    assert_eq!(status_of_get(monitoring, &path).await, 405);
    let rebound = post(monitoring, "rebound.example", &path, scene.evidence())
        .await
        .unwrap();
    assert_eq!(rebound.status, 401, "{}", rebound.body);
    let with_header = async |header: (&str, &str)| {
        let body = Bytes::from(scene.evidence());
        let headers = [header];
        let sent = send_body("POST", monitoring, "localhost", &path, &headers, body);
        sent.await.unwrap().status.as_u16()
    };
    let from_another_site = with_header(("sec-fetch-site", "cross-site")).await;
    assert_eq!(from_another_site, 401);
    let of_a_form = with_header(("content-type", "text/plain")).await;
    assert_eq!(of_a_form, 415);
}

async fn status_of_get(server: SocketAddr, path: &str) -> u16 {
    let reply = get(server, "localhost", path, &[]).await.unwrap();
    reply.status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_adds_the_evidence_of_its_file() {
    let scene = Scene::start().await;
    let logs = tempfile::tempdir().unwrap();
    let file = format!("--evidence={}", scene.file().display());
    let (_dashboard, own) = dashboard_with(&[&scene.navarch], logs.path(), &[file]).await;

    let path = format!("{PAGE}?namespace=bookshop");
    let total = async |body: String| {
        let reply = post(own, "localhost", &path, body).await.unwrap();
        let value: Value = serde_json::from_str(&reply.body).unwrap();
        value["total"].clone()
    };
    assert_eq!(total(String::new()).await, 2);
    let none = r#"{"evidence":{"format":1,"workloads":{}}}"#;
    assert_eq!(total(none.to_owned()).await, 0, "that of a user precedes");

    std::fs::write(scene.file(), none).unwrap();
    assert_eq!(total(String::new()).await, 0, "the file is read anew");
    std::fs::write(scene.file(), "{}").unwrap();
    let wrong = post(own, "localhost", &path, String::new()).await.unwrap();
    assert_eq!(wrong.status, 502);
    assert!(wrong.body.contains("calls.json"), "{}", wrong.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_are_drawn_and_listed_in_a_browser() {
    let Some(packages) = browser() else { return };
    let scene = Scene::start().await;
    scene.edges("namespace=bookshop").await;
    drive("edges.js", &packages, scene.folder.path(), &scene.navarch).await;
}
