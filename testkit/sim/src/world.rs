//! The objects of a simulated cluster: some that never change, and slots for random ones.

mod content;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use self::content::Draft;
use crate::api_server::ApiServer;
use crate::proxy::{Protocol, Spec};
use crate::random::Random;
use crate::replica::SYSTEM_NAMESPACE;

/// The namespaces of workloads.
pub const NAMESPACES: [&str; 3] = ["shop", "bank", "edge"];
/// The host of the service that never changes.
pub const ANCHOR: &str = "anchor.shop.svc.cluster.local";
/// The number of endpoints of that service.
pub const ANCHOR_ENDPOINTS: usize = 2;
/// A header in the routes of each version of a VirtualService, with another value for each.
pub const VERSION_HEADER: &str = "sim-version";
/// The certificate and key of the gateway's secret.
const CERTIFICATE: &str = include_str!("world/tls.crt");
/// The private key, which only the gateway may get.
pub const PRIVATE_KEY: &str = include_str!("world/tls.key");
/// A port that only services have which other namespaces may not see.
pub(crate) const PRIVATE_PORT: u16 = 7001;
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
    fn api(self) -> (&'static str, &'static str) {
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
    fn group(self) -> &'static str {
        let (version, _) = self.api();
        version.rsplit_once('/').map_or("", |(group, _)| group)
    }
}

/// An object with random content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub slot: Slot,
    /// Which of the names of its kind it has.
    pub number: u64,
}

impl ObjectKey {
    /// Namespace and name.
    fn name(self) -> (String, String) {
        let index = usize::try_from(self.number).unwrap_or_default();
        let namespace = NAMESPACES.get(index % NAMESPACES.len()).copied();
        let namespace = namespace.unwrap_or_default().to_owned();
        let number = index / NAMESPACES.len();

        match self.slot {
            Slot::Service | Slot::Endpoints => (namespace, format!("s{number}")),
            Slot::Namespace => (String::new(), format!("empty{number}")),
            Slot::PeerAuthentication if number == 0 => (namespace, "default".to_owned()),
            Slot::Pod
            | Slot::VirtualService
            | Slot::DestinationRule
            | Slot::ServiceEntry
            | Slot::AuthorizationPolicy
            | Slot::PeerAuthentication
            | Slot::Sidecar
            | Slot::Gateway
            | Slot::KubernetesGateway
            | Slot::HttpRoute
            | Slot::EnvoyFilter
            | Slot::Ingress => {
                let (_, kind) = self.slot.api();
                (namespace, format!("{}-{number}", kind.to_lowercase()))
            }
        }
    }

    /// The seed of a content that is as wanted, which must be that of some contents.
    pub(crate) fn content_with(
        self,
        random: &mut Random,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> u64 {
        loop {
            let content = random.below(1 << 32);
            if is_wanted(&self.object(content)) {
                return content;
            }
        }
    }

    /// The object with content of this seed.
    fn object(self, content: u64) -> Value {
        let (namespace, name) = self.name();
        let (version, kind) = self.slot.api();
        let mut metadata = json!({ "name": name });
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }

        let mut random = Random::new(content, kind);
        let draft = Draft {
            namespace: &namespace,
            name: &name,
            metadata: &mut metadata,
            random: &mut random,
        };
        let rest = draft.content(self.slot);
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata });
        with_members(object, rest)
    }
}

/// What a user does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Creates or changes it.
    Put {
        /// Which one.
        object: ObjectKey,
        /// Its content, as a seed.
        content: u64,
    },
    /// Deletes it.
    Delete(ObjectKey),
}

impl Edit {
    /// Sends it to an API server.
    pub fn send(self, server: &ApiServer) {
        match self {
            Self::Put { object, content } => server.apply(&object.object(content)),
            Self::Delete(object) => {
                let (namespace, name) = object.name();
                let (_, kind) = object.slot.api();
                server.delete(object.slot.group(), kind, &namespace, &name);
            }
        }
    }
}

/// An object with further members.
fn with_members(mut object: Value, members: Value) -> Value {
    if let (Some(object), Value::Object(members)) = (object.as_object_mut(), members) {
        object.extend(members);
    }
    object
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

/// A name in all that private objects of this namespace add to resources: a header of routes, a
/// subset of clusters, and the name of statistics that a patch sets.
#[must_use]
pub fn private_name(namespace: &str) -> String {
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

    objects.extend(specs.iter().map(pod));
    objects
}

/// The pod of a proxy.
#[must_use]
pub fn pod(spec: &Spec) -> Value {
    let labels: serde_json::Map<String, Value> = spec
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let account = spec.account.as_deref().unwrap_or("default");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": spec.name, "namespace": spec.namespace, "labels": labels },
    });
    let rest = running(&spec.address.to_string(), account, true);
    with_members(pod, rest)
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
            has_agent: false,
        });
    }

    let mut agents = Random::new(seed, "agents");
    for spec in specs.iter_mut().filter(|spec| spec.account.is_some()) {
        spec.has_agent = agents.happens(500);
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
        has_agent: false,
    }
}
