//! A mesh of two clusters in one network, with ztunnels in both.

mod changes;

use std::net::IpAddr;

use navarch_api::mesh::MeshConfig;
use navarch_api::names::NetworkId;
use navarch_api::object::{Kind, NamespacedName};
use navarch_proto::istio::workload::Service;
use navarch_proto::istio::workload::gateway_address::Destination;
use navarch_push::query::Query;

use super::*;
use crate::{bound, tunnel};

/// Objects of both clusters: `web` is a global service, `near` is not.
fn cluster(network: &str, vips: &str) -> String {
    format!(
        "
{{ apiVersion: v1, kind: Namespace, metadata: {{ name: istio-system, labels: {{ topology.istio.io/network: {network} }} }} }}
---
{{ apiVersion: v1, kind: Namespace, metadata: {{ name: shop }} }}
---
{{ apiVersion: v1, kind: Service, metadata: {{ name: web, namespace: shop, labels: {{ far: 'yes' }} }},
  spec: {{ clusterIP: {vips}.1, selector: {{ app: web }}, ports: [{{ name: http, port: 80, targetPort: http }}] }} }}
---
{{ apiVersion: v1, kind: Service, metadata: {{ name: near, namespace: shop }},
  spec: {{ clusterIP: {vips}.2, selector: {{ app: web }}, ports: [{{ name: http, port: 80, targetPort: 8080 }}] }} }}
---
"
    )
}

/// Further objects of the first cluster.
const FIRST: &str = "
{ apiVersion: v1, kind: Pod, metadata: { name: web-0, namespace: shop, labels: { app: web } },
  spec: { nodeName: n1, serviceAccountName: web, containers: [{ name: c, ports: [{ name: http, containerPort: 8080 }] }] },
  status: { phase: Running, podIP: 10.1.0.1, conditions: [{ type: Ready, status: 'True' }] } }
---
{ apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: { name: own, namespace: shop },
  spec: { selector: { matchLabels: { app: web } }, rules: [{ from: [{ source: { principals: ['*'] } }] }] } }
---
";

/// Further objects of the second cluster: `all`, which only it declares, has a waypoint; a pod, an
/// endpoint without a pod and a WorkloadEntry.
const SECOND: &str = "
{ apiVersion: v1, kind: Node, metadata: { name: n1, labels: { topology.kubernetes.io/zone: z2 } } }
---
{ apiVersion: v1, kind: Service, metadata: { name: all, namespace: shop, labels: { far: 'yes', istio.io/use-waypoint: way } },
  spec: { clusterIP: 10.200.0.3, ports: [{ name: tcp, port: 70 }] } }
---
{ apiVersion: v1, kind: Pod, metadata: { name: web-1, namespace: shop, labels: { app: web, istio.io/use-waypoint: way },
    annotations: { ambient.istio.io/redirection: enabled } },
  spec: { nodeName: n1, serviceAccountName: seller, containers: [{ name: c, ports: [{ name: http, containerPort: 8081 }] }] },
  status: { phase: Running, podIP: 10.2.0.1, conditions: [{ type: Ready, status: 'True' }] } }
---
{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: { name: all-1, namespace: shop, labels: { kubernetes.io/service-name: all } }, ports: [{ name: tcp, port: 7070 }],
  endpoints: [{ addresses: [10.2.0.1], targetRef: { kind: Pod, namespace: shop, name: web-1 } }, { addresses: [10.9.0.1] }] }
---
{ apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: { name: vm, namespace: shop },
  spec: { address: 10.3.0.1, labels: { app: web }, ports: { http: 8082 } } }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: { name: way, namespace: shop, labels: { istio.io/waypoint-for: all } },
  spec: { gatewayClassName: istio-waypoint, listeners: [{ name: mesh, port: 15008, protocol: HBONE }] },
  status: { addresses: [{ type: Hostname, value: way.shop.svc.cluster.local }] } }
";

const POD: &str = "two//Pod/shop/web-1";
const SLICE: &str = "two/discovery.k8s.io/EndpointSlice/shop/all-1/10.9.0.1";
const ENTRY: &str = "two/networking.istio.io/WorkloadEntry/shop/vm";
const OWN: &str = "Kubernetes//Pod/shop/web-0";

/// An empty mesh whose services labelled `far` are global.
fn empty(settings: Settings) -> Mesh {
    let state = MeshState::new(settings);
    let engine = Engine::new(state.context(), Arc::new(AmbientTranslator(NoResources)));
    let mut mesh = Mesh { state, engine };
    let config =
        "serviceScopeConfigs: [{servicesSelector: {matchLabels: {far: 'yes'}}, scope: GLOBAL}]";
    let config = MeshConfig::istio_defaults().apply(config).unwrap().value;
    mesh.change(vec![Change::Mesh(Arc::new(config))]);
    mesh
}

/// Settings of ambient mode, with or without joined networks.
fn settings(joined: bool) -> Settings {
    let mut settings = Settings {
        ambient: true,
        services_select_workload_entries: true,
        ..Settings::default()
    };
    settings.gateway_api.east_west = joined;
    settings
}

/// The mesh of both clusters.
fn two_clusters(settings: Settings) -> Mesh {
    let mut mesh = empty(settings);
    mesh.put(&(cluster("n", "10.96.0") + FIRST));
    mesh.change(remote(&(cluster("n", "10.200.0") + SECOND)));
    mesh
}

fn host(name: &str) -> String {
    format!("shop/{name}.shop.svc.cluster.local")
}

fn service(shown: &Shown, name: &str) -> Service {
    let Some(Type::Service(service)) = Address::decode(shown[&host(name)].clone()).unwrap().r#type
    else {
        panic!("{name} is not a service")
    };
    service
}

#[test]
fn workloads_of_a_remote_cluster_in_the_same_network_are_sent_individually() {
    let mut mesh = two_clusters(settings(true));
    let ztunnel = mesh.ztunnel("n9");
    let shown = mesh.ask(ztunnel, ResourceType::Workload, &[]);
    assert_eq!(names(&shown), [OWN, POD, SLICE, ENTRY]);
    let workload = |name: &str| Workload::decode(shown[name].clone()).unwrap();
    let pod = workload(POD);
    assert_eq!(
        (
            pod.uid.as_str(),
            pod.cluster_id.as_str(),
            pod.network.as_str()
        ),
        (POD, "two", "n")
    );

    assert_eq!(
        (
            pod.locality.unwrap().zone.as_str(),
            pod.service_account.as_str()
        ),
        ("z2", "seller")
    );

    // Global services of its own cluster, with its own ports; policies of the cluster that
    // configures the mesh.
    let ports: Vec<(&str, u32)> = pod
        .services
        .iter()
        .map(|(name, ports)| (name.as_str(), ports.ports[0].target_port))
        .collect();
    assert_eq!(
        ports,
        [(host("all").as_str(), 70), (host("web").as_str(), 8081)]
    );

    assert_eq!(pod.authorization_policies, ["shop/own"]);
    let Some(Destination::Hostname(way)) = pod.waypoint.unwrap().destination else {
        panic!("no waypoint")
    };

    assert_eq!(
        (way.namespace.as_str(), way.hostname.as_str()),
        ("shop", "way.shop.svc.cluster.local")
    );
    let slice = workload(SLICE);
    assert_eq!(
        (
            slice.cluster_id.as_str(),
            slice.services[&host("all")].ports[0].target_port
        ),
        ("two", 7070)
    );

    let entry = workload(ENTRY);
    assert_eq!(
        (entry.cluster_id.as_str(), entry.services.len()),
        ("two", 1)
    );
    assert_eq!(entry.services[&host("web")].ports[0].target_port, 8082);
    assert_eq!(
        workload(OWN).services.len(),
        2,
        "all local services select it"
    );
}

#[test]
fn a_service_has_the_addresses_of_both_clusters_and_the_waypoint_of_the_one_that_declares_it() {
    let mut mesh = two_clusters(settings(true));
    let ztunnel = mesh.ztunnel("n9");
    let shown = mesh.ask(ztunnel, ResourceType::Address, &[]);
    let expected = [
        OWN,
        &host("all"),
        &host("near"),
        &host("web"),
        POD,
        SLICE,
        ENTRY,
    ];

    assert_eq!(names(&shown), expected);
    assert_eq!(service(&shown, "web").addresses.len(), 2);
    assert_eq!(service(&shown, "near").addresses.len(), 1);
    let all = service(&shown, "all");
    assert_eq!(&*all.addresses[0].address, [10, 200, 0, 3]);
    let Some(Destination::Hostname(way)) = all.waypoint.unwrap().destination else {
        panic!("no waypoint")
    };

    assert_eq!(way.hostname, "way.shop.svc.cluster.local");

    // The other cluster is in the same network, so identities behind a gateway are not needed.
    assert_eq!(service(&shown, "web").subject_alt_names, [""; 0]);
}

#[test]
fn remote_workloads_are_found_by_name_address_and_node() {
    let mut mesh = two_clusters(settings(true));
    let ztunnel = mesh.ztunnel("n9");
    let hosts = ["all", "near", "web"].map(host);
    let [all, near, web] = hosts.each_ref().map(String::as_str);

    for (requested, found) in [
        ("n/10.2.0.1", vec![POD]),
        ("n/10.3.0.1", vec![ENTRY]),
        ("n/10.9.0.1", vec![SLICE]),
        (POD, vec![POD]),
        ("n/10.200.0.1", vec![OWN, web, POD, ENTRY]),
        (all, vec![all, POD, SLICE]),
        (near, vec![OWN, near]),
        ("n/10.200.0.2", vec![]),
        ("three//Pod/shop/web-1", vec![]),
    ] {
        assert_eq!(
            names(&mesh.ask(ztunnel, ResourceType::Address, &[requested])),
            found,
            "{requested}"
        );
    }

    let there = mesh.ztunnel("n1");
    assert_eq!(
        names(&mesh.ask(there, ResourceType::Workload, &["/10.255.0.1"])),
        [OWN, POD]
    );
}

/// Whether the workload at an address accepts HBONE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TakesHbone(IpAddr);

impl Query for TakesHbone {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        tunnel::takes_hbone(view, &NetworkId::new("n"), self.0)
    }
}

#[test]
fn clients_open_tunnels_to_them() {
    let mut mesh = two_clusters(settings(true));
    let client = mesh.ztunnel("n9");
    let takes = |mesh: &Mesh, address: &str| {
        *mesh
            .engine
            .query(client, &TakesHbone(address.parse().unwrap()))
            .unwrap()
    };
    assert!(takes(&mesh, "10.2.0.1") && !takes(&mesh, "10.1.0.1") && !takes(&mesh, "10.3.0.1"));
    mesh.change(remote(
        &SECOND.replace("redirection: enabled", "redirection: disabled"),
    ));
    assert!(!takes(&mesh, "10.2.0.1"));
}

/// The workloads behind the proxy, a waypoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Behind;

impl Query for Behind {
    type Value = Vec<Vec<IpAddr>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        bound::workloads_of_proxy(view)
            .iter()
            .map(|workload| workload.addresses.clone())
            .collect()
    }
}

#[test]
fn remote_workloads_use_their_waypoint() {
    let mut mesh = two_clusters(settings(true));
    let way = "
{ apiVersion: v1, kind: Service, metadata: { name: way, namespace: shop }, spec: { clusterIP: 10.96.0.9,
  selector: { gateway.networking.k8s.io/gateway-name: way }, ports: [{ name: mesh, port: 15008 }] } }
---
{ apiVersion: v1, kind: Pod, metadata: { name: way-1, namespace: shop, labels: { gateway.networking.k8s.io/gateway-name: way } },
  spec: { containers: [] }, status: { phase: Running, podIP: 10.1.9.1, conditions: [{ type: Ready, status: 'True' }] } }
---
{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: { name: way-1, namespace: shop, labels: { kubernetes.io/service-name: way } }, ports: [{ name: mesh, port: 15008 }],
  endpoints: [{ addresses: [10.1.9.1], targetRef: { kind: Pod, namespace: shop, name: way-1 } }] }";

    mesh.put(way);
    let metadata = json!({ "NAMESPACE": "shop", "INSTANCE_IPS": "10.1.9.1", "CLUSTER_ID": "Kubernetes", "NETWORK": "n" });
    let proxy = Proxy::parse(
        "waypoint~10.1.9.1~way-1.shop~shop.svc.cluster.local",
        metadata,
        Locality::default(),
    );
    let waypoint = mesh
        .engine
        .connect(Arc::new(proxy.unwrap()), Arc::new(NoSink));

    let pod: IpAddr = [10, 2, 0, 1].into();
    assert_eq!(*mesh.engine.query(waypoint, &Behind).unwrap(), [[pod]]);
}

#[test]
fn a_fork_of_the_mesh_state_has_all_clusters() {
    let mut mesh = two_clusters(settings(true));
    let ztunnel = mesh.ztunnel("n9");
    let state = MeshState::fork(&mesh.state.context());
    let engine = Engine::new(state.context(), Arc::new(AmbientTranslator(NoResources)));
    let mut copy = Mesh { state, engine };
    let other = copy.ztunnel("n9");
    assert_eq!(
        copy.ask(other, ResourceType::Address, &[]),
        mesh.ask(ztunnel, ResourceType::Address, &[])
    );
}

#[test]
fn workload_entries_of_remote_clusters_are_used_only_if_enabled() {
    let mut settings = settings(true);
    settings.clusters.remote_workload_entries = false;
    let mut mesh = two_clusters(settings);
    let ztunnel = mesh.ztunnel("n9");
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Workload, &[])),
        [OWN, POD, SLICE]
    );
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Workload, &[ENTRY])),
        [""; 0]
    );
}

#[test]
fn without_multi_network_workloads_of_remote_clusters_are_unknown() {
    let mut mesh = two_clusters(settings(false));
    let ztunnel = mesh.ztunnel("n1");
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Address, &[])),
        [OWN, &host("near"), &host("web")]
    );
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Address, &["n/10.2.0.1", POD])),
        [OWN]
    );
}

#[test]
fn a_local_service_entry_takes_precedence_over_a_remote_service() {
    let entry = "{ apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: { name: all, namespace: shop },
  spec: { hosts: [all.shop.svc.cluster.local], addresses: [10.77.0.1], resolution: STATIC,
    ports: [{ number: 70, name: tcp, protocol: TCP }] } }";

    for joined in [true, false] {
        let mut mesh = two_clusters(settings(joined));
        let ztunnel = mesh.ztunnel("n9");
        mesh.put(entry);
        let all = service(&mesh.ask(ztunnel, ResourceType::Address, &[]), "all");
        let addresses: Vec<&[u8]> = all
            .addresses
            .iter()
            .map(|address| &*address.address)
            .collect();
        assert_eq!(addresses, [[10, 77, 0, 1]], "joined: {joined}");

        assert_eq!(all.waypoint, None, "its waypoint is in the other cluster");
        mesh.change(vec![Change::Removed(ObjectRef {
            kind: Kind::ServiceEntry,
            name: NamespacedName::new("shop", "all"),
        })]);
        let left = mesh.ask(ztunnel, ResourceType::Address, &[]);
        assert_eq!(
            left.contains_key(&host("all")),
            joined,
            "the one of the other cluster remains"
        );
    }
}
