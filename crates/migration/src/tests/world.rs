//! A small mesh: `web` and `api` in the namespace that moves, a client in another one, and a pod
//! outside of the mesh.

use std::collections::BTreeSet;
use std::thread;

use navarch_api::mesh::MeshConfig;
use navarch_api::settings::Settings;
use serde_json::{Value, json};

use crate::judge::MeshSettings;
use crate::objects::{AUTHORIZATION, Objects};

/// A mesh, and the settings of its control plane.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) all: Objects,
    pub(super) sidecars_use_waypoints: bool,
    pub(super) has_components: bool,
    /// The revision of the control plane, and its tags.
    pub(super) revision: String,
    pub(super) tags: BTreeSet<String>,
    /// The namespace of ztunnel.
    pub(super) ztunnel_namespace: &'static str,
}

/// What a pod has of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A sidecar, which accepts HBONE or not.
    Sidecar {
        accepts_hbone: bool,
    },
    Ambient,
    Outside,
}

/// A Deployment with its pods, and a Service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) namespace: &'static str,
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    /// The third part of its addresses.
    pub(super) subnet: usize,
    pub(super) pods: usize,
    pub(super) port: u16,
    pub(super) target: u16,
}

impl Default for World {
    fn default() -> Self {
        let mut world = Self::empty();
        let sidecar = Mode::Sidecar {
            accepts_hbone: true,
        };
        for (namespace, name, mode, subnet) in [
            ("shop", "web", sidecar, 1),
            ("shop", "api", sidecar, 2),
            ("client", "client", sidecar, 3),
            ("outside", "stranger", Mode::Outside, 4),
        ] {
            world.add_workload(Workload {
                namespace,
                name,
                mode,
                subnet,
                pods: 2,
                port: 80,
                target: 8080,
            });
        }
        world
    }
}

impl World {
    /// Namespaces without workloads.
    pub(super) fn empty() -> Self {
        let mut world = Self {
            all: Objects::default(),
            sidecars_use_waypoints: false,
            has_components: true,
            revision: String::new(),
            tags: BTreeSet::new(),
            ztunnel_namespace: "istio-system",
        };
        for (name, labels) in [
            ("shop", json!({ "istio-injection": "enabled" })),
            ("client", json!({ "istio-injection": "enabled" })),
            ("outside", json!({})),
            ("istio-system", json!({})),
        ] {
            world.all.add(json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
            }));
        }
        world.all.add(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": { "name": "istio-waypoint" },
            "spec": { "controllerName": "istio.io/mesh-controller" },
        }));
        world
    }

    /// The objects, with the components of ambient mode.
    pub(super) fn objects(&self) -> Objects {
        let mut objects = self.all.clone();
        for (name, namespace) in [
            ("ztunnel", self.ztunnel_namespace),
            ("istio-cni-node", "kube-system"),
        ] {
            if self.has_components {
                objects.add(json!({
                    "apiVersion": "apps/v1", "kind": "DaemonSet",
                    "metadata": { "name": name, "namespace": namespace },
                }));
            }
        }
        objects
    }

    /// The settings of the control plane.
    pub(super) fn settings(&self) -> MeshSettings {
        let mut settings = Settings {
            ambient: true,
            sidecar_listening_hbone: true,
            ..Settings::default()
        };
        settings.hbone.sends = true;
        settings.hbone.ingress_waypoints = true;
        settings.hbone.sidecar_waypoints = self.sidecars_use_waypoints;
        settings.clusters.revision.clone_from(&self.revision);
        MeshSettings {
            settings,
            mesh: MeshConfig::istio_defaults(),
            tags: self.tags.clone(),
            ztunnel_namespaces: BTreeSet::from(["istio-system".to_owned()]),
        }
    }

    /// Adds an object in JSON.
    pub(super) fn add(&mut self, json: &str) {
        self.all.add(serde_json::from_str(json).unwrap());
    }

    /// Adds an AuthorizationPolicy of `shop` with this spec in JSON.
    pub(super) fn add_policy(&mut self, name: &str, spec: &str) {
        let spec: Value = serde_json::from_str(spec).unwrap();
        self.all.add(json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": { "name": name, "namespace": "shop" }, "spec": spec,
        }));
    }

    /// Labels an AuthorizationPolicy of `shop` with a revision.
    pub(super) fn set_revision(&mut self, policy: &str, revision: &str) {
        let found = self.all.find(AUTHORIZATION, "shop", policy).unwrap();
        let mut labelled = found.1.clone();
        labelled["metadata"]["labels"] = json!({ "istio.io/rev": revision });
        self.all.add(labelled);
    }

    /// Adds a Deployment and its pods; in `shop` also its Service and endpoints.
    pub(super) fn add_workload(&mut self, workload: Workload) {
        let Workload {
            namespace, name, ..
        } = workload;
        self.all.add(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "template": { "metadata": { "labels": { "app": name } } } },
        }));
        for index in 1..=workload.pods {
            self.all.add(pod(workload, index));
        }
        if namespace == "shop" {
            self.add_service(workload);
        }
    }

    /// Adds the Service of a workload, and its endpoints.
    fn add_service(&mut self, workload: Workload) {
        let Workload {
            namespace,
            name,
            subnet,
            port,
            target,
            ..
        } = workload;
        let address = format!("10.96.{subnet}.1");
        self.all.add(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": namespace },
            "spec": {
                "clusterIP": address, "clusterIPs": [address],
                "selector": { "app": name },
                "ports": [{ "name": "http", "port": port, "targetPort": target }],
            },
        }));

        let endpoint = |index: usize| {
            let pod = format!("{name}-1a-{index}");
            json!({
                "addresses": [format!("10.1.{subnet}.{index}")],
                "conditions": { "ready": true },
                "targetRef": { "kind": "Pod", "name": pod, "namespace": namespace },
            })
        };
        let endpoints: Vec<Value> = (1..=workload.pods).map(endpoint).collect();
        self.all.add(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name, "namespace": namespace,
                "labels": { "kubernetes.io/service-name": name },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": target, "protocol": "TCP" }],
            "endpoints": endpoints,
        }));
    }
}

/// A pod of a workload; its version is its index.
fn pod(workload: Workload, index: usize) -> Value {
    let Workload {
        namespace,
        name,
        subnet,
        ..
    } = workload;
    let version = format!("v{index}");
    let mut labels = json!({ "app": name, "version": version, "pod-template-hash": "1a" });
    let mut annotations = json!({});
    let mut containers = vec![json!({ "name": "app", "image": "app" })];
    match workload.mode {
        Mode::Sidecar { accepts_hbone } => {
            labels["security.istio.io/tlsMode"] = json!("istio");
            annotations["sidecar.istio.io/status"] = json!("{}");
            let mut environment = Vec::new();
            if accepts_hbone {
                labels["networking.istio.io/tunnel"] = json!("http");
                environment.push(json!({ "name": "ISTIO_META_ENABLE_HBONE", "value": "true" }));
            }
            containers.push(json!({ "name": "istio-proxy", "image": "proxy", "env": environment }));
        }
        Mode::Ambient => annotations["ambient.istio.io/redirection"] = json!("enabled"),
        Mode::Outside => {}
    }

    let ip = format!("10.1.{subnet}.{index}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-1a-{index}"), "namespace": namespace,
            "labels": labels, "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-1a"),
                "uid": "u", "controller": true,
            }],
        },
        "spec": { "nodeName": "n1", "serviceAccountName": name, "containers": containers },
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

/// Runs with the stack of a plan.
pub(super) fn deep<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::Builder::new()
        .stack_size(navarch_answers::STACK)
        .spawn(work);
    thread.unwrap().join().unwrap()
}

/// A value without members that are empty maps, which an API server drops.
pub(super) fn without_empty_maps(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members
                .iter()
                .map(|(key, value)| (key.clone(), without_empty_maps(value)));
            Value::Object(kept.filter(|(_, value)| *value != json!({})).collect())
        }
        Value::Array(items) => items.iter().map(without_empty_maps).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
