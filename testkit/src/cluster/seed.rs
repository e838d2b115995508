//! Writes a world of any size directly to etcd, in the API server's format: minutes faster than
//! through the API server, which serves it nevertheless.

#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON that is built here adds missing fields"
)]

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Cluster, ClusterConfig, plural};
use crate::client;

/// Maximum number of objects per request: etcd allows 128.
const MAX_PUTS_PER_TRANSACTION: usize = 100;
/// Timeout until the API server has everything in its cache.
const SEEDING: Duration = Duration::from_mins(10);

/// The size of a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct World {
    /// Services, one port and one slice of endpoints each.
    pub services: usize,
    /// Pods behind each service, each an endpoint.
    pub pods: usize,
    /// VirtualServices and as many DestinationRules, for the first services.
    pub rules: usize,
    /// Namespaces over which the services are spread.
    pub namespaces: usize,
    /// The number of this world among several: services of all have the same names, their pods
    /// other addresses.
    pub number: usize,
    /// Whether the namespaces are in ambient mode, and their pods captured.
    pub ambient: bool,
}

impl World {
    /// A cluster with enough addresses for the services of any world.
    #[must_use]
    pub fn cluster_config() -> ClusterConfig {
        let api_server_flags = vec!["--service-cluster-ip-range=10.96.0.0/12".to_owned()];
        ClusterConfig {
            api_server_flags,
            ..ClusterConfig::default()
        }
    }

    /// Namespaces, then each service's Pods, Service and EndpointSlice, then VirtualServices and
    /// DestinationRules.
    pub fn objects(self) -> impl Iterator<Item = Value> {
        let namespaces = (0..self.namespaces).map(move |n| namespace(n, self.ambient));
        let services = (0..self.services).flat_map(move |n| {
            let pods = (0..self.pods).map(move |pod| self.pod(n, pod));
            pods.chain([self.service(n), self.slice(n)])
        });
        let rules =
            (0..self.rules).flat_map(move |n| [self.virtual_service(n), self.destination_rule(n)]);
        namespaces.chain(services).chain(rules)
    }

    fn namespace(self, service: usize) -> String {
        format!("ns{}", service % self.namespaces.max(1))
    }

    /// The address of a pod.
    fn ip(self, service: usize, pod: usize) -> String {
        let n = (self.number * self.services + service) * self.pods + pod;
        format!("10.{}.{}.{}", 128 + (n >> 16), (n >> 8) & 255, n & 255)
    }

    fn service(self, n: usize) -> Value {
        let mut service = stored("v1", "Service", &self.namespace(n), &format!("svc{n}"));
        let ip = format!("10.{}.{}.{}", 96 + (n >> 16), (n >> 8) & 255, n & 255);
        service["metadata"]["labels"] = json!({"app": format!("svc{n}")});
        service["spec"] = json!({
            "clusterIP": ip, "clusterIPs": [ip], "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
            "selector": {"app": format!("svc{n}")},
        });
        service["status"] = json!({"loadBalancer": {}});
        service
    }

    /// The EndpointSlice of a service.
    fn slice(self, n: usize) -> Value {
        let namespace = self.namespace(n);
        let mut slice = stored(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            &namespace,
            &format!("svc{n}-x7k2p"),
        );

        slice["metadata"]["labels"] = json!({
            "app": format!("svc{n}"), "kubernetes.io/service-name": format!("svc{n}"),
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        });
        let endpoint = |pod: usize| {
            json!({
                "addresses": [self.ip(n, pod)], "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": format!("node-{}", pod % 3), "zone": "zone-1",
                "targetRef": {"kind": "Pod", "name": format!("svc{n}-{pod}"), "namespace": namespace, "uid": uid()},
            })
        };

        slice["addressType"] = json!("IPv4");
        slice["endpoints"] = (0..self.pods).map(endpoint).collect();
        slice["ports"] = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
        slice
    }

    /// A pod, with the usual fields of a Deployment's pods.
    #[must_use]
    pub fn pod(self, n: usize, number: usize) -> Value {
        let mut pod = stored("v1", "Pod", &self.namespace(n), &format!("svc{n}-{number}"));
        let app = format!("svc{n}");
        let ip = self.ip(n, number);
        pod["metadata"]["generateName"] = json!(format!("{app}-5d8f7c9b6d-"));
        pod["metadata"]["labels"] = json!({"app": app, "pod-template-hash": "5d8f7c9b6d", "version": format!("v{}", number % 2)});
        if self.ambient {
            pod["metadata"]["annotations"]["ambient.istio.io/redirection"] = json!("enabled");
        }

        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-5d8f7c9b6d"), "uid": uid(),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let probe = json!({
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5,
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        });

        let mount = json!([{
            "name": "token", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        }]);
        pod["spec"] = json!({
            "containers": [{
                "name": "app", "image": "registry.example.com/team/app:1.2.3", "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "DATABASE", "value": "db.example.com:5432"}],
                "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": mount, "livenessProbe": probe, "readinessProbe": probe,
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "volumes": [{"name": "token", "emptyDir": {}}], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "serviceAccountName": app, "serviceAccount": app,
            "nodeName": format!("node-{}", number % 3), "securityContext": {}, "schedulerName": "default-scheduler",
            "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
        });

        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": TIME});
        pod["status"] = json!({
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "10.0.0.1", "qosClass": "Burstable",
            "hostIPs": [{"ip": "10.0.0.1"}], "startTime": TIME,
            "conditions": [
                condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
                condition("ContainersReady"), condition("PodScheduled"),
            ],
            "containerStatuses": [{
                "name": "app", "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": TIME}},
                "lastState": {}, "image": "registry.example.com/team/app:1.2.3", "containerID": "containerd://0123456789",
                "imageID": "registry.example.com/team/app@sha256:0123456789",
            }],
        });

        pod
    }

    fn virtual_service(self, n: usize) -> Value {
        let host = format!("svc{n}.{}.svc.cluster.local", self.namespace(n));
        let mut object = stored(
            "networking.istio.io/v1",
            "VirtualService",
            &self.namespace(n),
            &format!("svc{n}"),
        );

        object["spec"] = json!({
            "hosts": [host],
            "http": [
                {"match": [{"headers": {"x-canary": {"exact": "true"}}}],
                 "route": [{"destination": {"host": host, "subset": "v1"}}]},
                {"timeout": "10s", "retries": {"attempts": 3, "perTryTimeout": "2s"},
                 "route": [{"destination": {"host": host, "subset": "v0"}, "weight": 90},
                           {"destination": {"host": host, "subset": "v1"}, "weight": 10}]},
            ],
        });

        object
    }

    /// The DestinationRule of a service.
    fn destination_rule(self, n: usize) -> Value {
        let mut object = stored(
            "networking.istio.io/v1",
            "DestinationRule",
            &self.namespace(n),
            &format!("svc{n}"),
        );
        object["spec"] = json!({
            "host": format!("svc{n}.{}.svc.cluster.local", self.namespace(n)),
            "trafficPolicy": {"connectionPool": {"tcp": {"maxConnections": 100}}, "loadBalancer": {"simple": "LEAST_REQUEST"}},
            "subsets": [{"name": "v0", "labels": {"version": "v0"}}, {"name": "v1", "labels": {"version": "v1"}}],
        });
        object
    }
}

/// The creation time of all objects.
const TIME: &str = "2026-01-01T00:00:00Z";

/// A UID; they are never compared.
fn uid() -> &'static str {
    "6f1b3c1e-0d1c-4c7b-9b5e-3f7f6a2d9e10"
}

/// An object with the metadata that a server sets, including managed fields.
fn stored(version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:version": {}}, "f:annotations": {".": {}, "f:note": {}}},
        "f:spec": {
            "f:containers": {"k:{\"name\":\"app\"}": {
                ".": {}, "f:name": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:env": {".": {}}, "f:resources": {},
                "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                "f:livenessProbe": {".": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}}},
            }},
            "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:serviceAccountName": {},
        },
    });

    let mut metadata = json!({
        "name": name, "uid": uid(), "generation": 1, "creationTimestamp": TIME, "annotations": {"note": "made to measure"},
        "managedFields": [{
            "manager": "kubectl", "operation": "Update", "apiVersion": version, "time": TIME,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }],
    });

    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }

    json!({"apiVersion": version, "kind": kind, "metadata": metadata})
}

fn namespace(n: usize, ambient: bool) -> Value {
    let mut namespace = stored("v1", "Namespace", "", &format!("ns{n}"));
    if ambient {
        namespace["metadata"]["labels"] = json!({"istio.io/dataplane-mode": "ambient"});
    }
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    namespace["status"] = json!({"phase": "Active"});
    namespace
}

/// The etcd key of an object.
fn key(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };

    let kind = text("/kind");
    let name = text("/metadata/name");
    let group = text("/apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    let folder = match (group, kind) {
        (_, "Service") => "services/specs".to_owned(),
        (group, kind) if group.ends_with(".istio.io") => format!("{group}/{}", plural(kind)),
        (_, kind) => plural(kind),
    };

    match text("/metadata/namespace") {
        "" => format!("/registry/{folder}/{name}"),
        namespace => format!("/registry/{folder}/{namespace}/{name}"),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0_usize, |number, at| {
            number << 8 | usize::from(three.get(at).copied().unwrap_or(0))
        });
        for digit in 0..4 {
            let is_there = digit <= three.len();
            text.push(if is_there {
                char::from(DIGITS[number >> (18 - 6 * digit) & 63])
            } else {
                '='
            });
        }
    }
    text
}

impl Cluster {
    /// Waits until the API server has this number of services in its cache.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn wait_seen(&self, services: usize) -> Result<()> {
        let writer = self.writer().await?;
        let end = Instant::now() + SEEDING;

        for path in [
            "/api/v1/services",
            "/apis/discovery.k8s.io/v1/endpointslices",
            "/api/v1/pods",
        ] {
            loop {
                let page = writer
                    .get(&format!("{path}?limit=1&resourceVersion=0"))
                    .await?;
                let items = page
                    .pointer("/items")
                    .and_then(Value::as_array)
                    .map_or(0, Vec::len);
                let more = page
                    .pointer("/metadata/remainingItemCount")
                    .and_then(Value::as_u64)
                    .unwrap_or(0);
                if items > 1 || usize::try_from(more)? + 1 >= services {
                    break;
                }

                ensure!(
                    Instant::now() < end,
                    "the API server has {items} and {more} more of {path}, and that is not all"
                );
                sleep(Duration::from_millis(100)).await;
            }
        }

        sleep(Duration::from_secs(3)).await;
        Ok(())
    }

    /// Writes a world to etcd. The API server sees it like the writes of another API server.
    ///
    /// # Errors
    /// If etcd rejects it.
    pub async fn seed(&self, world: World) -> Result<usize> {
        self.seed_objects(world.objects()).await
    }

    /// Like [`Cluster::seed`], with any objects in the API server's format. Returns their number.
    ///
    /// # Errors
    /// If etcd rejects them.
    pub async fn seed_objects(&self, objects: impl IntoIterator<Item = Value>) -> Result<usize> {
        let mut objects = objects.into_iter();
        let mut count = 0;
        loop {
            let put = |object: Value| {
                let value = base64(object.to_string().as_bytes());
                json!({"requestPut": {"key": base64(key(&object).as_bytes()), "value": value}})
            };
            let puts: Vec<Value> = objects
                .by_ref()
                .take(MAX_PUTS_PER_TRANSACTION)
                .map(put)
                .collect();
            if puts.is_empty() {
                return Ok(count);
            }
            count += puts.len();
            let body = json!({"success": puts}).to_string();
            let reply = client::post(self.etcd_address, "etcd", "/v3/kv/txn", body).await?;
            ensure!(reply.status == 200, "etcd rejects: {}", reply.body);
        }
    }
}
