//! The effect of a case's environment, tags and labels on the statuses of its objects. The expected
//! values follow from Istio's source.

use serde_json::Value;

use super::case::Case;
use super::object_status::statuses;

/// Other names of class and controller, other classes, and InferencePools.
const ENV: &str = "
PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME=edge
PILOT_GATEWAY_API_CONTROLLER_NAME=example.com/edge
PILOT_ENABLE_AMBIENT=true
AMBIENT_ENABLE_MULTI_NETWORK=true
PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API=false
ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true
";

/// A Gateway with a tag of the revision, one in a namespace of another revision, one between
/// networks, and one of an unknown class; and a route to an InferencePool.
const INPUT: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: canaries, labels: {istio.io/rev: canary}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-revision-tag-next, labels: {istio.io/rev: default, istio.io/tag: next}}
---
apiVersion: v1
kind: Service
metadata: {name: epp, namespace: shop}
spec: {clusterIP: 10.96.1.1, ports: [{name: grpc, port: 9002}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop, labels: {istio.io/rev: next}, annotations: {gateway.istio.io/name-override: doors}}
spec: {gatewayClassName: edge, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: canaries}
spec: {gatewayClassName: edge, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: between, namespace: shop}
spec:
  gatewayClassName: istio-east-west
  listeners:
  - {name: mesh, port: 15008, protocol: HBONE, tls: {mode: Terminate, options: {gateway.istio.io/tls-terminate-mode: ISTIO_MUTUAL}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: far, namespace: shop}
spec: {gatewayClassName: istio-remote, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: shop}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: llama}]}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: llama, namespace: shop}
spec:
  selector: {matchLabels: {app: llama}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: epp, port: {number: 9002}}
";

/// Status and reason of a condition.
fn condition(of: &Value, kind: &str) -> String {
    let conditions = of["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let Some(found) = conditions
        .iter()
        .find(|condition| condition["type"] == kind)
    else {
        return String::new();
    };
    format!(
        "{} {}",
        found["status"].as_str().unwrap(),
        found["reason"].as_str().unwrap()
    )
}

#[tokio::test]
async fn statuses_follow_the_environment_tags_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("env", ENV), ("input.yaml", INPUT)] {
        std::fs::write(folder.path().join(name), text.trim_start()).unwrap();
    }

    let case = Case {
        name: "environment".to_owned(),
        folder: folder.path().to_owned(),
        proxies: Vec::new(),
    };
    let statuses = statuses(&case).await.unwrap();
    let of = |name: &str| statuses.get(name).cloned().unwrap_or_default();

    for (object, accepted) in [
        ("GatewayClass/edge", "True Accepted"),
        ("GatewayClass/istio-east-west", "True Accepted"),
        ("GatewayClass/istio-waypoint", "True Accepted"),
        ("GatewayClass/istio", ""),
        ("GatewayClass/istio-remote", ""),
        ("Gateway/shop/web", "True Accepted"),
        ("Gateway/shop/between", "True Accepted"),
        ("Gateway/shop/far", "Unknown Pending"),
        ("Gateway/canaries/web", "Unknown Pending"),
    ] {
        assert_eq!(
            condition(&of(object), "Accepted"),
            accepted,
            "{object}: {}",
            of(object)
        );
    }

    // The Service of the Gateway has the requested name, and no pods.
    let programmed = of("Gateway/shop/web")["conditions"].to_string();
    assert!(
        programmed.contains("no instances found for hostname \\\"doors.shop.svc"),
        "{programmed}"
    );
    let parent = &of("HTTPRoute/shop/r")["parents"][0];
    assert_eq!(parent["controllerName"], "example.com/edge");

    assert_eq!(
        condition(parent, "ResolvedRefs"),
        "True ResolvedRefs",
        "the Service of the pool exists"
    );
    assert_eq!(
        condition(&of("InferencePool/shop/llama")["parents"][0], "Accepted"),
        "True Accepted"
    );
}
