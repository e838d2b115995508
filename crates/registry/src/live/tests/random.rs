//! Incremental results equal a fresh start, tested with random sequences of changes.

use std::collections::BTreeSet;
use std::fmt::Write;

use proptest::prelude::*;

use super::{House, parse_networks, read};
use crate::{Aggregate, ClusterChanges, ClusterObjects, DirectoryChange};
use navarch_api::cluster_settings::{ClusterSettings, McsMode};
use navarch_api::mesh::MeshConfig;
use navarch_api::names::ClusterId;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;

/// A random step.
#[derive(Clone, Debug)]
enum Step {
    /// Objects are put or removed, in one batch.
    Objects(Vec<(Object, Option<u64>)>),
    /// Mesh config and networks change to another variant.
    Mesh(u64),
}

/// One of the few objects.
#[derive(Clone, Copy, Debug)]
enum Object {
    Namespace(u64),
    Node(u64),
    Pod(u64),
    Service(u64),
    Slice(u64),
    WorkloadEntry(u64),
    ServiceEntry(u64),
    Export(u64),
    Import(u64),
}

/// Picks features of a variant one after the other.
struct Variant(u64);

impl Variant {
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let count = u64::try_from(choices.len()).unwrap();
        let chosen = choices[usize::try_from(self.0 % count).unwrap()];
        self.0 = (self.0 / count).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.0 >> 29);
        chosen
    }
}

const NAMESPACES: [&str; 3] = ["shop", "bank", "istio-system"];
const LABELS: [&str; 4] = [
    "{ app: web }",
    "{ app: web, tier: a }",
    "{ app: db }",
    "{ app: db, istio-locality: r.z }",
];
const SELECTORS: [&str; 5] = [
    "{ app: web }",
    "{ app: db }",
    "{ tier: a }",
    "{ app: web, tier: a }",
    "{ topology.istio.io/cluster: Kubernetes }",
];
const ADDRESSES: [&str; 5] = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.2.0.1", "fd00::1"];

impl Object {
    fn name(self) -> ObjectRef {
        let (kind, namespace, name) = match self {
            Self::Namespace(n) => (
                Kind::Namespace,
                "",
                NAMESPACES[usize::try_from(n % 3).unwrap()].to_owned(),
            ),
            Self::Node(n) => (Kind::Node, "", format!("n{}", n % 2)),
            Self::Pod(n) => (
                Kind::Pod,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("w{}", n % 5),
            ),
            Self::Service(n) => (
                Kind::Service,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("s{}", n % 3),
            ),
            Self::Slice(n) => (
                Kind::EndpointSlice,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("e{}", n % 4),
            ),
            Self::WorkloadEntry(n) => (
                Kind::WorkloadEntry,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("w{}", n % 3),
            ),
            Self::ServiceEntry(n) => (
                Kind::ServiceEntry,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("x{}", n % 4),
            ),
            Self::Export(n) => (
                Kind::ServiceExport,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("s{}", n % 3),
            ),
            Self::Import(n) => (
                Kind::ServiceImport,
                NAMESPACES[usize::try_from(n % 2).unwrap()],
                format!("s{}", n % 3),
            ),
        };

        ObjectRef {
            kind,
            name: NamespacedName::new(namespace, &name),
        }
    }

    fn yaml(self, variant: u64) -> String {
        let ObjectRef { kind, name } = self.name();
        let mut v = Variant(variant);
        let head = |version: &str, more: &str| {
            let created = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]
                [usize::try_from(variant % 2).unwrap()];
            let namespace = if name.namespace.is_empty() {
                String::new()
            } else {
                format!("namespace: {}, ", name.namespace)
            };
            let name = &name.name;
            format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata: {{ name: {name}, {namespace}creationTimestamp: '{created}'{more} }}\n"
            )
        };

        match self {
            Self::Namespace(_) => {
                let labels = v.pick(&["", ", labels: { topology.istio.io/network: sys }"]);
                let annotations = v.pick(&[
                    "",
                    ", annotations: { networking.istio.io/traffic-distribution: PreferClose }",
                ]);
                head("v1", &format!("{labels}{annotations}"))
            }
            Self::Node(_) => {
                let labels = v.pick(&[
                    "",
                    ", labels: { topology.kubernetes.io/zone: z1 }",
                    ", labels: { gw: 'yes' }",
                ]);
                let status = v.pick(&[
                    "",
                    "status: { addresses: [{ type: ExternalIP, address: 192.0.2.1 }] }\n",
                ]);
                head("v1", labels) + status
            }
            Self::Pod(_) => pod(&mut v, head),
            Self::Service(_) => service(&mut v, head),
            Self::Slice(_) => slice(&mut v, head),
            Self::WorkloadEntry(_) => {
                let address = v.pick(&[ADDRESSES[0], ADDRESSES[3], "vm.example", "unix:///s"]);
                let labels = v.pick(&LABELS);
                let ports = v.pick(&["", ", ports: { http: 7070 }"]);
                head("networking.istio.io/v1", "")
                    + &format!("spec: {{ address: '{address}', labels: {labels}{ports} }}\n")
            }
            Self::ServiceEntry(_) => service_entry(&mut v, head),
            Self::Export(_) => head("multicluster.x-k8s.io/v1alpha1", ""),
            Self::Import(_) => {
                let ips = v.pick(&["10.112.0.1", "10.112.0.2, 10.112.0.1", ""]);
                head("multicluster.x-k8s.io/v1alpha1", "")
                    + &format!("spec: {{ type: ClusterSetIP, ips: [{ips}] }}\n")
            }
        }
    }
}

fn pod(v: &mut Variant, head: impl Fn(&str, &str) -> String) -> String {
    let labels = v.pick(&LABELS);
    let deleting = v.pick(&["", "", ", deletionTimestamp: '2026-01-03T00:00:00Z'"]);
    let node = v.pick(&["n0", "n1", "gone"]);
    let (phase, ready) = v.pick(&[
        ("Running", "True"),
        ("Running", "True"),
        ("Pending", "False"),
        ("Failed", "False"),
    ]);

    let ip = v.pick(&ADDRESSES);
    let port = v.pick(&["8080", "9090"]);
    let account = v.pick(&["default", "web"]);
    head("v1", &format!(", labels: {labels}{deleting}"))
        + &format!(
            "spec: {{ nodeName: {node}, serviceAccountName: {account}, containers: [{{ name: a, ports: [{{ name: http, containerPort: {port} }}] }}] }}\n"
        )
        + &format!(
            "status: {{ phase: {phase}, podIP: '{ip}', podIPs: [{{ ip: '{ip}' }}, {{ ip: 'fd00::99' }}], conditions: [{{ type: Ready, status: '{ready}' }}] }}\n"
        )
}

fn service(v: &mut Variant, head: impl Fn(&str, &str) -> String) -> String {
    let labels = v.pick(&[
        "",
        ", labels: { istio.io/persistent-session: c }",
        ", labels: { topology.istio.io/network: n9 }",
    ]);

    let annotations = v.pick(&[
        "",
        ", annotations: { traffic.istio.io/nodeSelector: '{\"gw\":\"yes\"}' }",
        ", annotations: { traffic.istio.io/nodeSelector: '{}' }",
    ]);

    let address = v.pick(&[
        "clusterIP: 10.0.0.1",
        "clusterIP: None",
        "clusterIPs: [10.0.0.1, 'fd00::a']",
        "clusterIP: 10.0.0.2",
    ]);

    let selector = v.pick(&[
        "",
        "selector: { app: web }, ",
        "selector: { app: db }, ",
        "selector: { app: web, tier: a }, ",
    ]);

    let kind = v.pick(&["", "type: NodePort, ", "type: LoadBalancer, "]);
    let ports = v.pick(&[
        "{ name: http, port: 80, targetPort: http }",
        "{ name: http, port: 80, targetPort: 8080 }",
        "{ name: tls, port: 15443 }, { name: http, port: 80, nodePort: 30080 }",
    ]);

    let external = v.pick(&[
        "type: ExternalName, externalName: s0.shop.svc.cluster.local",
        "",
        "",
        "",
    ]);

    let spec = if external.is_empty() {
        format!("{kind}{selector}{address}, ports: [{ports}]")
    } else {
        external.to_owned()
    };

    head("v1", &format!("{labels}{annotations}"))
        + &format!(
            "spec: {{ {spec} }}\nstatus: {{ loadBalancer: {{ ingress: [{{ ip: 203.0.113.1 }}] }} }}\n"
        )
}

fn slice(v: &mut Variant, head: impl Fn(&str, &str) -> String) -> String {
    let service = v.pick(&["s0", "s1", "s2"]);
    let mut endpoints = String::new();

    for _ in 0..v.pick(&[1, 2, 3]) {
        let address = v.pick(&ADDRESSES[..4]);
        let target = v.pick(&[
            "",
            ", targetRef: { kind: Pod, name: w0, namespace: shop }",
            ", targetRef: { kind: Pod, name: w1, namespace: bank }",
        ]);

        let conditions = v.pick(&[
            "",
            ", conditions: { ready: false, serving: true, terminating: true }",
            ", conditions: { ready: false, terminating: false }",
        ]);
        write!(
            endpoints,
            "{{ addresses: [{address}]{target}{conditions} }}, "
        )
        .unwrap();
    }

    let ports = v.pick(&[
        "{ name: http, port: 8080 }",
        "{ name: http, port: 9090 }, { name: tls, port: 15443 }",
    ]);

    head(
        "discovery.k8s.io/v1",
        &format!(", labels: {{ kubernetes.io/service-name: {service} }}"),
    ) + &format!("addressType: IPv4\nendpoints: [{endpoints}]\nports: [{ports}]\n")
}

fn service_entry(v: &mut Variant, head: impl Fn(&str, &str) -> String) -> String {
    let hosts = v.pick(&[
        "a.example",
        "a.example, b.example",
        "s0.shop.svc.cluster.local",
        "'*.example'",
    ]);

    let addresses = v.pick(&[
        "",
        ", addresses: [192.0.2.10]",
        ", addresses: [192.0.2.10, 192.0.2.0/24]",
    ]);
    let resolution = v.pick(&["NONE", "STATIC", "STATIC", "DNS", "DNS_ROUND_ROBIN"]);
    let selector = SELECTORS[usize::try_from(v.0 % 5).unwrap()];
    let endpoints = v.pick(&[
        String::new().leak() as &str,
        ", endpoints: [{ address: 10.1.0.1, ports: { http: 81 } }, { address: 10.2.0.1, labels: { app: web } }]",
        format!(", workloadSelector: {{ labels: {selector} }}").leak(),
        format!(", workloadSelector: {{ labels: {selector} }}").leak(),
    ]);

    let ports = v.pick(&[
        "{ number: 80, name: http, protocol: HTTP }",
        "{ number: 80, name: http, protocol: TCP, targetPort: 8080 }, { number: 443, name: tls, protocol: TLS }",
    ]);
    let export = v.pick(&["", ", exportTo: ['.']"]);

    head("networking.istio.io/v1", "")
        + &format!(
            "spec: {{ hosts: [{hosts}]{addresses}, resolution: {resolution}, ports: [{ports}]{endpoints}{export} }}\n"
        )
}

/// Objects of all kinds.
fn any_object() -> impl Strategy<Value = Object> {
    prop_oneof![
        1 => (0..3_u64).prop_map(Object::Namespace),
        1 => (0..2_u64).prop_map(Object::Node),
        4 => (0..10_u64).prop_map(Object::Pod),
        4 => (0..6_u64).prop_map(Object::Service),
        4 => (0..8_u64).prop_map(Object::Slice),
        2 => (0..6_u64).prop_map(Object::WorkloadEntry),
        4 => (0..8_u64).prop_map(Object::ServiceEntry),
        1 => (0..6_u64).prop_map(Object::Export),
        2 => (0..6_u64).prop_map(Object::Import),
    ]
}

/// Stories of some steps.
fn any_story() -> impl Strategy<Value = Vec<Step>> {
    let change = (
        any_object(),
        prop_oneof![1 => Just(None), 4 => any::<u64>().prop_map(Some)],
    );
    let step = prop_oneof![
        12 => prop::collection::vec(change, 1..6).prop_map(Step::Objects),
        1 => (0..3_u64).prop_map(Step::Mesh),
    ];
    prop::collection::vec(step, 1..25)
}

fn mesh(variant: u64) -> (MeshConfig, navarch_api::mesh::MeshNetworks) {
    let trust_domain = if variant == 1 {
        "other.example"
    } else {
        "cluster.local"
    };

    let networks = match variant {
        2 => {
            "networks: { n1: { endpoints: [{ fromCidr: 10.1.0.0/16 }], gateways: [{ address: 198.51.100.1, port: 15443 }] } }"
        }
        _ => "{}",
    };

    (
        MeshConfig {
            trust_domain: trust_domain.to_owned(),
            ..MeshConfig::istio_defaults()
        },
        parse_networks(networks),
    )
}

/// Runs all steps, and compares with a new registry after each.
fn tell(story: &[Step], settings: &Settings, split: bool) {
    let mut house = House::with(settings.clone(), &parse_networks("{}"), "");
    let mut variant = 0;

    for step in story {
        match step {
            Step::Objects(changes) => {
                let mut changed = ClusterChanges::default();
                for (object, variant) in changes {
                    place(&mut house, *object, *variant, split);
                    changed.own.insert(object.name());
                    changed
                        .remotes
                        .entry(ClusterId::new(REMOTE))
                        .or_default()
                        .insert(object.name());
                }
                house.apply_all(&changed);
            }
            Step::Mesh(other) => {
                variant = *other;
                let (mesh, networks) = mesh(variant);
                let before = house.registry.directory().clone();
                let all = ClusterObjects {
                    own: &house.objects,
                    remotes: &house.remotes,
                };
                let change = house.registry.set_mesh(&mesh, &networks, all);
                house.check(&before, &change);
            }
        }

        let fresh = fresh(house.all(), settings, variant);
        let difference = house.registry.directory().change_to(fresh.directory());
        assert_eq!(
            difference,
            DirectoryChange::default(),
            "incremental {:#?}\nfresh {:#?}",
            house.registry.directory(),
            fresh.directory()
        );
    }

    let own: BTreeSet<ObjectRef> = house.objects.all_names().collect();
    for ObjectRef { kind, name } in &own {
        house.objects.remove_ref(*kind, name);
    }

    house.remotes.clear();
    house.apply_all(&ClusterChanges {
        own,
        ..ClusterChanges::default()
    });
    let empty = fresh(house.all(), settings, variant);
    assert_eq!(
        format!("{:?}", house.registry),
        format!("{empty:?}"),
        "no entry is left"
    );
}

/// The name of the remote cluster.
const REMOTE: &str = "east";

/// Puts an object with this variant, or removes it: in the own cluster, or if `split` is set in a
/// remote one or in both. A remote cluster without objects is removed.
fn place(house: &mut House, object: Object, variant: Option<u64>, split: bool) {
    let ObjectRef { kind, name } = object.name();
    let mut remote = house.remotes.remove(REMOTE).unwrap_or_default();
    house.objects.remove_ref(kind, &name);
    remote.remove_ref(kind, &name);

    if let Some(variant) = variant {
        let place = if split && kind != Kind::ServiceEntry {
            variant % 3
        } else {
            0
        };
        for object in read(&object.yaml(variant)) {
            if place != 1 {
                house.objects.put_any(object.clone());
            }
            if place != 0 {
                remote.put_any(object);
            }
        }
    }

    if remote.all_names().next().is_some() {
        house.remotes.insert(ClusterId::new(REMOTE), remote);
    }
}

/// A registry that gets all objects at once.
fn fresh(objects: ClusterObjects<'_>, settings: &Settings, variant: u64) -> Aggregate {
    let (mesh, networks) = mesh(variant);
    let mut registry = Aggregate::new(settings.clone());
    registry.set_mesh(&mesh, &networks, objects);
    // Clusters are added with changes.
    registry.apply(objects, &ClusterChanges::default());
    registry
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_changes_equals_a_fresh_registry(story in any_story(), modes in 0..16_u8) {
        let mcs = if modes & 8 == 0 { McsMode::Off } else { McsMode::Hosts };
        let clusters = ClusterSettings { mcs, ..ClusterSettings::default() };
        let settings = Settings {
            dual_stack: modes & 1 == 0,
            ip_autoallocate: modes & 2 == 0,
            clusters,
            ..Settings::default()
        };
        tell(&story, &settings, modes & 4 == 0);
    }
}
