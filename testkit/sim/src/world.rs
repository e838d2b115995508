//! The objects of a simulated cluster: some that never change, and slots for random ones.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::proxy::{POISON, Protocol, Spec};
use crate::random::Random;
use crate::replica::SYSTEM_NAMESPACE;

/// The namespaces of workloads.
pub const NAMESPACES: [&str; 3] = ["shop", "bank", "edge"];
/// The host of the service that never changes.
pub const ANCHOR: &str = "anchor.shop.svc.cluster.local";
/// The number of endpoints of that service.
pub const ANCHOR_ENDPOINTS: usize = 2;
/// The certificate and key of the gateway's secret.
const CERTIFICATE: &str = include_str!("world/tls.crt");
/// The private key, which only the gateway may get.
pub const PRIVATE_KEY: &str = include_str!("world/tls.key");
/// The name under which the gateway subscribes to the secret.
pub const SECRET: &str = "kubernetes://shop-tls";

/// A kind of objects with random content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// Service `s0` to `s2` of a namespace.
    Service,
    /// The endpoints of such a service.
    Endpoints,
    /// A pod behind such a service.
    Pod,
    /// A VirtualService.
    VirtualService,
    /// A DestinationRule.
    DestinationRule,
    /// A ServiceEntry, which gets an address.
    ServiceEntry,
    /// An AuthorizationPolicy.
    AuthorizationPolicy,
    /// A PeerAuthentication.
    PeerAuthentication,
    /// A Sidecar.
    Sidecar,
    /// A Gateway of Istio.
    Gateway,
    /// A Gateway of the Gateway API, which gets a status and a deployment.
    KubernetesGateway,
    /// An HTTPRoute, which gets a status.
    HttpRoute,
    /// An EnvoyFilter.
    EnvoyFilter,
    /// A namespace without workloads.
    Namespace,
    /// An Ingress, which gets a status.
    Ingress,
}

impl Slot {
    /// All.
    pub const ALL: [Self; 15] = [
        Self::Service,
        Self::Endpoints,
        Self::Pod,
        Self::VirtualService,
        Self::DestinationRule,
        Self::ServiceEntry,
        Self::AuthorizationPolicy,
        Self::PeerAuthentication,
        Self::Sidecar,
        Self::Gateway,
        Self::KubernetesGateway,
        Self::HttpRoute,
        Self::EnvoyFilter,
        Self::Namespace,
        Self::Ingress,
    ];

    /// API version and kind.
    #[must_use]
    pub fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::Service => ("v1", "Service"),
            Self::Endpoints => ("discovery.k8s.io/v1", "EndpointSlice"),
            Self::Pod => ("v1", "Pod"),
            Self::VirtualService => ("networking.istio.io/v1", "VirtualService"),
            Self::DestinationRule => ("networking.istio.io/v1", "DestinationRule"),
            Self::ServiceEntry => ("networking.istio.io/v1", "ServiceEntry"),
            Self::AuthorizationPolicy => ("security.istio.io/v1", "AuthorizationPolicy"),
            Self::PeerAuthentication => ("security.istio.io/v1", "PeerAuthentication"),
            Self::Sidecar => ("networking.istio.io/v1", "Sidecar"),
            Self::Gateway => ("networking.istio.io/v1", "Gateway"),
            Self::KubernetesGateway => ("gateway.networking.k8s.io/v1", "Gateway"),
            Self::HttpRoute => ("gateway.networking.k8s.io/v1", "HTTPRoute"),
            Self::EnvoyFilter => ("networking.istio.io/v1alpha3", "EnvoyFilter"),
            Self::Namespace => ("v1", "Namespace"),
            Self::Ingress => ("networking.k8s.io/v1", "Ingress"),
        }
    }

    /// The API group.
    #[must_use]
    pub fn group(self) -> &'static str {
        let (version, _) = self.api();
        version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// Namespace and name of one of its objects.
    #[must_use]
    pub fn name(self, number: u64) -> (String, String) {
        let index = usize::try_from(number).unwrap_or_default();
        let namespace = NAMESPACES.get(index % NAMESPACES.len()).copied();
        let namespace = namespace.unwrap_or_default().to_owned();
        let number = index / NAMESPACES.len() % 3;
        match self {
            Self::Service | Self::Endpoints => (namespace, format!("s{number}")),
            Self::Namespace => (String::new(), format!("empty{number}")),
            Self::PeerAuthentication if number == 0 => (namespace, "default".to_owned()),
            Self::Pod
            | Self::VirtualService
            | Self::DestinationRule
            | Self::ServiceEntry
            | Self::AuthorizationPolicy
            | Self::PeerAuthentication
            | Self::Sidecar
            | Self::Gateway
            | Self::KubernetesGateway
            | Self::HttpRoute
            | Self::EnvoyFilter
            | Self::Ingress => (
                namespace,
                format!("{}-{number}", self.api().1.to_lowercase()),
            ),
        }
    }

    /// An object with random content.
    #[must_use]
    pub fn object(self, number: u64, content: u64) -> Value {
        let (namespace, name) = self.name(number);
        let (version, kind) = self.api();
        let mut metadata = json!({ "name": name });
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        let mut random = Random::new(content, kind);
        let rest = content_of(self, &namespace, &name, &mut metadata, &mut random);
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata });
        if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
            object.extend(rest);
        }
        object
    }
}

/// The host of a random service.
fn host(random: &mut Random) -> String {
    match random.below(6) {
        0 => ANCHOR.to_owned(),
        1 => "ext.example.com".to_owned(),
        _ => {
            let namespace = random.of(&NAMESPACES);
            format!("s{}.{namespace}.svc.cluster.local", random.below(2))
        }
    }
}

/// The third byte of the addresses of a namespace.
fn net(namespace: &str) -> usize {
    NAMESPACES
        .iter()
        .position(|other| *other == namespace)
        .map_or(0, |index| index + 1)
}

fn content_of(
    slot: Slot,
    namespace: &str,
    name: &str,
    metadata: &mut Value,
    random: &mut Random,
) -> Value {
    match slot {
        Slot::Service => service(namespace, name, metadata, random),
        Slot::Endpoints => endpoints(namespace, name, metadata, random),
        Slot::Pod => pod(namespace, name, metadata, random),
        Slot::VirtualService => virtual_service(namespace, metadata, random),
        Slot::DestinationRule => {
            let policy = random.of(&["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM"]);
            let mut spec = json!({
                "host": host(random), "trafficPolicy": { "loadBalancer": { "simple": policy } },
            });
            if random.happens(300) {
                spec["exportTo"] = json!(["."]);
            }
            if random.happens(300) {
                spec["subsets"] = json!([{ "name": "v1", "labels": { "version": "v1" } }]);
            }
            json!({ "spec": spec })
        }
        Slot::ServiceEntry => json!({ "spec": {
            "hosts": [format!("ext{}.example.com", random.below(3))],
            "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
            "resolution": "STATIC",
            "endpoints": [{ "address": format!("10.9.0.{}", random.below(9) + 1) }],
        } }),
        Slot::AuthorizationPolicy => {
            let path = format!("/p{}", random.below(5));
            json!({ "spec": {
                "action": random.of(&["ALLOW", "DENY"]),
                "rules": [{ "to": [{ "operation": { "paths": [path] } }] }],
            } })
        }
        Slot::PeerAuthentication => {
            let mode = random.of(&["STRICT", "PERMISSIVE", "DISABLE"]);
            let mut spec = json!({ "mtls": { "mode": mode } });
            if name != "default" {
                spec["selector"] = json!({ "matchLabels": { "app": "web" } });
            }
            json!({ "spec": spec })
        }
        // The anchor stays visible to all, or the invariants about it would not hold.
        Slot::Sidecar => json!({ "spec": {
            "workloadSelector": { "labels": { "app": random.of(&["s0", "s1"]) } },
            "egress": [{ "hosts": ["shop/*", format!("{}/*", random.of(&NAMESPACES))] }],
        } }),
        Slot::Gateway => json!({ "spec": {
            "selector": { "app": "gateway" },
            "servers": [{
                "port": { "number": 80 + random.below(3), "name": "http", "protocol": "HTTP" },
                "hosts": [random.of(&["*", "shop.example.com"])],
            }],
        } }),
        Slot::KubernetesGateway => json!({ "spec": {
            "gatewayClassName": "istio",
            "listeners": [{
                "name": "http", "port": 80 + random.below(2), "protocol": "HTTP",
                "allowedRoutes": { "namespaces": { "from": random.of(&["Same", "All"]) } },
            }],
        } }),
        Slot::HttpRoute => json!({ "spec": {
            "parentRefs": [{ "name": format!("gateway-{}", random.below(3)) }],
            "hostnames": [format!("r{}.example.com", random.below(3))],
            "rules": [{ "backendRefs": [{ "name": format!("s{}", random.below(4)), "port": 80 }] }],
        } }),
        Slot::EnvoyFilter => json!({ "spec": {
            "workloadSelector": { "labels": { "app": random.of(&["web", "pay"]) } },
            "configPatches": [{
                "applyTo": "CLUSTER", "match": { "cluster": { "service": host(random) } },
                "patch": {
                    "operation": "MERGE",
                    "value": { "connect_timeout": format!("{}s", random.below(8) + 1) },
                },
            }],
        } }),
        Slot::Ingress => {
            metadata["annotations"] =
                json!({ "kubernetes.io/ingress.class": random.of(&["istio", "istio", "other"]) });
            let backend = json!({
                "service": { "name": format!("s{}", random.below(3)), "port": { "number": 80 } },
            });
            json!({ "spec": { "rules": [{
                "host": format!("i{}.example.com", random.below(3)),
                "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] },
            }] } })
        }
        Slot::Namespace => {
            metadata["labels"] = json!({ "team": format!("t{}", random.below(3)) });
            json!({})
        }
    }
}

fn service(namespace: &str, name: &str, metadata: &mut Value, random: &mut Random) -> Value {
    if random.happens(200) {
        metadata["annotations"] =
            json!({ "networking.istio.io/exportTo": random.of(&[".", "*", "bank"]) });
    }
    let mut ports = vec![json!({ "name": "http", "port": 80, "targetPort": 8080 })];
    if random.happens(400) {
        ports.push(json!({ "name": "tcp-db", "port": 9000, "targetPort": 9000 }));
    }
    let number = name.trim_start_matches('s');
    let address = if random.happens(150) {
        "None".to_owned()
    } else {
        format!(
            "172.16.{}.{}{}",
            net(namespace),
            random.below(3) + 1,
            number
        )
    };
    json!({ "spec": { "clusterIP": address, "ports": ports, "selector": { "app": name } } })
}

fn endpoints(namespace: &str, name: &str, metadata: &mut Value, random: &mut Random) -> Value {
    metadata["labels"] = json!({ "kubernetes.io/service-name": name });
    let endpoints: Vec<Value> = (0..3)
        .filter(|_| random.happens(600))
        .map(|number| {
            json!({
                "addresses": [format!("10.0.{}.{}", net(namespace), number + 10)],
                "conditions": { "ready": true },
                "targetRef": { "kind": "Pod", "name": format!("pod-{number}"), "namespace": namespace },
            })
        })
        .collect();
    json!({
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "http", "port": 8080 }, { "name": "tcp-db", "port": 9000 }],
    })
}

fn pod(namespace: &str, name: &str, metadata: &mut Value, random: &mut Random) -> Value {
    metadata["labels"] = json!({
        "app": format!("s{}", random.below(3)), "version": random.of(&["v1", "v2"]),
        "security.istio.io/tlsMode": random.of(&["istio", "disabled"]),
    });
    let number = name.trim_start_matches("pod-").parse().unwrap_or(0) + 10;
    let address = format!("10.0.{}.{number}", net(namespace));
    let account = random.of(&["default", "robot"]);
    running(&address, account, random.happens(800))
}

/// Spec and status of a pod.
fn running(address: &str, account: &str, is_ready: bool) -> Value {
    let ready = if is_ready { "True" } else { "False" };
    json!({
        "spec": {
            "serviceAccountName": account, "nodeName": "node-0",
            "containers": [{ "name": "app", "ports": [{ "containerPort": 8080 }] }],
        },
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    })
}

fn virtual_service(namespace: &str, metadata: &mut Value, random: &mut Random) -> Value {
    if random.happens(350) {
        metadata["annotations"] = json!({
            "navarch.io/rollout": "25%,50%,100%", "navarch.io/rollout-pause": "20s",
        });
    }
    let mut http = json!({ "route": [{ "destination": { "host": host(random) } }] });
    if random.happens(500) {
        http["timeout"] = json!(format!("{}s", random.below(9) + 1));
    }
    if random.happens(250) {
        http["headers"] = json!({ "request": { "set": { POISON: "1" } } });
    }
    let visibility = random.of(&["*", "*", "*", "*", ".", "bank"]);
    if visibility == "." {
        http["headers"]["request"]["add"] = json!({ private_header(namespace): "1" });
    }
    json!({ "spec": { "hosts": [host(random)], "http": [http], "exportTo": [visibility] } })
}

/// A header in routes that only proxies of this namespace may have.
#[must_use]
pub fn private_header(namespace: &str) -> String {
    format!("sim-private-{namespace}")
}

/// The objects that are there from the beginning, and never change.
#[must_use]
pub fn permanent(specs: &[Spec]) -> Vec<Value> {
    let encoded = |text: &str| BASE64_STANDARD.encode(text);
    let mut objects: Vec<Value> = NAMESPACES
        .iter()
        .chain([&SYSTEM_NAMESPACE])
        .map(
            |name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        )
        .collect();

    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "istio", "namespace": SYSTEM_NAMESPACE },
        "data": { "mesh": "trustDomain: cluster.local\n" },
    }));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "node-0", "labels": { "topology.kubernetes.io/region": "r1" } },
    }));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "anchor", "namespace": "shop" },
        "spec": {
            "clusterIP": "172.16.0.1", "selector": { "app": "anchor" },
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
    }));

    objects.push(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "istio-ingressgateway", "namespace": SYSTEM_NAMESPACE },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "172.16.0.2", "selector": { "app": "gateway" },
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } },
    }));

    let addresses: Vec<String> = (0..ANCHOR_ENDPOINTS)
        .map(|number| format!("10.0.0.{}", number + 1))
        .collect();
    objects.push(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "anchor", "namespace": "shop",
            "labels": { "kubernetes.io/service-name": "anchor" },
        },
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(|address| json!({
            "addresses": [address], "conditions": { "ready": true },
        })).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 8080 }],
    }));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "shop-tls", "namespace": "edge" },
        "data": { "tls.crt": encoded(CERTIFICATE), "tls.key": encoded(PRIVATE_KEY) },
    }));

    for spec in specs {
        let labels: serde_json::Map<String, Value> = spec
            .labels
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        let account = spec.account.as_deref().unwrap_or("default");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": spec.name, "namespace": spec.namespace, "labels": labels },
        });
        if let (Some(pod), Value::Object(rest)) = (
            pod.as_object_mut(),
            running(&spec.address.to_string(), account, true),
        ) {
            pod.extend(rest);
        }
        objects.push(pod);
    }
    objects
}

/// The proxies of a simulation.
#[must_use]
pub fn proxies(seed: u64) -> Vec<Spec> {
    let mut random = Random::new(seed, "proxies");
    let count = 3 + random.below(4);
    let mut specs: Vec<Spec> = (0..count)
        .map(|number| sidecar(number, &mut random))
        .collect();
    // The second one has no right to read secrets.
    for (name, account, last) in [("gateway", "gateway", 1), ("plain", "plain", 2)] {
        specs.push(Spec {
            name: format!("{name}-0"),
            namespace: "edge".to_owned(),
            kind: "router".to_owned(),
            address: [10, 1, 3, last].into(),
            labels: vec![("app".to_owned(), name.to_owned())],
            protocol: random.of(&[Protocol::Delta, Protocol::State]),
            account: Some(account.to_owned()),
            secrets: vec![SECRET.to_owned()],
            rejects: true,
        });
    }
    specs
}

fn sidecar(number: u64, random: &mut Random) -> Spec {
    let (namespace, app) = random.of(&[("shop", "web"), ("bank", "pay")]);
    // Some ask for a secret that they may not have: with and without an identity.
    let is_curious = random.happens(300);
    Spec {
        name: format!("{app}-{number}"),
        namespace: namespace.to_owned(),
        kind: "sidecar".to_owned(),
        address: [10, 1, 1, u8::try_from(number).unwrap_or_default() + 1].into(),
        labels: vec![("app".to_owned(), app.to_owned())],
        protocol: random.of(&[Protocol::Delta, Protocol::Delta, Protocol::State]),
        account: random.happens(800).then(|| app.to_owned()),
        secrets: if is_curious {
            vec![SECRET.to_owned(), "kubernetes://edge/shop-tls".to_owned()]
        } else {
            Vec::new()
        },
        rejects: random.happens(800),
    }
}
