//! Mesh state, engine, and proxies that subscribe as Envoy does.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use navarch::api::any_object::AnyObject;
use navarch::api::identity::Identity;
use navarch::api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch::api::mesh::MeshConfig;
use navarch::api::names::{Hostname, Namespace, ResourceName, ServiceAccount};
use navarch::api::settings::Settings;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, Sink};
use navarch::push::learned::LearnedChange;
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch::push::view::Translator;
use navarch_base::resource_version::Version;
use navarch_proto::json::Codec;
use serde_json::{Value, json};

use crate::universe::{HOSTS, LEARNER, Slot};

/// The types to which proxies subscribe, in Envoy's order.
pub(crate) const TYPES: [ResourceType; 7] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::VirtualHost,
    ResourceType::ExtensionConfig,
    ResourceType::NameTable,
];

pub(crate) const PROXIES: usize = 10;

/// The number of mesh configs.
pub(crate) const MESHES: u8 = 6;

/// The collections of one proxy, by type.
pub(crate) type Shown = BTreeMap<ResourceType, Arc<Collection>>;

/// The subscriptions of a proxy, by type.
pub(crate) type Interests = BTreeMap<ResourceType, Interest>;

/// Keeps the last collection of each type, and the types pushed since the last check.
#[derive(Default)]
pub(crate) struct Last {
    shown: Mutex<Shown>,
    came: Mutex<BTreeSet<ResourceType>>,
}

impl Sink for Last {
    fn publish(
        &self,
        resource_type: ResourceType,
        collection: Arc<Collection>,
        _: &Arc<PushCause>,
    ) {
        self.shown.lock().unwrap().insert(resource_type, collection);
        self.came.lock().unwrap().insert(resource_type);
    }
}

/// A connected proxy.
pub(crate) struct Client {
    id: ProxyId,
    sink: Arc<Last>,
    pub(crate) interests: Interests,
}

/// A small control plane.
pub(crate) struct Mesh {
    pub(crate) mesh_state: MeshState,
    pub(crate) engine: Engine,
    pub(crate) clients: BTreeMap<usize, Client>,
}

impl Mesh {
    pub(crate) fn new(translator: &Arc<dyn Translator>) -> Self {
        Self::on([], translator)
    }

    /// Creates one with these objects.
    pub(crate) fn on(
        changes: impl IntoIterator<Item = Change>,
        translator: &Arc<dyn Translator>,
    ) -> Self {
        let mut mesh_state = MeshState::new(settings());
        mesh_state.apply(changes);
        let engine = Engine::new(mesh_state.context(), translator.clone());
        Self {
            mesh_state,
            engine,
            clients: BTreeMap::new(),
        }
    }

    /// Applies a batch, and returns which types were pushed to which proxies.
    pub(crate) fn apply(&mut self, changes: Vec<Change>) -> BTreeSet<(usize, ResourceType)> {
        self.clients
            .values()
            .for_each(|client| client.sink.came.lock().unwrap().clear());
        let facts = self.mesh_state.apply(changes);
        if !facts.is_empty() {
            self.engine.apply(self.mesh_state.context(), facts);
        }
        let came = self
            .clients
            .iter()
            .map(|(n, client)| (*n, client.sink.came.lock().unwrap().clone()));
        came.flat_map(|(n, types)| {
            types
                .into_iter()
                .map(move |resource_type| (n, resource_type))
        })
        .collect()
    }

    /// Connects or reconnects a proxy with these subscriptions.
    pub(crate) fn connect(&mut self, n: usize, interests: Interests) {
        self.disconnect(n);
        let sink = Arc::new(Last::default());
        let id = self.engine.connect(proxy(n), sink.clone());
        for (resource_type, interest) in &interests {
            self.engine.subscribe(id, *resource_type, interest.clone());
        }
        self.clients.insert(
            n,
            Client {
                id,
                sink,
                interests,
            },
        );
    }

    pub(crate) fn disconnect(&mut self, n: usize) {
        if let Some(client) = self.clients.remove(&n) {
            self.engine.disconnect(client.id);
        }
    }

    /// Subscribes a proxy to the endpoints and routes that its clusters and listeners name.
    pub(crate) fn follow(&mut self, n: usize) {
        let Some(client) = self.clients.get(&n) else {
            return;
        };

        let mut interests = client.interests.clone();
        let of = |resource_type| {
            self.engine
                .published(client.id, resource_type)
                .map(|shown| named_in(&shown))
                .unwrap_or_default()
        };

        interests.insert(ResourceType::Endpoint, names(of(ResourceType::Cluster)));
        let routes = names(of(ResourceType::Listener));
        interests.insert(
            ResourceType::VirtualHost,
            Interest {
                wildcard: true,
                ..routes.clone()
            },
        );

        interests.insert(ResourceType::ExtensionConfig, routes.clone());
        interests.insert(ResourceType::Route, routes);

        for (resource_type, interest) in &interests {
            if client.interests.get(resource_type) != Some(interest) {
                self.engine
                    .subscribe(client.id, *resource_type, interest.clone());
            }
        }

        self.clients.get_mut(&n).unwrap().interests = interests;
    }

    /// Whether a proxy that starts now gets its virtual hosts one by one.
    pub(crate) fn has_large_routes(&mut self, n: usize) -> bool {
        let id = self.engine.connect_to_ask(proxy(n));
        let is_large = self.engine.has_large_routes(id);
        self.engine.disconnect(id);
        is_large
    }

    /// The collections of a proxy; they must equal those last pushed to it.
    pub(crate) fn shown(&self, n: usize) -> Shown {
        let client = &self.clients[&n];
        let types = client.interests.keys();
        let shown: Shown = types
            .filter_map(|resource_type| {
                Some((
                    *resource_type,
                    self.engine.published(client.id, *resource_type)?,
                ))
            })
            .collect();
        assert_eq!(
            *client.sink.shown.lock().unwrap(),
            shown,
            "the last push to proxy {n} differs from its collections"
        );
        shown
    }
}

/// Ambient mode adds waypoints to everything that exists without it.
fn settings() -> Settings {
    let mut settings = Settings {
        ambient: true,
        // Tables of this world have up to some ten virtual hosts.
        fine_grained_routes_min_hosts: Some(4),
        ..Settings::default()
    };
    settings.hbone.sends = true;
    settings.hbone.ingress_waypoints = true;
    settings.hbone.waypoints_leave_network = true;
    settings
}

/// The subscriptions of a new proxy.
pub(crate) fn first_interests() -> Interests {
    let everything = Interest {
        wildcard: true,
        ..Interest::default()
    };
    let wildcards = TYPES
        .into_iter()
        .filter(|resource_type| resource_type.is_wildcard_by_default());
    wildcards
        .map(|resource_type| (resource_type, everything.clone()))
        .collect()
}

fn names(names: BTreeSet<String>) -> Interest {
    Interest {
        wildcard: false,
        names: Arc::new(names.iter().map(ResourceName::new).collect()),
    }
}

/// The proxies: two that differ in name and address only, and others with another namespace, kind,
/// version, locality, form of routes or of scope.
pub(crate) fn proxy(n: usize) -> Arc<Proxy> {
    let (kind, namespace, pod, app) = match n {
        0 => ("sidecar", "a", "p0", "s0"),
        1 => ("sidecar", "a", "p1", "s0"),
        2 => ("sidecar", "b", "p0", "s1"),
        3 => ("router", "istio-system", "gateway", "gateway"),
        4 => ("sidecar", "nowhere", "lone", "s0"),
        6 => ("sidecar", "a", "p2", "s0"),
        7 => ("router", "istio-system", "gateway-2", "gateway"),
        8 => ("waypoint", "a", "p2", "s2"),
        9 => ("sidecar", "b", "p1", "s1"),
        _ => ("sidecar", "a", "workloadentry-1", "we"),
    };

    let ip = match n {
        0 => "10.0.0.1",
        1 => "10.0.0.2",
        2 => "10.0.1.1",
        3 => "10.0.2.9",
        4 => "10.8.0.1",
        6 | 8 => "10.0.0.3",
        7 => "10.0.2.8",
        9 => "10.0.1.2",
        _ => "10.1.0.1",
    };

    let mut metadata = json!({
        "NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "MESH_ID": "cluster.local",
        "SERVICE_ACCOUNT": "default", "INSTANCE_IPS": ip, "INTERCEPTION_MODE": "REDIRECT", "NAME": pod,
        "LABELS": { "app": app, "version": "v1" },
    });

    match n {
        2 => {
            metadata["DNS_CAPTURE"] = json!("true");
            metadata["NETWORK"] = json!("n1");
        }
        3 | 7 => metadata["LABELS"] = json!({ "istio": "ingressgateway" }),
        8 => metadata["LABELS"]["gateway.networking.k8s.io/gateway-name"] = json!("gateway-0"),
        9 => metadata["LABELS"]["navarch.io/scope"] = json!("learned"),
        _ => {}
    }

    metadata["FINE_GRAINED_ROUTES"] = json!(n == 6 || n == 7);
    let locality = if n == 4 {
        Locality::parse("region1/zone1")
    } else {
        Locality::default()
    };

    let node = format!("{kind}~{ip}~{pod}.{namespace}~{namespace}.svc.cluster.local");
    let mut proxy = Proxy::parse(&node, metadata, locality).unwrap();
    proxy.identity =
        Identity::parse(&format!("spiffe://cluster.local/ns/{namespace}/sa/default")).ok();
    proxy.uses_delta = true;
    proxy.has_learned_scope = n == 9;
    if n == 4 {
        proxy.extensions = Some(Arc::default());
    }

    Arc::new(proxy)
}

pub(crate) fn mesh_config(n: u8) -> Change {
    let text = match n {
        0 => "{}",
        1 => "outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
        2 => "defaultVirtualServiceExportTo: ['.']\ndefaultDestinationRuleExportTo: ['.']",
        3 => "enableAutoMtls: false\naccessLogFile: /dev/stdout",
        4 => {
            "enableTracing: true\nextensionProviders:\n- {name: zip, zipkin: {service: s0.a.svc.cluster.local, port: 80}}\n\
             defaultProviders: {tracing: [zip], metrics: [prometheus]}\ningressControllerMode: DEFAULT"
        }
        _ => "defaultServiceExportTo: ['.']\ntrustDomain: other.local",
    };
    let config = MeshConfig::istio_defaults().apply(text).unwrap().value;
    Change::Mesh(Arc::new(config))
}

/// What a workload has used: `change` of one of the hosts in objects.
pub(crate) fn learned(change: fn(LearnedHosts) -> LearnedChange, host: usize) -> Change {
    let workload = LearnedWorkload {
        namespace: Namespace::new("b"),
        account: ServiceAccount::new("default"),
        name: Arc::from(LEARNER),
    };
    let hosts = LearnedHosts::from([Hostname::new(HOSTS[host])]);
    Change::Learned(workload, change(hosts))
}

/// The objects by slot, the number of the mesh config, and the hosts that the learner has used.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<Slot, AnyObject>,
    pub(crate) mesh: u8,
    pub(crate) learned: BTreeSet<usize>,
}

impl State {
    pub(crate) fn changes(&self) -> Vec<Change> {
        let objects = self.objects.values().cloned().map(Change::Put);
        let hosts = self.learned.iter();
        let learned = hosts.map(|host| learned(LearnedChange::Add, *host));
        std::iter::once(mesh_config(self.mesh))
            .chain(objects)
            .chain(learned)
            .collect()
    }
}

thread_local! {
    /// The codec is costly to create, and a case decodes the same resources again and again.
    static KNOWN: RefCell<(Codec, BTreeMap<Version, BTreeSet<String>>)> =
        RefCell::new((Codec::new(), BTreeMap::new()));
}

/// The endpoints or routes that clusters or listeners refer to; for other types, the names of all
/// resources.
fn named_in(collection: &Collection) -> BTreeSet<String> {
    KNOWN.with_borrow_mut(|(codec, known)| {
        let mut all = BTreeSet::new();
        for resource in &collection.resources {
            let found = known.entry(resource.version).or_insert_with(|| {
                // The resources of the test's own translator are not protobuf; they have the same
                // names in all types.
                let own = BTreeSet::from([resource.name.as_str().to_owned()]);
                match codec.any_to_json(collection.resource_type.type_url(), &resource.body) {
                    Ok(json) => references(&json),
                    Err(_) => own,
                }
            });
            all.extend(found.iter().cloned());
        }
        all
    })
}

/// The names of endpoints and routes to which a cluster or listener refers.
fn references(json: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if json["type"] == "EDS" {
        let name = json["edsClusterConfig"]["serviceName"]
            .as_str()
            .or(json["name"].as_str());
        found.extend(name.map(str::to_owned));
    }
    collect(json, &mut found);
    found
}

fn collect(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            into.extend(
                map.get("routeConfigName")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            if map.contains_key("configDiscovery") {
                into.extend(map.get("name").and_then(Value::as_str).map(str::to_owned));
            }
            map.values().for_each(|value| collect(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, into)),
        _ => {}
    }
}

/// Describes the differences of two proxies' resources; `None` if they are equal byte for byte.
pub(crate) fn difference(what: &str, expected: &Shown, actual: &Shown) -> Option<String> {
    let types: BTreeSet<ResourceType> = expected.keys().chain(actual.keys()).copied().collect();
    types.into_iter().find_map(|resource_type| {
        let bodies = |shown: &Shown| -> BTreeMap<String, bytes::Bytes> {
            let resources = shown
                .get(&resource_type)
                .into_iter()
                .flat_map(|collection| &collection.resources);
            resources
                .map(|resource| (resource.name.as_str().to_owned(), resource.body.clone()))
                .collect()
        };

        let expected = bodies(expected);
        let actual = bodies(actual);
        let names: BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
        let name = names
            .into_iter()
            .find(|name| expected.get(*name) != actual.get(*name))?;
        let show = |body: Option<&bytes::Bytes>| {
            body.map_or_else(|| "nothing".to_owned(), |body| text(resource_type, body))
        };
        let expected = show(expected.get(name));

        let actual = show(actual.get(name));
        Some(format!(
            "{what}: {} {name}\n{}",
            resource_type.short_name(),
            lines_that_differ(&expected, &actual)
        ))
    })
}

fn text(resource_type: ResourceType, body: &[u8]) -> String {
    KNOWN.with_borrow(
        |(codec, _)| match codec.any_to_json(resource_type.type_url(), body) {
            Ok(json) => serde_json::to_string_pretty(&json).unwrap(),
            Err(_) => String::from_utf8_lossy(body).into_owned(),
        },
    )
}

/// The lines around the first and last difference, expected ones with `-`, actual ones with `+`.
fn lines_that_differ(expected: &str, actual: &str) -> String {
    let a: Vec<&str> = expected.lines().collect();
    let b: Vec<&str> = actual.lines().collect();
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let rest = a.len().min(b.len()) - same;
    let tail = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take(rest)
        .take_while(|(a, b)| a == b)
        .count();

    let mut out: Vec<String> = a[same.saturating_sub(3)..same]
        .iter()
        .map(|line| format!("  {line}"))
        .collect();
    out.extend(
        a[same..a.len() - tail]
            .iter()
            .take(40)
            .map(|line| format!("- {line}")),
    );

    out.extend(
        b[same..b.len() - tail]
            .iter()
            .take(40)
            .map(|line| format!("+ {line}")),
    );

    out.join("\n")
}
