//! The objects of the measurement: a Gateway, a backend, and routes by number.

use serde_json::{Value, json};

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "edge";

/// The Gateway of an already running proxy, and a backend.
pub(crate) fn world(backend: u16, listener: u16) -> Vec<Value> {
    let labels = json!({ "app": "front" });
    let front = format!("front.{NAMESPACE}.svc.cluster.local");

    // No server issues certificates for the proxy.
    let mesh = "enableAutoMtls: false\n";
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio", "namespace": "istio-system" }, "data": { "mesh": mesh } }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "front", "namespace": NAMESPACE },
            "spec": { "selector": labels, "ports": [{ "name": "http", "port": listener, "targetPort": listener }] },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "front", "namespace": NAMESPACE, "labels": labels },
            "spec": { "containers": [{ "name": "istio-proxy", "image": "none" }] },
            "status": {
                "phase": "Running", "podIP": "10.1.0.1", "podIPs": [{ "ip": "10.1.0.1" }],
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        }),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": { "name": "backend", "namespace": NAMESPACE },
            "spec": {
                "hosts": ["backend.example"], "location": "MESH_EXTERNAL", "resolution": "STATIC",
                "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
                "endpoints": [{ "address": "127.0.0.1", "ports": { "http": backend } }],
            },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": "front", "namespace": NAMESPACE },
            "spec": {
                "gatewayClassName": "istio", "addresses": [{ "type": "Hostname", "value": front }],
                "listeners": [{ "name": "http", "port": listener, "protocol": "HTTP" }],
            },
        }),
    ]
}

/// The host of a route by number.
pub(crate) fn host(number: usize) -> String {
    format!("h{number}.example")
}

/// A route by number; a response header contains the number of its changes.
pub(crate) fn route(number: usize, turn: usize) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": format!("route-{number}"), "namespace": NAMESPACE },
        "spec": {
            "parentRefs": [{ "name": "front" }], "hostnames": [host(number)],
            "rules": [{
                "filters": [{ "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": [{ "name": "x-turn", "value": turn.to_string() }] } }],
                "backendRefs": [{ "group": "networking.istio.io", "kind": "Hostname", "name": "backend.example", "port": 80 }],
            }],
        },
    })
}
