//! `navarch scope` over a dump of objects and files with metrics: suggestions, differences, malformed
//! lines, evidence of a former run, and the exit codes.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::{PROGRAM, run};

/// Two namespaces, tracing to a third one, and two pods of one workload with sidecars.
const MESH: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    extensionProviders:
    - {name: zip, zipkin: {service: zipkin.obs.svc.cluster.local, port: 9411}}
    defaultProviders: {tracing: [zip]}
---
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {app: reviews}, ports: [{name: http, port: 9080}]}
---
apiVersion: v1
kind: Service
metadata: {name: details, namespace: shop}
spec: {clusterIP: 10.96.0.2, clusterIPs: [10.96.0.2], selector: {app: details}, ports: [{name: http, port: 9080}]}
---
apiVersion: v1
kind: Service
metadata: {name: ledger, namespace: bank}
spec: {clusterIP: 10.96.0.3, clusterIPs: [10.96.0.3], selector: {app: ledger}, ports: [{name: tcp, port: 7000}]}
---
apiVersion: v1
kind: Service
metadata: {name: zipkin, namespace: obs}
spec: {clusterIP: 10.96.0.4, clusterIPs: [10.96.0.4], selector: {app: zipkin}, ports: [{name: http, port: 9411}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-1a-x
  generateName: web-1a-
  namespace: shop
  labels: {app: web, pod-template-hash: 1a, security.istio.io/tlsMode: istio}
  annotations: {sidecar.istio.io/status: "{}"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1a, uid: u, controller: true}]
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: app}, {name: istio-proxy}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-1a-y
  generateName: web-1a-
  namespace: shop
  labels: {app: web, pod-template-hash: 1a, security.istio.io/tlsMode: istio}
  annotations: {sidecar.istio.io/status: "{}"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1a, uid: u, controller: true}]
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: app}, {name: istio-proxy}]}
status: {phase: Running, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}]}
"#;

const SIDECAR: &str = "
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: own, namespace: shop}
spec: {egress: [{hosts: ['./*']}]}
";

/// The metrics of one pod.
fn metrics(reviews: u64, connections: u64) -> String {
    let own = r#"reporter="source",source_workload="web",source_workload_namespace="shop""#;
    format!(
        r#"# TYPE istio_requests_total counter
istio_requests_total{{{own},destination_service="reviews.shop.svc.cluster.local",destination_service_name="reviews",response_code="200",response_flags="-"}} {reviews}
istio_requests_total{{{own},destination_service="reviews.shop.svc.cluster.local",destination_service_name="reviews",response_code="503",response_flags="UH"}} 1
istio_tcp_connections_opened_total{{{own},destination_service="ledger.bank.svc.cluster.local",destination_service_name="ledger",response_flags="-"}} {connections}
istio_requests_total{{reporter="destination",destination_workload="web",destination_workload_namespace="shop",source_principal="spiffe://cluster.local/ns/istio-ingress/sa/ingress",response_code="200"}} 4
envoy_server_uptime{{}} 604800
"#
    )
}

/// A directory with the files of a case.
struct Case {
    folder: TempDir,
}

/// What the command has done.
struct Done {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Case {
    fn new(objects: &str) -> Self {
        let case = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        case.write("mesh.yaml", &format!("{MESH}{objects}"));
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Runs the command on the mesh. Words that begin with `@` are files of the case.
    fn run(&self, line: &str) -> Done {
        let words = line.split(' ').map(|word| match word.strip_prefix('@') {
            Some(name) => self.path(name).display().to_string(),
            None => word.to_owned(),
        });
        let from = self.path("mesh.yaml").display().to_string();
        let words: Vec<String> = ["scope".to_owned()]
            .into_iter()
            .chain(words)
            .chain(["--from".to_owned(), from])
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run(Path::new(PROGRAM), &words);
        Done {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            error: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

#[test]
fn a_sidecar_is_suggested_with_its_evidence_and_what_it_saves() {
    let case = Case::new("");
    case.write("web-1a-x.txt", &metrics(120, 3));
    case.write("web-1a-y.txt", &metrics(79, 0));
    let done = case.run("suggest -n shop --metrics @web-1a-x.txt --metrics @web-1a-y.txt");
    assert_eq!(
        (done.code, done.error.as_str()),
        (Some(0), ""),
        "{}",
        done.out
    );

    for part in [
        "# shop/web: 2 pods, calls counted since 20",
        "# One proxy has ",
        "kind: Sidecar\n",
        "  name: scope-web\n",
        "# 201 requests, 0.9 % failed, last seen 20",
        "- \"./reviews.shop.svc.cluster.local\"\n",
        "# 3 connections, last seen 20",
        "- \"bank/ledger.bank.svc.cluster.local\"\n",
        "kept: the proxy itself sends to it (tracing: envoy.tracers.zipkin)",
        "- \"obs/zipkin.obs.svc.cluster.local\"\n",
        "app: web\n",
    ] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }
    assert!(!done.out.contains("details"), "{}", done.out);
    assert!(!done.out.contains("Warning"), "{}", done.out);
}

#[test]
fn policies_are_printed_if_asked_for() {
    let case = Case::new("");
    case.write("web.txt", &metrics(1, 1));
    let done = case.run("suggest shop/web --policies --metrics @web.txt");
    assert_eq!(done.code, Some(0), "{}", done.error);
    assert!(
        done.out.contains("kind: AuthorizationPolicy\n"),
        "{}",
        done.out
    );
    let principal = "- \"cluster.local/ns/istio-ingress/sa/ingress\"\n";
    assert!(done.out.contains(principal), "{}", done.out);
}

#[test]
fn a_malformed_line_is_named_and_the_others_are_read() {
    let case = Case::new("");
    let text = format!(
        "istio_requests_total{{reporter=\"source\" 1\n{}",
        metrics(9, 1)
    );
    case.write("web.txt", &text);
    let done = case.run("suggest shop/web --metrics @web.txt");
    assert_eq!(done.code, Some(0));
    let place = format!("{}:1: ", case.path("web.txt").display());
    assert!(done.error.starts_with(&place), "{}", done.error);
    assert!(done.out.contains("kind: Sidecar"), "{}", done.out);
}

#[test]
fn a_file_named_after_a_pod_is_believed_about_its_workload_alone() {
    let case = Case::new("");
    let forged = metrics(5, 1).replace("\"web\"", "\"ledger\"");
    let text = metrics(9, 1) + &forged;
    case.write("web-1a-x.shop.txt", &text);
    let done = case.run("suggest -n shop --metrics @web-1a-x.shop.txt");
    assert_eq!(done.code, Some(0), "{}", done.error);
    assert!(
        done.error.contains("4 series are about other workloads"),
        "{}",
        done.error
    );
    assert!(!done.out.contains("shop/ledger"), "{}", done.out);

    let twin = format!(
        "---{}",
        MESH.rsplit("---")
            .next()
            .unwrap()
            .replace("namespace: shop", "namespace: bank")
    );
    let twins = Case::new(&twin);
    twins.write("web-1a-y.txt", &text);
    let done = twins.run("suggest -n shop --metrics @web-1a-y.txt");
    assert_eq!(done.code, Some(2));
    assert!(
        done.error.contains("several pods have this name"),
        "{}",
        done.error
    );

    case.write("all.txt", &text);
    let done = case.run("suggest -n shop --metrics @all.txt");
    let line = "# shop/ledger has evidence, but is not selected";
    assert!(done.out.contains(line), "{}", done.out);
}

#[test]
fn metrics_that_cannot_be_read_at_all_are_an_error() {
    let case = Case::new("");
    let done = case.run("diff -n shop --prometheus http://127.0.0.1:1");
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""));
    for part in [
        "Warning: Prometheus, shop/web: ",
        "no metrics could be read",
    ] {
        assert!(done.error.contains(part), "{part}: {}", done.error);
    }
    let done = case.run("diff -n shop --prometheus http://user:secret@127.0.0.1:1");
    assert_eq!(done.code, Some(2));
    assert!(done.error.contains("has credentials"), "{}", done.error);
    assert!(!done.error.contains("secret"), "{}", done.error);
}

#[test]
fn evidence_accumulates_over_runs() {
    let case = Case::new("");
    case.write("web.txt", &metrics(10, 1));
    let first = case.run("suggest -n shop -o json --metrics @web.txt");
    case.write("first.json", &first.out);
    case.write("web.txt", &metrics(15, 1));
    let second = case.run("suggest -n shop -o json --metrics @web.txt --evidence @first.json");
    assert_eq!(second.code, Some(0), "{}", second.error);

    let report: Value = serde_json::from_str(&second.out).unwrap();
    let calls = &report["evidence"]["workloads"]["shop/web"]["calls"];
    assert_eq!(calls["reviews.shop.svc.cluster.local"]["requests"], 16);
    assert_eq!(calls["ledger.bank.svc.cluster.local"]["connections"], 1);

    case.write("second.json", &second.out);
    let alone = case.run("suggest -n shop --evidence @second.json");
    assert!(alone.out.contains("16 requests"), "{}", alone.out);
    case.write("other.json", "{}");
    let other = case.run("suggest -n shop --evidence @other.json");
    assert_eq!(other.code, Some(2));
    assert!(
        other.error.contains("is not the JSON output"),
        "{}",
        other.error
    );
}

#[test]
fn calls_that_a_sidecar_in_force_cuts_fail_the_command() {
    let case = Case::new(SIDECAR);
    case.write("web.txt", &metrics(10, 2));
    let done = case.run("diff -n shop --metrics @web.txt");
    assert_eq!(done.code, Some(1), "{}", done.error);
    for part in [
        "shop/web: 2 visible services, Sidecar shop/own",
        "cut: ledger.bank.svc.cluster.local (2 connections",
        "allowed and never called: 1: details.shop.svc.cluster.local",
    ] {
        assert!(done.out.contains(part), "{part}: {}", done.out);
    }

    let case = Case::new("");
    case.write("web.txt", &metrics(10, 2));
    let done = case.run("diff -n shop --metrics @web.txt");
    assert_eq!(done.code, Some(0), "{}", done.out);
}

#[test]
fn wrong_selections_and_missing_sources_are_errors() {
    let case = Case::new("");
    case.write("web.txt", &metrics(1, 1));

    for (line, reason) in [
        (
            "suggest shop/db --metrics @web.txt",
            "workload shop/db has no pod",
        ),
        (
            "suggest -n bank --metrics @web.txt",
            "no pod with a sidecar",
        ),
        ("suggest web --metrics @web.txt", "set --namespace"),
        (
            "suggest -n shop",
            "set --metrics, --prometheus or --evidence",
        ),
        ("diff -n shop --metrics @none.txt", "failed to read"),
        (
            "diff -n shop --metrics @web.txt --since 1d",
            "set --prometheus",
        ),
    ] {
        let done = case.run(line);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{line}");
        assert!(done.error.contains(reason), "{line}: {}", done.error);
    }
}
