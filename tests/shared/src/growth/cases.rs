//! The lists that users of a namespace can write, each with a variable length.

#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "test code: it indexes only what it has built, and builders of values read better if they take values"
)]

use serde_json::{Value, json};

/// The proxy that uses the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A sidecar in the objects' namespace with the label `app: web`.
    Sidecar,
    /// A gateway in the objects' namespace with the label `app: gate`.
    Gateway,
}

/// A list of variable length.
#[derive(Clone, Copy)]
pub struct Case {
    /// The list's path, and its context.
    pub name: &'static str,
    /// The proxy that uses it.
    pub reader: Reader,
    /// The initial length in a test. The cost for four times the length must not be much more than
    /// four times the cost.
    pub size: usize,
    /// The maximum length, if it is limited.
    pub longest: usize,
    /// The objects with a list of this length. The element in the middle depends on whether `turn`
    /// is odd.
    pub objects: fn(usize, usize) -> Vec<Value>,
}

/// An object in the namespace.
fn object(group: &str, kind: &str, name: &str, spec: Value) -> Value {
    let version = match (group, kind) {
        ("", _) => "v1".to_owned(),
        (group, "EnvoyFilter") => format!("{group}/v1alpha3"),
        (group, _) => format!("{group}/v1"),
    };
    let metadata =
        json!({ "name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z" });
    json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec })
}

/// An object of the networking API.
fn networking(kind: &str, name: &str, spec: Value) -> Value {
    object("networking.istio.io", kind, name, spec)
}

/// An object of the security API.
fn security(kind: &str, name: &str, spec: Value) -> Value {
    object("security.istio.io", kind, name, spec)
}

fn list<T: Into<Value>>(length: usize, element: impl FnMut(usize) -> T) -> Value {
    Value::Array((0..length).map(element).map(Into::into).collect())
}

/// The number of an element; the element in the middle has another number in odd turns.
fn number(n: usize, length: usize, turn: usize) -> usize {
    if n == length / 2 && turn % 2 == 1 {
        length + 1
    } else {
        n
    }
}

/// A distinct address in 10.0.0.0/8 for each `n`.
fn address(n: usize) -> String {
    format!("10.{}.{}.{}", 1 + (n >> 16), (n >> 8) & 255, n & 255)
}

/// A ServiceEntry for one host, with these fields replaced.
fn entry(fields: &[(&str, Value)]) -> Value {
    let mut spec = json!({
        "hosts": ["a.example.com"], "location": "MESH_INTERNAL", "resolution": "STATIC",
        "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
        "endpoints": [{ "address": "10.9.0.1" }],
    });
    for (name, value) in fields {
        spec[*name] = value.clone();
    }
    networking("ServiceEntry", "list", spec)
}

/// The objects of [`entry`], and a VirtualService for its host with these fields replaced.
fn virtual_service(fields: &[(&str, Value)]) -> Vec<Value> {
    let mut spec = json!({ "hosts": ["a.example.com"], "http": [{ "route": [{ "destination": { "host": "a.example.com" } }] }] });
    for (name, value) in fields {
        spec[*name] = value.clone();
    }
    vec![entry(&[]), networking("VirtualService", "list", spec)]
}

fn route(prefix: &str) -> Value {
    json!({ "match": [{ "uri": { "prefix": prefix } }], "route": [{ "destination": { "host": "a.example.com" } }] })
}

/// The objects of [`entry`], and a DestinationRule for its host.
fn rule(spec: &[(&str, Value)]) -> Vec<Value> {
    let mut all = json!({ "host": "a.example.com" });
    for (name, value) in spec {
        all[*name] = value.clone();
    }
    vec![entry(&[]), networking("DestinationRule", "list", all)]
}

/// A Gateway with these servers, a VirtualService for it, and the destination service.
fn gateway(servers: Value) -> Vec<Value> {
    let gateway = networking(
        "Gateway",
        "list",
        json!({ "selector": { "app": "gate" }, "servers": servers }),
    );
    let mut all = virtual_service(&[("gateways", json!(["list"])), ("hosts", json!(["*"]))]);
    all.push(gateway);
    all
}

/// A Service with one pod, which has the proxy's address.
fn own_service(ports: Value) -> Vec<Value> {
    let mut pod = object(
        "",
        "Pod",
        "reader",
        json!({ "containers": [{ "name": "app" }] }),
    );
    pod["metadata"]["labels"] = json!({ "app": "web" });
    pod["status"] = json!({ "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }],
        "conditions": [{ "type": "Ready", "status": "True" }] });
    let spec = json!({ "clusterIP": "172.16.0.1", "selector": { "app": "web" }, "ports": ports });
    vec![object("", "Service", "web", spec), pod]
}

/// The proxy's Service with one port.
fn web() -> Vec<Value> {
    own_service(json!([{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }]))
}

/// The proxy's Service, and an object.
fn beside_web(object: Value) -> Vec<Value> {
    let mut all = web();
    all.push(object);
    all
}

fn pod(n: usize, ready: bool) -> Value {
    let mut pod = object(
        "",
        "Pod",
        &format!("pod-{n}"),
        json!({ "containers": [{ "name": "app" }] }),
    );
    pod["metadata"]["labels"] = json!({ "app": "many" });
    pod["status"] = json!({ "phase": "Running", "podIP": address(n), "podIPs": [{ "ip": address(n) }],
        "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] });
    pod
}

/// A patch that adds a response header to routes.
fn patch(n: usize) -> Value {
    json!({ "applyTo": "HTTP_ROUTE", "match": { "context": "SIDECAR_OUTBOUND" }, "patch": {
        "operation": "MERGE", "value": { "response_headers_to_remove": [format!("h{n}")] } } })
}

mod gateway_api;
mod policies;
mod routes;
mod services;

/// For unlimited lists: longer than any list in a test.
const LONG: usize = 1 << 20;

pub fn all() -> impl Iterator<Item = &'static Case> {
    services::CASES
        .iter()
        .chain(routes::CASES)
        .chain(policies::CASES)
        .chain(gateway_api::CASES)
}
