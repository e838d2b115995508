//! Thousands of Gateway API routes: the cost of changing one does not depend on their number, and
//! route tables that are updated incrementally equal those of a fresh start.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly and print"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch::api::decode::{Outcome, decode_value};
use navarch::api::names::ResourceName;
use navarch::api::object::{Kind, NamespacedName, ObjectRef};
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, PushStats, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::proxy::{Locality, Proxy};
use navarch::push::resource::{Collection, ResourceType};
use navarch_proto::envoy::config::route::v3::RouteConfiguration;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};

/// The namespace of all objects.
const NAMESPACE: &str = "edge";

/// Discards pushes.
struct Discard;

impl Sink for Discard {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

/// How a gateway gets its virtual hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In its route configurations.
    Whole,
    /// On demand (VHDS).
    Apart,
}

/// A mesh with two gateways, one for each form, and a writer of statuses.
struct Edge {
    state: MeshState,
    engine: Engine,
    /// The subscriptions.
    shown: Vec<(ProxyId, ResourceType)>,
}

fn put(value: &Value) -> Change {
    match decode_value(value) {
        (
            _,
            Outcome::Read {
                object,
                unknown_fields,
            },
        ) if unknown_fields.is_empty() => Change::Put(object),
        (subject, outcome) => panic!("{subject:?}: {outcome:?}"),
    }
}

fn object(kind: &str, name: &str, more: &Value) -> Value {
    let version = match kind {
        "Service" | "Pod" | "Namespace" => "v1",
        "TCPRoute" => "gateway.networking.k8s.io/v1alpha2",
        "ServiceEntry" => "networking.istio.io/v1",
        _ => "gateway.networking.k8s.io/v1",
    };
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE } });
    object
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    object
}

/// The initial objects: a Gateway with its proxies' Service, and a backend.
fn base() -> Vec<Value> {
    let labels = json!({ "app": "front" });
    let front = format!("front.{NAMESPACE}.svc.cluster.local");
    let port = |port: u16| json!({ "name": format!("p{port}"), "port": port, "targetPort": port, "protocol": "TCP" });
    let ports = [80, 81, 443, 9000].map(port);

    vec![
        object(
            "Service",
            "front",
            &json!({ "spec": { "selector": labels, "clusterIP": "172.16.0.1", "ports": ports } }),
        ),
        {
            let mut pod = object(
                "Pod",
                "front",
                &json!({
                    "spec": { "serviceAccountName": "default", "containers": [{ "name": "istio-proxy" }] },
                    "status": {
                        "phase": "Running", "podIP": "10.1.0.1", "podIPs": [{ "ip": "10.1.0.1" }],
                        "conditions": [{ "type": "Ready", "status": "True" }],
                    },
                }),
            );
            pod["metadata"]["labels"] = json!({ "app": "front" });
            pod
        },
        object(
            "Service",
            "backend",
            &json!({ "spec": { "clusterIP": "172.16.0.2", "ports": [port(80)] } }),
        ),
        object(
            "Gateway",
            "front",
            &json!({ "spec": {
                "gatewayClassName": "istio", "addresses": [{ "type": "Hostname", "value": front }],
                "allowedListeners": { "namespaces": { "from": "All" } },
                "listeners": [
                    { "name": "http", "port": 80, "protocol": "HTTP" },
                    { "name": "tls", "port": 443, "protocol": "TLS", "tls": { "mode": "Passthrough" } },
                    { "name": "tcp", "port": 9000, "protocol": "TCP" },
                ],
            } }),
        ),
    ]
}

/// A route of a kind for some hosts, attached to these parents; `turn` varies its action.
fn route(kind: &str, name: &str, hosts: &[&str], parents: &[Value], turn: usize) -> Value {
    let mut backend = json!({ "name": "backend", "port": 80 });
    let mut spec = json!({ "parentRefs": parents });
    if kind != "TCPRoute" {
        spec["hostnames"] = json!(hosts);
    }
    let mut rule = json!({});
    if matches!(kind, "HTTPRoute" | "GRPCRoute") {
        rule["filters"] = json!([{
            "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": [{ "name": "x-turn", "value": turn.to_string() }] },
        }]);
    } else {
        backend["weight"] = json!(turn + 1);
    }
    rule["backendRefs"] = json!([backend]);
    spec["rules"] = json!([rule]);
    object(kind, name, &json!({ "spec": spec }))
}

/// The HTTPRoute with this number and its own host, attached to the Gateway.
fn own_route(number: usize, turn: usize) -> Change {
    let host = format!("h{number}.example");
    put(&route(
        "HTTPRoute",
        &format!("route-{number}"),
        &[&host],
        &[json!({ "name": "front" })],
        turn,
    ))
}

/// A ListenerSet with a listener for one host.
fn listener_set(number: usize) -> Value {
    let set = json!({ "spec": {
        "parentRef": { "name": "front", "kind": "Gateway", "group": "gateway.networking.k8s.io" },
        "listeners": [{ "name": "own", "port": 81, "protocol": "HTTP", "hostname": format!("*.set{number}.example") }],
    } });
    object("ListenerSet", &format!("set-{number}"), &set)
}

/// A route of a ListenerSet.
fn route_of_set(set: usize, number: usize, turn: usize) -> Change {
    let parent = json!({ "name": format!("set-{set}"), "kind": "ListenerSet", "group": "gateway.networking.k8s.io" });
    let host = format!("h{number}.set{set}.example");
    put(&route(
        "HTTPRoute",
        &format!("route-{set}-{number}"),
        &[&host],
        &[parent],
        turn,
    ))
}

fn proxy(form: Form) -> Arc<Proxy> {
    let metadata = json!({
        "NAMESPACE": NAMESPACE, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "MESH_ID": "cluster.local",
        "SERVICE_ACCOUNT": "default", "INSTANCE_IPS": "10.1.0.1", "LABELS": { "app": "front" }, "NAME": "front",
        "FINE_GRAINED_ROUTES": if form == Form::Apart { "true" } else { "false" },
    });
    let node = format!("router~10.1.0.1~front.{NAMESPACE}~{NAMESPACE}.svc.cluster.local");
    Arc::new(Proxy {
        uses_delta: true,
        ..Proxy::parse(&node, metadata, Locality::default()).unwrap()
    })
}

impl Edge {
    /// Creates a mesh with these objects and gateways of these forms.
    fn new(changes: impl IntoIterator<Item = Change>, forms: &[Form]) -> Self {
        let mut state = MeshState::new(Settings::default());
        state.apply(base().iter().map(put).chain(changes));
        let mut engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
        let everything = Interest {
            wildcard: true,
            ..Interest::default()
        };
        let names: BTreeSet<ResourceName> = ["http.80", "http.81"].map(ResourceName::new).into();

        let named = Interest {
            wildcard: false,
            names: Arc::new(names),
        };
        let mut shown = Vec::new();

        for form in forms {
            let id = engine.connect(proxy(*form), Arc::new(Discard));
            let of_gateway = [
                (ResourceType::Listener, everything.clone()),
                (ResourceType::Route, named.clone()),
                (
                    ResourceType::VirtualHost,
                    Interest {
                        wildcard: true,
                        ..named.clone()
                    },
                ),
            ];

            for (resource_type, interest) in of_gateway.into_iter().filter(|(resource_type, _)| {
                *form == Form::Apart || *resource_type != ResourceType::VirtualHost
            }) {
                engine.subscribe(id, resource_type, interest);
                shown.push((id, resource_type));
            }
        }

        let writer = Proxy::parse(
            "router~127.0.0.1~status.navarch~navarch",
            json!({}),
            Locality::default(),
        )
        .unwrap();
        let id = engine.connect(Arc::new(writer), Arc::new(Discard));
        engine.subscribe(id, ResourceType::ObjectStatus, everything);

        shown.push((id, ResourceType::ObjectStatus));
        Self {
            state,
            engine,
            shown,
        }
    }

    fn apply(&mut self, changes: Vec<Change>) -> PushStats {
        let facts = self.state.apply(changes);
        if facts.is_empty() {
            PushStats::default()
        } else {
            self.engine.apply(self.state.context(), facts)
        }
    }

    /// All resources, by subscriber, type and name.
    fn all(&self) -> BTreeMap<(usize, ResourceType, String), Vec<u8>> {
        let mut all = BTreeMap::new();
        for (place, (id, resource_type)) in self.shown.iter().enumerate() {
            for resource in self
                .engine
                .published(*id, *resource_type)
                .unwrap()
                .resources
                .iter()
            {
                all.insert(
                    (place, *resource_type, resource.name.to_string()),
                    resource.body.to_vec(),
                );
            }
        }
        all
    }

    /// The size of a collection in bytes.
    fn bytes(&self, resource_type: ResourceType) -> usize {
        self.all()
            .iter()
            .filter(|((_, of, _), _)| *of == resource_type)
            .map(|(_, body)| body.len())
            .sum()
    }
}

/// Applies a change to a mesh with this number of routes, and to one with four times as many.
fn in_both(
    forms: &[Form],
    of: impl Fn(usize) -> Vec<Change>,
    change: impl Fn(usize) -> Vec<Change>,
) -> [PushStats; 2] {
    [500, 2_000].map(|routes| {
        let mut edge = Edge::new(of(routes), forms);
        assert!(
            edge.bytes(ResourceType::Listener) > 0
                && edge.bytes(ResourceType::ObjectStatus) > routes * 100
        );
        let hosts = edge.bytes(ResourceType::Route) + edge.bytes(ResourceType::VirtualHost);
        assert!(hosts > routes * 100, "{hosts} bytes for {routes} routes");
        // The first change of a kind may compute parts that were never needed before.
        edge.apply(change(1));
        edge.apply(change(2))
    })
}

fn routes(count: usize) -> Vec<Change> {
    (0..count).map(|number| own_route(number, 0)).collect()
}

fn sets(count: usize) -> Vec<Change> {
    let sets = (0..count / 16).map(|set| put(&listener_set(set)));
    sets.chain((0..count).map(|number| route_of_set(number / 16, number % 16, 0)))
        .collect()
}

/// Four times as many routes cost at most `growth` more computed results, and `visits` more visited
/// ones.
fn assert_flat([small, large]: [PushStats; 2], computed: u64, growth: u64, visits: u64) {
    println!("{small:?}\n{large:?}");
    assert!(small.computed <= computed, "{small:?}");
    assert!(
        large.computed <= small.computed + growth,
        "{small:?}, {large:?}"
    );
    assert!(
        large.visited <= small.visited + visits,
        "{small:?}, {large:?}"
    );
}

#[test]
fn a_changed_route_recomputes_only_its_virtual_host_and_status() {
    assert_flat(
        in_both(&[Form::Apart], routes, |turn| vec![own_route(77, turn)]),
        40,
        4,
        300,
    );
}

#[test]
fn a_changed_route_recomputes_only_its_route_table() {
    assert_flat(
        in_both(&[Form::Whole], routes, |turn| vec![own_route(77, turn)]),
        40,
        4,
        300,
    );
}

#[test]
fn an_added_route_recomputes_little_regardless_of_their_number() {
    for form in [Form::Whole, Form::Apart] {
        // The tables are visited in chunks, whose number is the same in both meshes.
        let both = in_both(&[form], routes, |turn| vec![own_route(100_000 + turn, 0)]);
        assert_flat(both, 1_200, 200, 3_000);
    }
}

#[test]
fn the_cost_of_a_listener_set_route_is_independent_of_other_sets() {
    for form in [Form::Whole, Form::Apart] {
        assert_flat(
            in_both(&[form], sets, |turn| vec![route_of_set(3, 5, turn)]),
            40,
            4,
            300,
        );
        let both = in_both(&[form], sets, |turn| vec![route_of_set(3, 100 + turn, 0)]);
        assert_flat(both, 1_200, 200, 3_000);
    }
}

#[test]
fn a_route_configuration_enables_vhds_only_while_there_are_virtual_hosts() {
    let says_vhds = |edge: &Edge| {
        let all = edge.all();
        let of_port = all.iter().find(|((_, resource_type, name), _)| {
            *resource_type == ResourceType::Route && name == "http.80"
        });
        RouteConfiguration::decode(of_port.unwrap().1.as_slice())
            .unwrap()
            .vhds
            .is_some()
    };

    let mut edge = Edge::new([], &[Form::Apart]);
    assert!(!says_vhds(&edge), "Envoy would wait for them for ever");
    edge.apply(vec![own_route(0, 0)]);
    assert!(says_vhds(&edge));
    let route = ObjectRef {
        kind: Kind::HttpRoute,
        name: NamespacedName::new(NAMESPACE, "route-0"),
    };
    edge.apply(vec![Change::Removed(route)]);

    assert!(!says_vhds(&edge));
}

/// A change of one of a few objects.
#[derive(Clone, Debug)]
struct Event {
    kind: usize,
    number: usize,
    /// `None` deletes the object; else it is written with these choices.
    choice: Option<(usize, usize, usize)>,
}

/// The kinds of objects that are created and deleted.
const KINDS: [(&str, Kind); 5] = [
    ("HTTPRoute", Kind::HttpRoute),
    ("GRPCRoute", Kind::GrpcRoute),
    ("TLSRoute", Kind::TlsRoute),
    ("TCPRoute", Kind::TcpRoute),
    ("ListenerSet", Kind::ListenerSet),
];

impl Event {
    fn change(&self) -> Change {
        let (kind, typed) = KINDS[self.kind];
        let name = match kind {
            "ListenerSet" => format!("set-{}", self.number),
            _ => format!("{}-{}", kind.to_lowercase(), self.number),
        };
        let Some((hosts, parents, turn)) = self.choice else {
            return Change::Removed(ObjectRef {
                kind: typed,
                name: NamespacedName::new(NAMESPACE, &name),
            });
        };

        let hosts: &[&str] = match hosts {
            0 => &["a.example"],
            1 => &["a.example", "b.example"],
            2 => &["*.set1.example", "x.set0.example"],
            3 => &["a.set0.example", "c.example"],
            _ => &["*.example"],
        };

        let set = |number: usize| json!({ "name": format!("set-{number}"), "kind": "ListenerSet", "group": "gateway.networking.k8s.io" });
        let parents = match parents {
            0 => vec![json!({ "name": "front" })],
            1 => vec![json!({ "name": "front" }), set(0)],
            2 => vec![set(1), set(0)],
            3 => vec![
                json!({ "name": "front", "sectionName": "http" }),
                json!({ "name": "front", "port": 80 }),
            ],
            _ => vec![json!({ "group": "", "kind": "Service", "name": "backend" })],
        };

        let mut value = match kind {
            "ListenerSet" => listener_set(self.number),
            _ => route(kind, &name, hosts, &parents, turn),
        };

        // The creation time decides the precedence of routes.
        let day = 1 + (turn + self.number * 3) % 5;
        value["metadata"]["creationTimestamp"] = json!(format!("2026-01-0{day}T00:00:00Z"));
        put(&value)
    }
}

fn event() -> impl Strategy<Value = Event> {
    let choice = prop::option::weighted(0.75, (0..5_usize, 0..5_usize, 0..6_usize));
    let kind = prop::sample::select(vec![0, 0, 0, 1, 2, 3, 4]);
    (kind, 0..4_usize, choice).prop_map(|(kind, number, choice)| Event {
        kind,
        number,
        choice,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn tables_kept_from_change_to_change_are_those_of_a_fresh_start(
        events in vec(vec(event(), 1..4), 1..12),
    ) {
        let forms = [Form::Whole, Form::Apart];
        let mut kept = Edge::new([], &forms);
        let mut all: BTreeMap<(usize, usize), Change> = BTreeMap::new();
        for batch in events {
            for event in &batch {
                all.insert((event.kind, event.number), event.change());
            }
            kept.apply(batch.iter().map(Event::change).collect());
            let fresh = Edge::new(all.values().cloned(), &forms);
            prop_assert_eq!(kept.all(), fresh.all());
        }
    }
}
