//! A small set of slots for objects whose names refer to each other, and random content for each
//! slot.

use navarch::api::any_object::AnyObject;
use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use serde_json::{Value, json};

use crate::policies::content;
use crate::world::read;

/// The namespaces of objects; the last is the root namespace.
pub(crate) const NAMESPACES: [&str; 3] = ["a", "b", "istio-system"];

/// Hosts in objects; the last ones are short, wildcards, or unknown.
pub(crate) const HOSTS: [&str; 8] = [
    "s0.a.svc.cluster.local",
    "s1.a.svc.cluster.local",
    "s0.b.svc.cluster.local",
    "ext.example.com",
    "other.example.com",
    "s0",
    "*.example.com",
    "nobody.example.org",
];

/// The workload of the second pod of namespace `b`, which opts in to a learned scope.
pub(crate) const LEARNER: &str = "web";

/// Values of `exportTo`.
const EXPORTS: [&[&str]; 4] = [&[], &["."], &["*"], &["b"]];

/// A slot that may have an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'static str,
    pub(crate) n: usize,
}

/// Picks one option after the other from the digits of a number.
pub(crate) struct Pick(u32);

impl Pick {
    pub(crate) fn below(&mut self, options: usize) -> usize {
        let options = u32::try_from(options).unwrap();
        let picked = self.0 % options;
        self.0 /= options;
        picked as usize
    }

    pub(crate) fn of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }

    pub(crate) fn yes(&mut self) -> bool {
        self.below(2) == 1
    }
}

pub(crate) fn places() -> Vec<Slot> {
    let kinds = [
        (Kind::Service, 3),
        (Kind::EndpointSlice, 3),
        (Kind::Pod, 3),
        (Kind::ServiceEntry, 2),
        (Kind::WorkloadEntry, 2),
        (Kind::VirtualService, 2),
        (Kind::DestinationRule, 2),
        (Kind::Gateway, 1),
        (Kind::Sidecar, 2),
        (Kind::PeerAuthentication, 2),
        (Kind::Namespace, 1),
        (Kind::EnvoyFilter, 1),
        (Kind::ProxyConfig, 1),
        (Kind::WorkloadGroup, 1),
        (Kind::AuthorizationPolicy, 1),
        (Kind::RequestAuthentication, 1),
        (Kind::Telemetry, 1),
        (Kind::WasmPlugin, 1),
        (Kind::TrafficExtension, 1),
        (Kind::Ingress, 1),
        (Kind::KubernetesGateway, 1),
    ];

    let nowhere = |kind| Slot {
        kind,
        namespace: "",
        n: 0,
    };
    let mut places = vec![nowhere(Kind::Node), nowhere(Kind::IngressClass)];

    for (kind, count) in kinds {
        for namespace in NAMESPACES {
            places.extend((0..count).map(|n| Slot { kind, namespace, n }));
        }
    }

    places
}

impl Slot {
    pub(crate) fn reference(self) -> ObjectRef {
        let name = match self.kind {
            Kind::Namespace => {
                return ObjectRef {
                    kind: self.kind,
                    name: NamespacedName::new("", self.namespace),
                };
            }
            Kind::Service => format!("s{}", self.n),
            Kind::Pod => format!("p{}", self.n),
            _ => format!("{}-{}", self.kind.as_str().to_lowercase(), self.n),
        };
        ObjectRef {
            kind: self.kind,
            name: NamespacedName::new(self.namespace, &name),
        }
    }

    /// One of the possible objects of this slot. `version` must have no effect on results.
    pub(crate) fn object(self, variant: u32, version: u32) -> AnyObject {
        let ObjectRef { kind, name } = self.reference();
        let mut pick = Pick(variant);
        let mut metadata = json!({
            "name": &*name.name,
            "creationTimestamp": format!("2026-01-01T00:00:0{}Z", self.n),
            "resourceVersion": version.to_string(),
            "generation": version,
        });

        if !name.namespace.is_empty() {
            metadata["namespace"] = json!(name.namespace.as_str());
        }

        let (api, rest) = self.content(kind, &mut metadata, &mut pick);
        let mut object = json!({ "apiVersion": api, "kind": kind.as_str(), "metadata": metadata });
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().cloned().unwrap());

        read(&object)
    }

    fn content(self, kind: Kind, metadata: &mut Value, pick: &mut Pick) -> (&'static str, Value) {
        const NETWORKING: &str = "networking.istio.io/v1";

        match kind {
            Kind::Service => ("v1", self.service(metadata, pick)),
            Kind::EndpointSlice => ("discovery.k8s.io/v1", self.slice(metadata, pick)),
            Kind::Pod => ("v1", self.pod(metadata, pick)),
            Kind::Node => ("v1", node(metadata, pick)),
            Kind::Namespace => {
                metadata["labels"] = match pick.below(5) {
                    0 => json!({}),
                    1 => json!({ "topology.istio.io/network": "n1" }),
                    2 => json!({ "team": "t" }),
                    3 => json!({ "istio.io/dataplane-mode": "ambient" }),
                    _ => json!({
                        "istio.io/use-waypoint": "gateway-0", "istio.io/use-waypoint-namespace": pick.of(&["a", "b"]),
                    }),
                };
                ("v1", json!({}))
            }
            Kind::ServiceEntry => (NETWORKING, json!({ "spec": service_entry(pick) })),
            Kind::WorkloadEntry => (NETWORKING, json!({ "spec": self.workload_entry(pick) })),
            Kind::VirtualService => (NETWORKING, json!({ "spec": virtual_service(pick) })),
            Kind::DestinationRule => (NETWORKING, json!({ "spec": destination_rule(pick) })),
            Kind::Gateway => (NETWORKING, json!({ "spec": gateway(pick) })),
            Kind::KubernetesGateway => (
                "gateway.networking.k8s.io/v1",
                self.waypoint(metadata, pick),
            ),
            Kind::Sidecar => (NETWORKING, json!({ "spec": sidecar(pick) })),
            Kind::PeerAuthentication => (
                "security.istio.io/v1",
                json!({ "spec": peer_authentication(pick) }),
            ),
            other => content(other, metadata, pick)
                .unwrap_or_else(|| unreachable!("no place is for a {other}")),
        }
    }

    /// The third byte of the addresses of a namespace.
    fn net(self) -> usize {
        NAMESPACES
            .iter()
            .position(|namespace| *namespace == self.namespace)
            .unwrap_or_default()
    }

    fn service(self, metadata: &mut Value, pick: &mut Pick) -> Value {
        let mut ports =
            vec![json!({ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" })];
        if pick.yes() {
            ports.push(json!({ "name": pick.of(&["tcp-db", "https", "grpc"]), "port": 9000, "protocol": "TCP" }));
        }

        let mut spec = json!({ "ports": ports, "selector": { "app": format!("s{}", self.n) } });

        match pick.below(5) {
            0 => spec["clusterIP"] = json!("None"),
            1 => {
                spec["type"] = json!("ExternalName");
                spec["externalName"] = json!(HOSTS[pick.below(5)]);
            }
            _ => spec["clusterIP"] = json!(format!("172.16.{}.{}", self.net(), self.n + 1)),
        }

        if let Some(export) = pick.of(&[None, None, Some("."), Some("*"), Some("b")]) {
            metadata["annotations"] = json!({ "networking.istio.io/exportTo": export });
        }

        if pick.yes() {
            metadata["labels"] = json!({ "istio.io/use": pick.of(&["x", "y"]) });
        }

        if pick.yes() {
            metadata["labels"]["istio.io/use-waypoint"] = json!("gateway-0");
            metadata["labels"]["istio.io/ingress-use-waypoint"] =
                json!(pick.of(&["true", "false"]));
        }

        json!({ "spec": spec })
    }

    /// A waypoint whose proxy is selected by the Service `s2` of its namespace.
    fn waypoint(self, metadata: &mut Value, pick: &mut Pick) -> Value {
        metadata["labels"] = json!({ "istio.io/waypoint-for": pick.of(&["service", "service", "workload", "all", "none"]) });
        let from = pick.of(&["Same", "All"]);
        json!({
            "spec": {
                "gatewayClassName": pick.of(&["istio-waypoint", "istio-waypoint", "other"]),
                "listeners": [{
                    "name": "mesh", "port": 15008, "protocol": "HBONE", "allowedRoutes": { "namespaces": { "from": from } },
                }],
            },
            "status": {
                "addresses": [{ "type": "Hostname", "value": format!("s2.{}.svc.cluster.local", self.namespace) }],
            },
        })
    }

    fn slice(self, metadata: &mut Value, pick: &mut Pick) -> Value {
        metadata["labels"] = json!({ "kubernetes.io/service-name": format!("s{}", self.n) });
        let pods: Vec<usize> = (0..3).filter(|_| pick.yes()).collect();
        let endpoint = |n: usize| {
            json!({
                "addresses": [format!("10.0.{}.{}", self.net(), n + 1)],
                "conditions": { "ready": true },
                "targetRef": { "kind": "Pod", "name": format!("p{n}"), "namespace": self.namespace },
            })
        };

        let mut endpoints: Vec<Value> = pods.into_iter().map(endpoint).collect();

        if pick.yes() {
            endpoints
                .push(json!({ "addresses": ["10.9.9.9"], "conditions": { "ready": pick.yes() } }));
        }

        json!({
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [
                { "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "tcp-db", "port": 9000, "protocol": "TCP" },
            ],
        })
    }

    fn pod(self, metadata: &mut Value, pick: &mut Pick) -> Value {
        let app = pick.of(&["s0", "s1", "s2"]);
        metadata["labels"] = json!({ "app": app, "version": pick.of(&["v1", "v2"]) });
        if pick.yes() {
            metadata["labels"]["security.istio.io/tlsMode"] = json!("istio");
        }
        if self.namespace == "b" && self.n == 1 {
            metadata["labels"]["navarch.io/scope"] = json!("learned");
            metadata["labels"]["service.istio.io/workload-name"] = json!(LEARNER);
        }

        match pick.below(4) {
            0 => metadata["annotations"] = json!({ "ambient.istio.io/redirection": "enabled" }),
            1 => metadata["labels"]["networking.istio.io/tunnel"] = json!("http"),
            2 => metadata["labels"]["istio.io/use-waypoint"] = json!("gateway-0"),
            _ => {}
        }

        let ip = format!("10.0.{}.{}", self.net(), self.n + 1);
        let ready = pick.of(&["True", "True", "False"]);
        json!({
            "spec": {
                "serviceAccountName": pick.of(&["default", "robot"]), "nodeName": "node-0",
                "containers": [{ "name": "app", "ports": [{ "name": "http", "containerPort": 8080 }] }],
            },
            "status": {
                "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }],
                "conditions": [{ "type": "Ready", "status": ready }],
            },
        })
    }

    fn workload_entry(self, pick: &mut Pick) -> Value {
        // The first one has the address of a pod.
        let address = format!("10.{}.{}.1", self.n, self.net());
        let mut spec = json!({
            "address": address,
            "labels": { "app": pick.of(&["s0", "s1", "we"]), "version": pick.of(&["v1", "v2"]) },
            "serviceAccount": pick.of(&["default", "robot"]),
        });
        if pick.yes() {
            spec["network"] = json!("n1");
        }
        if pick.yes() {
            spec["locality"] = json!("region1/zone2");
        }
        spec
    }
}

fn node(metadata: &mut Value, pick: &mut Pick) -> Value {
    let zone = pick.of(&["zone1", "zone2"]);
    metadata["labels"] =
        json!({ "topology.kubernetes.io/region": "region1", "topology.kubernetes.io/zone": zone });
    json!({})
}

fn service_entry(pick: &mut Pick) -> Value {
    let mut hosts = vec![pick.of(&HOSTS[..5])];
    if pick.yes() {
        hosts.push("more.example.com");
    }

    let mut spec = json!({
        "hosts": hosts,
        "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
        "location": pick.of(&["MESH_EXTERNAL", "MESH_INTERNAL"]),
        "exportTo": pick.of(&EXPORTS),
    });

    match pick.below(4) {
        0 => spec["resolution"] = json!("NONE"),
        1 => {
            spec["resolution"] = json!("DNS");
            spec["endpoints"] =
                json!([{ "address": "backend.example.net", "ports": { "http": 8080 } }]);
        }
        2 => {
            spec["resolution"] = json!("STATIC");
            spec["endpoints"] = json!([{ "address": pick.of(&["10.0.0.1", "10.7.7.7"]), "labels": { "version": "v1" } }]);
        }
        _ => {
            spec["resolution"] = json!("STATIC");
            spec["workloadSelector"] = json!({ "labels": { "app": pick.of(&["s0", "we"]) } });
        }
    }

    if pick.yes() {
        spec["ports"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "number": 9000, "name": "tcp", "protocol": "TCP" }));
    }

    if pick.yes() {
        spec["addresses"] = json!(["240.0.0.9"]);
    }

    spec
}

fn virtual_service(pick: &mut Pick) -> Value {
    let gateways: &[&str] =
        pick.of::<&[&str]>(&[&[], &["mesh"], &["a/gateway-0"], &["mesh", "gateway-0"]]);
    let mut routes = vec![json!({ "destination": { "host": pick.of(&HOSTS[..6]) }, "weight": 60 })];
    if pick.yes() {
        routes.push(json!({ "destination": { "host": pick.of(&HOSTS[..6]), "subset": "v1" }, "weight": 40 }));
    }
    let mut http = json!({ "route": routes });
    match pick.below(4) {
        0 => http["timeout"] = json!("5s"),
        1 => {
            http["match"] = json!([{ "uri": { "prefix": "/x" }, "sourceLabels": { "app": "s0" } }])
        }
        2 => http["match"] = json!([{ "headers": { "user": { "exact": "me" } } }]),
        _ => {}
    }
    json!({ "hosts": [pick.of(&HOSTS)], "gateways": gateways, "http": [http], "exportTo": pick.of(&EXPORTS) })
}

fn destination_rule(pick: &mut Pick) -> Value {
    let mut spec = json!({ "host": pick.of(&HOSTS), "exportTo": pick.of(&EXPORTS) });
    match pick.below(4) {
        0 => spec["trafficPolicy"] = json!({ "loadBalancer": { "simple": "ROUND_ROBIN" } }),
        1 => {
            spec["trafficPolicy"] =
                json!({ "tls": { "mode": pick.of(&["DISABLE", "ISTIO_MUTUAL", "SIMPLE"]) } })
        }
        2 => spec["trafficPolicy"] = json!({ "outlierDetection": { "consecutive5xxErrors": 3 } }),
        _ => {}
    }
    if pick.yes() {
        spec["subsets"] = json!([{ "name": "v1", "labels": { "version": "v1" } }]);
    }
    if pick.below(4) == 3 {
        spec["workloadSelector"] = json!({ "matchLabels": { "app": "s0" } });
    }
    spec
}

fn gateway(pick: &mut Pick) -> Value {
    let mut servers = vec![
        json!({ "port": { "number": 80, "name": "http", "protocol": "HTTP" }, "hosts": [pick.of(&["*", "*.example.com"])] }),
    ];
    if pick.yes() {
        let port = json!({ "number": 8443, "name": "tls", "protocol": "TLS" });
        servers.push(
            json!({ "port": port, "hosts": ["ext.example.com"], "tls": { "mode": "PASSTHROUGH" } }),
        );
    }
    json!({ "selector": { "istio": pick.of(&["ingressgateway", "other"]) }, "servers": servers })
}

fn sidecar(pick: &mut Pick) -> Value {
    let hosts: &[&str] = pick.of::<&[&str]>(&[
        &["./*"],
        &["*/*"],
        &["b/*", "istio-system/*"],
        &["*/s0.a.svc.cluster.local"],
        &["~/*"],
        &["a/*.example.com", "./s1.a.svc.cluster.local"],
    ]);

    let mut listener = json!({ "hosts": hosts });
    if pick.below(3) == 2 {
        listener["port"] = json!({ "number": 9000, "name": "tcp", "protocol": "TCP" });
    }

    let mut spec = json!({ "egress": [listener] });
    if pick.yes() {
        spec["workloadSelector"] = json!({ "labels": { "app": pick.of(&["s0", "s1"]) } });
    }

    if pick.yes() {
        spec["outboundTrafficPolicy"] = json!({ "mode": "REGISTRY_ONLY" });
    }

    spec
}

fn peer_authentication(pick: &mut Pick) -> Value {
    let mut spec =
        json!({ "mtls": { "mode": pick.of(&["STRICT", "PERMISSIVE", "DISABLE", "UNSET"]) } });
    if pick.yes() {
        spec["selector"] = json!({ "matchLabels": { "app": pick.of(&["s0", "s1"]) } });
        if pick.yes() {
            spec["portLevelMtls"] = json!({ "8080": { "mode": "DISABLE" } });
        }
    }
    spec
}
