//! Generates a mesh of any size for tests and benches: objects and proxies by number.

#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: it indexes only what it has built"
)]

use std::sync::Arc;

use navarch::api::any_object::AnyObject;
use navarch::api::decode::{Outcome, decode_value};
use navarch::push::mesh_state::Change;
use navarch::push::proxy::{Locality, Proxy};
use serde_json::{Value, json};

/// Namespaces over which the services are spread.
pub const NAMESPACES: usize = 10;

/// The size of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Kubernetes Services, one HTTP port each.
    pub services: usize,
    /// Pods behind each Service.
    pub endpoints: usize,
    /// The number of VirtualServices, for the first services, and of DestinationRules.
    pub rules: usize,
}

/// Decodes a generated object; generated objects are always valid.
pub fn read(value: &Value) -> AnyObject {
    match decode_value(value) {
        (
            _,
            Outcome::Read {
                object,
                unknown_fields,
            },
        ) if unknown_fields.is_empty() => object,
        (subject, outcome) => panic!("{subject:?}: {outcome:?}"),
    }
}

/// The event that puts an object.
fn put(value: &Value) -> Change {
    Change::Put(read(value))
}

/// The metadata of an object.
fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1" })
}

/// The namespace of the service with this number.
pub fn namespace(service: usize) -> String {
    format!("ns{}", service % NAMESPACES)
}

/// The host of the service with this number.
pub fn host(service: usize) -> String {
    format!("svc{service}.{}.svc.cluster.local", namespace(service))
}

/// The address of a pod.
fn pod_ip(service: usize, endpoint: usize) -> String {
    let n = service * 16 + endpoint;
    format!("10.{}.{}.{}", 1 + (n >> 16), (n >> 8) & 255, n & 255)
}

pub fn service(n: usize) -> Change {
    put(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta(&namespace(n), &format!("svc{n}")),
        "spec": {
            "clusterIP": format!("172.{}.{}.{}", 16 + (n >> 16), (n >> 8) & 255, n & 255),
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }],
            "selector": { "app": format!("svc{n}") },
        },
    }))
}

/// A pod behind the service.
pub fn pod(service: usize, n: usize) -> Change {
    let mut metadata = meta(&namespace(service), &format!("svc{service}-{n}"));
    metadata["labels"] =
        json!({ "app": format!("svc{service}"), "version": format!("v{}", n % 2) });
    put(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": { "serviceAccountName": format!("svc{service}"), "nodeName": "node-1", "containers": [{ "name": "app" }] },
        "status": {
            "phase": "Running", "podIP": pod_ip(service, n), "podIPs": [{ "ip": pod_ip(service, n) }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    }))
}

/// The EndpointSlice of a service with its first pods.
pub fn slice(service: usize, endpoints: usize) -> Change {
    let mut metadata = meta(&namespace(service), &format!("svc{service}-x"));
    metadata["labels"] = json!({ "kubernetes.io/service-name": format!("svc{service}") });
    let endpoint = |n: usize| {
        json!({
            "addresses": [pod_ip(service, n)], "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "name": format!("svc{service}-{n}"), "namespace": namespace(service) },
        })
    };
    put(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    }))
}

/// The VirtualService for a service, with a timeout in seconds.
pub fn virtual_service(service: usize, seconds: usize) -> Change {
    put(&json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": meta(&namespace(service), &format!("vs{service}")),
        "spec": {
            "hosts": [host(service)],
            "http": [{ "timeout": format!("{seconds}s"), "route": [{ "destination": { "host": host(service) } }] }],
        },
    }))
}

/// A VirtualService that is exported to its own namespace alone, which has no proxies.
pub fn private_virtual_service(seconds: usize) -> Change {
    let route = json!({ "timeout": format!("{}s", seconds + 1), "route": [{ "destination": { "host": host(0) } }] });
    put(&json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta("nobody", "private"),
        "spec": { "hosts": [host(0)], "http": [route], "exportTo": ["."] },
    }))
}

/// The DestinationRule for a service, with a connection limit.
pub fn destination_rule(service: usize, connections: usize) -> Change {
    put(&json!({
        "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": meta(&namespace(service), &format!("dr{service}")),
        "spec": {
            "host": host(service),
            "trafficPolicy": { "connectionPool": { "tcp": { "maxConnections": connections } } },
        },
    }))
}

/// All objects of a mesh.
pub fn mesh(size: Size) -> Vec<Change> {
    let mut changes = Vec::new();
    for n in 0..size.services {
        changes.push(service(n));
        changes.extend((0..size.endpoints).map(|endpoint| pod(n, endpoint)));
        changes.push(slice(n, size.endpoints));
    }
    for n in 0..size.rules {
        changes.push(virtual_service(n, 10));
        changes.push(destination_rule(n, 100));
    }
    changes
}

/// The sidecar with this number: only name and address differ between sidecars.
pub fn sidecar(n: usize) -> Arc<Proxy> {
    Arc::new(proxy(n, &json!({})))
}

/// The same sidecar on a delta stream, with on-demand virtual hosts.
pub fn fine_grained_sidecar(n: usize) -> Arc<Proxy> {
    Arc::new(Proxy {
        uses_delta: true,
        ..proxy(n, &json!({ "FINE_GRAINED_ROUTES": "true" }))
    })
}

/// The sidecar with this number, with additional metadata.
fn proxy(n: usize, more: &Value) -> Proxy {
    let ip = format!("10.200.{}.{}", n >> 8, n & 255);
    let mut metadata = json!({
        "NAMESPACE": "clients", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "MESH_ID": "cluster.local",
        "SERVICE_ACCOUNT": "default", "INSTANCE_IPS": ip, "INTERCEPTION_MODE": "REDIRECT",
        "LABELS": { "app": "client" }, "NAME": format!("client-{n}"),
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    let node = format!("sidecar~{ip}~client-{n}.clients~clients.svc.cluster.local");
    Proxy::parse(&node, metadata, Locality::default()).expect("the node is valid")
}
