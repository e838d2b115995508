//! A mesh of two clusters in two networks, with ztunnels in the first one.

use navarch_api::mesh::MeshConfig;
use navarch_proto::istio::workload::gateway_address::Destination;
use navarch_proto::istio::workload::{Service, TunnelProtocol};

use super::*;

/// Objects of both clusters: `web` is a global service, `near` is not.
fn cluster(network: &str, vip: &str) -> String {
    format!(
        "
{{ apiVersion: v1, kind: Namespace, metadata: {{ name: istio-system, labels: {{ topology.istio.io/network: {network} }} }} }}
---
{{ apiVersion: v1, kind: Namespace, metadata: {{ name: shop }} }}
---
{{ apiVersion: v1, kind: Service, metadata: {{ name: web, namespace: shop, labels: {{ far: 'yes' }} }},
  spec: {{ clusterIP: {vip}, selector: {{ app: web }}, ports: [{{ name: http, port: 80, targetPort: 8080 }}] }} }}
---
{{ apiVersion: v1, kind: Service, metadata: {{ name: near, namespace: shop }},
  spec: {{ clusterIP: {vip}9, selector: {{ app: web }}, ports: [{{ name: http, port: 80, targetPort: 8080 }}] }} }}
---
"
    )
}

/// Further objects of the second cluster: `far`, two pods of `web` and `far`, and the gateway into
/// its network.
const SECOND: &str = "
{ apiVersion: v1, kind: Service, metadata: { name: far, namespace: shop, labels: { far: 'yes' } },
  spec: { clusterIP: 10.200.0.2, selector: { app: web }, ports: [{ name: tcp, port: 70, targetPort: 8080 }] } }
---
{ apiVersion: v1, kind: Pod, metadata: { name: web-1, namespace: shop, labels: { app: web } },
  spec: { serviceAccountName: seller, containers: [] },
  status: { phase: Running, podIP: 10.8.0.1, conditions: [{ type: Ready, status: 'True' }] } }
---
{ apiVersion: v1, kind: Pod, metadata: { name: web-2, namespace: shop, labels: { app: web } },
  spec: { serviceAccountName: seller, containers: [] },
  status: { phase: Running, podIP: 10.8.0.2, conditions: [{ type: Ready, status: 'True' }] } }
---
{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: { name: web-1, namespace: shop, labels: { kubernetes.io/service-name: web } }, ports: [{ name: http, port: 8080 }],
  endpoints: [
    { addresses: [10.8.0.1], conditions: { ready: true }, targetRef: { kind: Pod, namespace: shop, name: web-1 } },
    { addresses: [10.8.0.2], conditions: { ready: true }, targetRef: { kind: Pod, namespace: shop, name: web-2 } }] }
---
{ apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: { name: far-1, namespace: shop, labels: { kubernetes.io/service-name: far } }, ports: [{ name: tcp, port: 8080 }],
  endpoints: [
    { addresses: [10.8.0.1], conditions: { ready: true }, targetRef: { kind: Pod, namespace: shop, name: web-1 } }] }
---
{ apiVersion: gateway.networking.k8s.io/v1, kind: Gateway,
  metadata: { name: ways, namespace: istio-system, labels: { topology.istio.io/network: m } },
  spec: { gatewayClassName: istio-east-west, listeners: [{ name: mesh, port: 15008, protocol: HBONE, tls: { mode: Terminate } }] },
  status: { addresses: [{ type: IPAddress, value: 172.16.0.1 }] } }
";

const FAR: &str =
    "m/SplitHorizonWorkload/istio-system/ways/172.16.0.1/shop/far.shop.svc.cluster.local";
const WEB: &str =
    "m/SplitHorizonWorkload/istio-system/ways/172.16.0.1/shop/web.shop.svc.cluster.local";
const WAYS: &str = "NetworkGateway/m/172.16.0.1/0";

/// The mesh, with or without joined networks.
fn two_clusters(joined: bool) -> Mesh {
    let mut settings = Settings {
        ambient: true,
        ..Settings::default()
    };
    settings.gateway_api.east_west = joined;
    let state = MeshState::new(settings);
    let engine = Engine::new(state.context(), Arc::new(AmbientTranslator(NoResources)));
    let mut mesh = Mesh { state, engine };
    let config =
        "serviceScopeConfigs: [{servicesSelector: {matchLabels: {far: 'yes'}}, scope: GLOBAL}]";
    let config = MeshConfig::istio_defaults().apply(config).unwrap().value;
    mesh.change(vec![Change::Mesh(Arc::new(config))]);
    mesh.put(&cluster("n", "10.96.0.1"));
    mesh.change(remote(&(cluster("m", "10.200.0.1") + SECOND)));
    mesh
}

#[test]
fn a_service_that_reaches_beyond_its_cluster_has_a_workload_for_each_other_network() {
    let mut mesh = two_clusters(true);
    let ztunnel = mesh.ztunnel("n1");
    let shown = mesh.ask(ztunnel, ResourceType::Address, &[]);
    let hosts = ["far", "near", "web"].map(|name| format!("shop/{name}.shop.svc.cluster.local"));
    assert_eq!(
        names(&shown),
        [WAYS, FAR, WEB, &hosts[0], &hosts[1], &hosts[2]]
    );

    let shown = mesh.ask(ztunnel, ResourceType::Workload, &[]);
    assert_eq!(names(&shown), [WAYS, FAR, WEB]);
    let web = Workload::decode(shown[WEB].clone()).unwrap();
    assert_eq!(
        (web.network.as_str(), web.capacity, web.tunnel_protocol()),
        ("m", Some(2), TunnelProtocol::Hbone)
    );
    assert_eq!(
        (web.uid.as_str(), web.name.as_str(), web.cluster_id.as_str()),
        (WEB, WEB, "two")
    );

    assert_eq!(web.services[&hosts[2]].ports[0].service_port, 80);
    let gateway = web.network_gateway.unwrap();
    let Some(Destination::Address(address)) = &gateway.destination else {
        panic!("{gateway:?}")
    };

    assert_eq!(
        (&*address.address, gateway.hbone_mtls_port),
        (&[172, 16, 0, 1][..], 15008)
    );
    let ways = Workload::decode(shown[WAYS].clone()).unwrap();
    assert_eq!(
        (ways.namespace.as_str(), ways.service_account.as_str()),
        ("istio-system", "ways")
    );
}

#[test]
fn a_service_of_several_clusters_has_the_addresses_and_identities_of_all() {
    let mut mesh = two_clusters(true);
    let ztunnel = mesh.ztunnel("n1");
    let mut service = |name: &str| {
        let key = format!("shop/{name}.shop.svc.cluster.local");
        let shown = mesh.ask(ztunnel, ResourceType::Address, &[&key]);
        let Some(Type::Service(service)) = Address::decode(shown[&key].clone()).unwrap().r#type
        else {
            panic!("{key}")
        };
        service
    };

    let addresses = |service: &Service| -> Vec<String> {
        let text = |bytes: &[u8]| {
            bytes
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(".")
        };
        service
            .addresses
            .iter()
            .map(|one| format!("{}/{}", one.network, text(&one.address)))
            .collect()
    };

    let web = service("web");
    assert_eq!(addresses(&web), ["m/10.200.0.1", "n/10.96.0.1"]);
    assert_eq!(
        web.subject_alt_names,
        ["spiffe://cluster.local/ns/shop/sa/seller"]
    );
    assert_eq!(addresses(&service("far")), ["m/10.200.0.2"]);
    let near = service("near");

    assert_eq!(
        (addresses(&near), near.subject_alt_names),
        (vec!["n/10.96.0.19".to_owned()], Vec::new())
    );
}

#[test]
fn remote_services_are_found_by_name_and_address() {
    let mut mesh = two_clusters(true);
    let ztunnel = mesh.ztunnel("n1");
    let far = "shop/far.shop.svc.cluster.local";
    for requested in ["m/10.200.0.2", far] {
        assert_eq!(
            names(&mesh.ask(ztunnel, ResourceType::Address, &[requested])),
            [FAR, far],
            "{requested}"
        );
    }

    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Address, &["m/172.16.0.1"])),
        [WAYS]
    );
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Address, &[WEB])),
        [WEB]
    );

    // A service that is not global is not found in the other cluster.
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Address, &["m/10.200.0.19"])),
        [""; 0]
    );
}

#[test]
fn changes_in_a_remote_cluster_give_the_same_result_as_a_fresh_start() {
    let mut mesh = two_clusters(true);
    let ztunnel = mesh.ztunnel("n1");
    mesh.ask(ztunnel, ResourceType::Address, &[]);
    let far = "shop/far.shop.svc.cluster.local";
    mesh.change(remote(
        &SECOND[..SECOND.find("---").unwrap()].replace("far: 'yes'", "far: 'no'"),
    ));
    assert!(!mesh.shown(ztunnel, ResourceType::Address).contains_key(far));

    mesh.change(remote(SECOND));
    let mut fresh = two_clusters(true);
    let other = fresh.ztunnel("n1");
    assert_eq!(
        mesh.shown(ztunnel, ResourceType::Address),
        fresh.ask(other, ResourceType::Address, &[])
    );
    mesh.change(vec![Change::Remote(
        ClusterId::new("two"),
        RemoteChange::Gone,
    )]);

    let hosts = ["near", "web"].map(|name| format!("shop/{name}.shop.svc.cluster.local"));
    assert_eq!(
        names(&mesh.shown(ztunnel, ResourceType::Address)),
        [&hosts[0], &hosts[1]]
    );
}

#[test]
fn without_multi_network_remote_clusters_are_ignored() {
    let mut mesh = two_clusters(false);
    let ztunnel = mesh.ztunnel("n1");
    let hosts = ["near", "web"].map(|name| format!("shop/{name}.shop.svc.cluster.local"));
    assert_eq!(
        names(&mesh.ask(ztunnel, ResourceType::Address, &[])),
        [&hosts[0], &hosts[1]]
    );
}
