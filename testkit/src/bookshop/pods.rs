//! The sample mesh as pods of a real node.
//!
//! Pods become Deployments by application and version, running `workload serve`; the cluster
//! assigns addresses and endpoints. The bank, outside of the mesh, is in a namespace of its own
//! without injection; the gateway is injected.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON that differs from the sample gives null"
)]

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::BACKEND_PORT;

/// The image of `workload` in the cluster.
pub const IMAGE: &str = "localhost/workload:test";
/// The sample's namespace.
pub const NAMESPACE: &str = "bookshop";
/// The namespace of the gateway, whose Deployment and Service have this name, too.
pub const GATEWAY: &str = "istio-ingressgateway";
/// The host that the gateway serves.
pub const HOST: &str = "shop.example.com";
/// The namespace of applications outside of the mesh.
pub const OUTSIDE: &str = "outside";
/// How long a terminating pod continues to serve, in seconds: until all clients have been updated,
/// even on a busy machine.
const LEAVING: u32 = 5;
/// Timeout of a probe, in seconds. On a busy machine, a pod whose probes fail after Kubernetes' one
/// second gets no requests, though it serves.
const PROBE_TIMEOUT: u32 = 5;
/// The port of the sample's Gateway in the gateway's pods.
const GATEWAY_PORT: u16 = 18080;

/// All objects of the sample in the checkout at `root`, in the order of their dependencies.
///
/// # Errors
/// If a file cannot be read.
pub fn objects(root: &Path) -> Result<Vec<Value>> {
    let mut pods: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut objects = Vec::new();

    for object in super::read(root)? {
        match object["kind"].as_str() {
            Some("Pod") => {
                let label = |name: &str| {
                    object["metadata"]["labels"][name]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                };
                *pods.entry((label("app"), label("version"))).or_default() += 1;
            }
            // The cluster or Helm creates these.
            Some("EndpointSlice") => {}
            Some("Namespace") if object["metadata"]["name"] != NAMESPACE => {}
            _ => objects.push(convert(object)),
        }
    }

    let applications: std::collections::BTreeSet<String> =
        pods.keys().map(|(app, _)| app.clone()).collect();
    objects.extend(applications.iter().map(|app| account(NAMESPACE, app)));

    for ((app, version), replicas) in &pods {
        // The names of the sample's own backends.
        let says = if app == "reviews" {
            format!("{app} {version}")
        } else {
            app.clone()
        };
        objects.push(application(&Application {
            namespace: NAMESPACE,
            app,
            version,
            replicas: *replicas,
            says: &says,
        }));
    }

    objects.extend(outside());
    objects.extend(gateway());
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    Ok(objects)
}

/// Converts one object of the sample for the cluster.
fn convert(mut object: Value) -> Value {
    match object["kind"].as_str() {
        Some("Namespace") => object["metadata"]["labels"] = json!({"istio-injection": "enabled"}),
        Some("Service") => {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("clusterIP");
            }
        }
        Some("ServiceEntry") => {
            object["spec"]["resolution"] = json!("DNS");
            object["spec"]["endpoints"] = json!([{"address": format!("bank.{OUTSIDE}.svc.cluster.local"), "ports": {"http": BACKEND_PORT}}]);
        }
        Some("VirtualService") => without_timeouts(&mut object["spec"]),
        _ => {}
    }
    object
}

/// Removes the timeouts of routes: on a machine that starts pods at the same time a response may
/// take a second, and a request that times out would count as lost.
fn without_timeouts(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| name != "timeout" && name != "perTryTimeout");
        fields.values_mut().for_each(without_timeouts);
    } else if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(without_timeouts);
    }
}

/// An application in pods.
struct Application<'a> {
    namespace: &'a str,
    /// Its name, and that of its service account.
    app: &'a str,
    /// The version of its pods.
    version: &'a str,
    /// Number of pods.
    replicas: usize,
    says: &'a str,
}

/// An application with this response, with its service account and its Service on port 9080.
#[must_use]
pub fn with_response(namespace: &str, app: &str, says: &str) -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": app, "namespace": namespace},
        "spec": {"selector": {"app": app}, "ports": [{"name": "http", "port": 9080, "targetPort": BACKEND_PORT}]},
    });
    let pods = application(&Application {
        namespace,
        app,
        version: "v1",
        replicas: 1,
        says,
    });
    vec![account(namespace, app), service, pods]
}

/// A service account.
fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
}

/// The Deployment of an application. It continues to serve while its clients are being updated.
fn application(application: &Application<'_>) -> Value {
    let Application {
        namespace,
        app,
        version,
        replicas,
        says,
    } = application;

    let labels = json!({"app": app, "version": version});
    let probe = |check: &str, of: Value, period: u32| json!({check: of, "periodSeconds": period, "timeoutSeconds": PROBE_TIMEOUT});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": format!("{app}-{version}"), "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": app,
                    "terminationGracePeriodSeconds": 20,
                    "containers": [{
                        "name": "app",
                        "image": IMAGE,
                        "args": ["serve", says, BACKEND_PORT.to_string()],
                        "ports": [{"containerPort": BACKEND_PORT}],
                        "readinessProbe": probe("httpGet", json!({"path": "/ready", "port": BACKEND_PORT}), 1),
                        "livenessProbe": probe("tcpSocket", json!({"port": BACKEND_PORT}), 5),
                        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVING}}},
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                    }],
                },
            },
        },
    })
}

/// The applications outside of the mesh.
fn outside() -> Vec<Value> {
    let bank = Application {
        namespace: OUTSIDE,
        app: "bank",
        version: "v1",
        replicas: 1,
        says: "bank",
    };

    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OUTSIDE}}),
        account(OUTSIDE, "bank"),
        application(&bank),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "bank", "namespace": OUTSIDE},
            "spec": {"selector": {"app": "bank"}, "ports": [{"name": "http", "port": BACKEND_PORT}]},
        }),
    ]
}

/// The gateway: a Deployment whose only container is filled in by the injector.
fn gateway() -> Vec<Value> {
    let labels = json!({"app": GATEWAY, "istio": "ingressgateway"});
    let metadata = json!({"name": GATEWAY, "namespace": GATEWAY, "labels": labels});

    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY, "labels": {"istio-injection": "enabled"}}}),
        account(GATEWAY, GATEWAY),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"inject.istio.io/templates": "gateway"}},
                    "spec": {
                        "serviceAccountName": GATEWAY,
                        "terminationGracePeriodSeconds": 20,
                        "containers": [{
                            "name": "istio-proxy",
                            "image": "auto",
                            // With `auto`, whose tag counts as `latest`, it would always be pulled.
                            "imagePullPolicy": "IfNotPresent",
                            "lifecycle": {"preStop": {"sleep": {"seconds": LEAVING}}},
                        }],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": GATEWAY_PORT}]},
        }),
    ]
}

/// A pod that continuously sends requests to the targets of `workload load`, and serves the counts
/// on [`COUNTS_PORT`].
#[must_use]
pub fn client(namespace: &str, name: &str, rate: u32, targets: &[String]) -> Value {
    let mut arguments = vec!["load".to_owned(), COUNTS_PORT.to_string(), rate.to_string()];
    arguments.extend(targets.iter().cloned());

    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name},
            // The reader of the counts is not in the mesh.
            "annotations": {"traffic.sidecar.istio.io/excludeInboundPorts": COUNTS_PORT.to_string()},
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            // A lost datagram to DNS is no lost request; the resolver would repeat it after five seconds.
            "dnsConfig": {"options": [{"name": "timeout", "value": "1"}, {"name": "attempts", "value": "5"}]},
            "containers": [{
                "name": "app",
                "image": IMAGE,
                "args": arguments,
                "readinessProbe": {"tcpSocket": {"port": COUNTS_PORT}, "periodSeconds": 1},
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }],
        },
    })
}

/// The port on which a [`client`] serves its counts.
pub const COUNTS_PORT: u16 = 9900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_keeps_its_routes_and_leaves_addresses_to_the_cluster() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let objects = objects(&root).unwrap();
        let of = |kind: &str| -> Vec<&Value> {
            objects
                .iter()
                .filter(|object| object["kind"] == kind)
                .collect()
        };

        let names = |kind: &str| -> Vec<&str> {
            of(kind)
                .iter()
                .map(|object| object["metadata"]["name"].as_str().unwrap())
                .collect()
        };

        assert_eq!(
            names("Namespace"),
            ["bookshop", "outside", "istio-ingressgateway"]
        );
        assert_eq!(
            names("Deployment"),
            [
                "catalog-v1",
                "reviews-v1",
                "reviews-v2",
                "storefront-v1",
                "bank-v1",
                "istio-ingressgateway"
            ]
        );

        assert_eq!(
            of("Deployment")[0]["spec"]["replicas"],
            2,
            "the sample has two pods of the catalog"
        );
        assert_eq!(names("VirtualService"), ["storefront", "reviews"]);
        let text = serde_json::to_string(&objects).unwrap();
        assert!(
            !text.contains("127."),
            "no address of the sample's machine is left: {text}"
        );
    }
}
