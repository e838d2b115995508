//! `navarch migrate plan` over a dump of objects: the steps, what is refused, and the exit codes.

use std::path::Path;

use serde_json::Value;

use super::{PROGRAM, run};

/// A namespace with one workload that has a sidecar, and a control plane in ambient mode.
const MESH: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: istiod, namespace: istio-system, labels: {app: istiod}}
spec:
  template:
    spec:
      containers:
      - name: discovery
        env: [{name: PILOT_ENABLE_AMBIENT, value: "true"}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: ztunnel, namespace: istio-system}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: istio-cni-node, namespace: istio-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {istio-injection: enabled}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {metadata: {labels: {app: web}}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: web-1a-x
  namespace: shop
  labels: {app: web, pod-template-hash: 1a, security.istio.io/tlsMode: istio}
  annotations: {sidecar.istio.io/status: "{}"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1a, uid: u, controller: true}]
spec: {nodeName: n1, serviceAccountName: web, containers: [{name: app}, {name: istio-proxy}]}
status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: web-1a-x, namespace: shop}}]
"#;

/// Exit code, standard output and standard error of the command, with a dump of these objects.
fn plan(objects: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), objects).unwrap();
    let from = file.path().to_str().unwrap();
    let output = run(
        Path::new(PROGRAM),
        &[&["migrate", "plan", "--from", from][..], arguments].concat(),
    );
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn a_plan_shows_the_steps_with_values_before_and_after() {
    let (code, text, error) = plan(MESH, &["shop"]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{text}");
    for part in [
        "Migration of shop to ambient mode: 3 steps",
        "Step 1: label namespace shop istio.io/dataplane-mode=ambient (no verdict changes)",
        "metadata.labels.[istio.io/dataplane-mode]: none -> ambient",
        "Step 2: restart Deployment shop/web without sidecars (no verdict changes)",
        "metadata.labels.istio-injection: enabled -> disabled",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let (code, json, _) = plan(MESH, &["shop", "-o", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(report["steps"].as_array().unwrap().len(), 3);
    assert_eq!(report["steps"][1]["restarts"]["name"], "web");
}

#[test]
fn a_plan_is_refused_where_ambient_mode_is_off() {
    let (code, text, error) = plan(MESH, &["shop", "--env", "PILOT_ENABLE_AMBIENT=false"]);
    assert_eq!(code, Some(1), "{text}{error}");
    assert!(text.contains("set PILOT_ENABLE_AMBIENT=true"), "{text}");
}

#[test]
fn a_namespace_that_does_not_exist_and_a_missing_kubeconfig_are_errors() {
    let (code, text, error) = plan(MESH, &["bank"]);
    assert_eq!((code, text.as_str()), (Some(2), ""), "{error}");
    assert!(error.contains("namespace bank does not exist"), "{error}");

    let output = run(
        Path::new(PROGRAM),
        &["migrate", "apply", "shop", "--next", "--kubeconfig", "none"],
    );
    assert_eq!(output.status.code(), Some(2));
    let output = run(Path::new(PROGRAM), &["migrate", "apply", "shop"]);
    assert_eq!(output.status.code(), Some(2), "neither --next nor --step");
}
