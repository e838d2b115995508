mod by_address;
mod clusters;
mod delegated;
mod networks;
mod peers;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_api::names::ClusterId;
use navarch_api::object::ObjectRef;
use navarch_api::settings::Settings;
use navarch_proto::istio::security::Authorization;
use navarch_proto::istio::workload::Workload;
use navarch_push::engine::{Engine, Interest, ProxyId, PushStats};
use navarch_push::mesh_state::{Change, MeshState, RemoteChange};
use navarch_push::proxy::{Locality, Proxy};
use navarch_push::testing::{NoResources, NoSink, changes};
use serde_json::json;

use super::*;

/// A mesh state and its engine.
struct Mesh {
    state: MeshState,
    engine: Engine,
}

/// Resources by name.
type Shown = BTreeMap<String, Bytes>;

impl Mesh {
    fn new() -> Self {
        Self::with(Settings {
            ambient: true,
            auto_allow_waypoints: true,
            ..Settings::default()
        })
    }

    fn with(settings: Settings) -> Self {
        let state = MeshState::new(settings);
        let engine = Engine::new(state.context(), Arc::new(AmbientTranslator(NoResources)));
        Self { state, engine }
    }

    fn change(&mut self, changes: Vec<Change>) -> PushStats {
        let changed = self.state.apply(changes);
        self.engine.apply(self.state.context(), changed)
    }

    fn put(&mut self, yaml: &str) -> PushStats {
        self.change(changes(yaml))
    }

    fn ztunnel(&mut self, node: &str) -> ProxyId {
        let metadata = json!({ "NODE_NAME": node, "INSTANCE_IPS": "10.0.9.1" });
        let id = "ztunnel~10.0.9.1~ztunnel-1.istio-system~istio-system.svc.cluster.local";
        let proxy = Proxy::parse(id, metadata, Locality::default()).unwrap();
        self.engine.connect(Arc::new(proxy), Arc::new(NoSink))
    }

    fn ask(&mut self, proxy: ProxyId, resource_type: ResourceType, names: &[&str]) -> Shown {
        let wildcard = names.is_empty();
        let names = Arc::new(names.iter().map(ResourceName::new).collect());
        self.engine
            .subscribe(proxy, resource_type, Interest { wildcard, names });
        self.shown(proxy, resource_type)
    }

    fn shown(&self, proxy: ProxyId, resource_type: ResourceType) -> Shown {
        let shown = self.engine.published(proxy, resource_type).unwrap();
        shown
            .resources
            .iter()
            .map(|resource| (resource.name.to_string(), resource.body.clone()))
            .collect()
    }
}

/// The objects of a text, in the second cluster.
fn remote(yaml: &str) -> Vec<Change> {
    let put = |change| {
        let Change::Put(object) = change else {
            panic!("only objects")
        };
        Change::Remote(ClusterId::new("two"), RemoteChange::Put(object))
    };
    changes(yaml).into_iter().map(put).collect()
}

fn names(shown: &Shown) -> Vec<&str> {
    shown.keys().map(String::as_str).collect()
}

fn pod(number: usize, ready: bool) -> String {
    format!(
        "{{ apiVersion: v1, kind: Pod, metadata: {{ name: web-{number}, namespace: shop, labels: {{ app: web }} }},
  spec: {{ nodeName: n{}, serviceAccountName: web, containers: [] }},
  status: {{ phase: Running, podIP: 10.1.{}.{}, conditions: [{{ type: Ready, status: '{}' }}] }} }}\n---\n",
        number % 3,
        number / 250,
        number % 250 + 1,
        if ready { "True" } else { "False" }
    )
}

/// One object of each relevant kind.
const WORLD: &str = "
{ apiVersion: v1, kind: Namespace, metadata: { name: istio-system, labels: { topology.istio.io/network: n } } }
---
{ apiVersion: v1, kind: Namespace, metadata: { name: shop, labels: { istio.io/use-waypoint: way } } }
---
{ apiVersion: v1, kind: Node, metadata: { name: n1, labels: { topology.kubernetes.io/zone: z } } }
---
{ apiVersion: v1, kind: Service, metadata: { name: web, namespace: shop },
  spec: { clusterIP: 10.96.0.1, selector: { app: web }, ports: [{ name: http, port: 80, targetPort: 8080 }] } }
---
{ apiVersion: v1, kind: Service, metadata: { name: db, namespace: shop },
  spec: { clusterIP: 10.96.0.2, ports: [{ name: tcp, port: 5432 }] } }
---
{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: { name: db-1, namespace: shop, labels: { kubernetes.io/service-name: db } }, ports: [{ name: tcp, port: 5432 }],
  endpoints: [{ addresses: [10.1.0.2], targetRef: { kind: Pod, namespace: shop, name: web-1 } }, { addresses: [10.9.0.1] }] }
---
{ apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: { name: out, namespace: shop },
  spec: { hosts: [out.example.com, web.shop.svc.cluster.local], resolution: DNS, ports: [{ number: 443, name: tls, protocol: TLS }] } }
---
{ apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: { name: vm, namespace: shop },
  spec: { hosts: [vm.example.com], resolution: STATIC, workloadSelector: { labels: { app: vm } }, ports: [{ number: 80, name: http }] } }
---
{ apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: { name: vm, namespace: shop },
  spec: { address: 10.2.0.1, labels: { app: vm } } }
---
{ apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: { name: own, namespace: shop },
  spec: { selector: { matchLabels: { app: web } }, rules: [{ from: [{ source: { principals: ['*'] } }] }] } }
---
{ apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: { name: strict, namespace: shop },
  spec: { selector: { matchLabels: { app: web } }, mtls: { mode: STRICT }, portLevelMtls: { 9090: { mode: PERMISSIVE } } } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: { name: way, namespace: shop, labels: { istio.io/waypoint-for: all } },
  spec: { gatewayClassName: istio-waypoint, listeners: [{ name: mesh, port: 15008, protocol: HBONE }] },
  status: { addresses: [{ type: Hostname, value: way.shop.svc.cluster.local }] } }
---
{ apiVersion: v1, kind: Pod, metadata: { name: way-1, namespace: shop, labels: { gateway.networking.k8s.io/gateway-name: way } },
  spec: { nodeName: n1, serviceAccountName: way, containers: [] }, status: { phase: Running, podIP: 10.1.9.1 } }
";

/// The types of ambient mode.
const TYPES: [ResourceType; 3] = [
    ResourceType::Address,
    ResourceType::Workload,
    ResourceType::Authorization,
];

#[test]
fn an_address_means_a_workload_else_a_service_with_its_workloads() {
    let mut mesh = Mesh::new();
    mesh.put(WORLD);
    mesh.put(&(0..4).map(|number| pod(number, true)).collect::<String>());
    let elsewhere = mesh.ztunnel("n9");
    let mut names = |names: &[&str]| -> Vec<String> {
        mesh.ask(elsewhere, ResourceType::Address, names)
            .into_keys()
            .map(|name| name.replace("Kubernetes//", ""))
            .collect()
    };

    assert_eq!(names(&["n/10.1.0.1"]), ["Pod/shop/web-0"]);
    assert_eq!(names(&["Kubernetes//Pod/shop/web-0"]), ["Pod/shop/web-0"]);
    let all = [
        "Pod/shop/web-0",
        "Pod/shop/web-1",
        "Pod/shop/web-2",
        "Pod/shop/web-3",
        "shop/web.shop.svc.cluster.local",
    ];

    assert_eq!(names(&["n/10.96.0.1"]), all);
    assert_eq!(names(&["shop/web.shop.svc.cluster.local"]), all);
    assert_eq!(names(&["/10.96.0.1"]), [""; 0], "another network");
    assert_eq!(
        names(&["n/10.200.0.1", "shop/nobody.shop.svc.cluster.local"]),
        [""; 0]
    );
    let slice = "Kubernetes/discovery.k8s.io/EndpointSlice/shop/db-1/10.9.0.1";

    assert_eq!(
        names(&["n/10.96.0.2"]),
        ["Pod/shop/web-1", slice, "shop/db.shop.svc.cluster.local"]
    );
    let entry = "Kubernetes/networking.istio.io/WorkloadEntry/shop/vm";
    assert_eq!(
        names(&["shop/vm.example.com"]),
        [entry, "shop/vm.example.com"]
    );

    let own = mesh.ztunnel("n1");
    let names: Vec<String> = mesh
        .ask(own, ResourceType::Workload, &["/10.200.0.1"])
        .into_keys()
        .collect();
    assert_eq!(
        names,
        ["Kubernetes//Pod/shop/way-1", "Kubernetes//Pod/shop/web-1"]
    );
}

#[test]
fn a_workload_lists_its_services_and_addresses() {
    let mut mesh = Mesh::new();
    mesh.put(WORLD);
    mesh.put(&pod(1, true));
    let ztunnel = mesh.ztunnel("n1");
    let shown = mesh.ask(ztunnel, ResourceType::Workload, &[]);
    let workload = Workload::decode(shown["Kubernetes//Pod/shop/web-1"].clone()).unwrap();
    assert_eq!(workload.network, "n");
    assert_eq!(workload.locality.unwrap().zone, "z");

    assert!(workload.waypoint.is_some());
    let services: Vec<&String> = workload.services.keys().collect();
    assert_eq!(
        services,
        [
            "shop/db.shop.svc.cluster.local",
            "shop/web.shop.svc.cluster.local"
        ]
    );

    let policies = [
        "shop/own",
        "shop/converted_peer_authentication_strict",
        "shop/istio_allow_waypoint_shop_way",
    ];
    assert_eq!(workload.authorization_policies, policies);
    let policies = mesh.ask(ztunnel, ResourceType::Authorization, &[]);
    let allow =
        Authorization::decode(policies["shop/istio_allow_waypoint_shop_way"].clone()).unwrap();
    assert!(format!("{allow:?}").contains("cluster.local/ns/shop/sa/way"));

    assert!(policies.contains_key("istio-system/istio_converted_static_strict"));
    let waypoint = Workload::decode(shown["Kubernetes//Pod/shop/way-1"].clone()).unwrap();
    assert_eq!(waypoint.waypoint, None, "a waypoint itself has no waypoint");
}

#[test]
fn a_changed_pod_updates_only_itself() {
    let mut costs = Vec::new();

    for count in [100, 400] {
        let mut mesh = Mesh::new();
        mesh.put(WORLD);
        mesh.put(
            &(0..count)
                .map(|number| pod(number, true))
                .collect::<String>(),
        );
        let ztunnel = mesh.ztunnel("n1");
        mesh.ask(ztunnel, ResourceType::Address, &[]);

        let changed = mesh.put(&pod(7, false));
        assert_eq!(changed.published, 1);

        // The pod, its chunk and the list of chunks.
        assert!(changed.computed <= 4, "{changed:?}");
        let added = mesh.put(&pod(count, true));
        assert_eq!(added.published, 1);
        assert!(added.computed <= 12, "{added:?}");
        costs.push(added.computed);
        assert_eq!(
            mesh.shown(ztunnel, ResourceType::Address).len(),
            mesh_size(count + 1)
        );
    }
}

/// The number of resources with this number of pods.
fn mesh_size(pods: usize) -> usize {
    // Five services, the endpoint of `out.example.com` and that of the slice, the WorkloadEntry,
    // the waypoint's pod.
    pods + 4 + 4
}

#[test]
fn any_sequence_of_events_gives_the_same_result_as_a_fresh_start() {
    let all: Vec<Change> = changes(WORLD)
        .into_iter()
        .chain(changes(
            &(0..6).map(|n| pod(n, n % 2 == 0)).collect::<String>(),
        ))
        .collect();

    let names: Vec<ObjectRef> = all
        .iter()
        .map(|change| {
            let Change::Put(object) = change else {
                panic!("only objects")
            };
            object.object_ref()
        })
        .collect();

    let mut mesh = Mesh::new();
    let ztunnel = mesh.ztunnel("n1");
    let asking = mesh.ztunnel("n2");
    for resource_type in TYPES {
        mesh.ask(ztunnel, resource_type, &[]);
    }

    let subscribed = [
        "n/10.96.0.1",
        "/10.96.0.1",
        "shop/db.shop.svc.cluster.local",
        "n/10.1.0.1",
        "shop/vm.example.com",
    ];

    mesh.ask(asking, ResourceType::Address, &subscribed);
    let mut present = vec![false; all.len()];

    for step in 0..200_usize {
        let at = step * 7 % all.len();
        let change = if present[at] && step % 3 != 0 {
            Change::Removed(names[at].clone())
        } else {
            all[at].clone()
        };

        present[at] = matches!(change, Change::Put(_));
        mesh.change(vec![change]);
        let mut fresh = Mesh::new();
        fresh.change(
            all.iter()
                .zip(&present)
                .filter(|(_, there)| **there)
                .map(|(change, _)| change.clone())
                .collect(),
        );

        let all_of = fresh.ztunnel("n1");
        let some_of = fresh.ztunnel("n2");

        for resource_type in TYPES {
            assert_eq!(
                mesh.shown(ztunnel, resource_type),
                fresh.ask(all_of, resource_type, &[]),
                "step {step} {resource_type:?}"
            );
        }

        let by_name = fresh.ask(some_of, ResourceType::Address, &subscribed);
        assert_eq!(
            mesh.shown(asking, ResourceType::Address),
            by_name,
            "step {step}"
        );
    }
}

#[test]
fn without_ambient_mode_ztunnels_get_no_workloads() {
    let mut mesh = Mesh::new();
    mesh.state = MeshState::new(Settings::default());
    mesh.engine = Engine::new(
        mesh.state.context(),
        Arc::new(AmbientTranslator(NoResources)),
    );
    mesh.put(WORLD);
    let ztunnel = mesh.ztunnel("n1");
    assert!(mesh.ask(ztunnel, ResourceType::Address, &[]).is_empty());
}
