//! Gateways between networks, and waypoints that send to other networks.

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::core::v3::address::Address;
use navarch_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use navarch_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_proto::json::Codec;
use navarch_push::resource::ResourceType;
use prost::Message;

use super::*;

/// Services in `shop`: `web` is global and has a waypoint, `plain` is global, `near` is not. `web`
/// has a workload in each network; the gateway into the network `n2` is 172.16.0.1.
fn world() -> String {
    let far = |name: &str, vip: &str, further: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop, labels: {{far: 'yes'{further}}}}}\n\
             spec: {{clusterIP: {vip}, selector: {{app: {name}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}\n---\n"
        )
    };

    let entry = |name: &str, address: &str, network: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{address: {address}, network: {network}, serviceAccount: web, \
             labels: {{app: web, networking.istio.io/tunnel: http}}}}\n---\n"
        )
    };

    let ways = "apiVersion: v1\nkind: Service\n\
        metadata: {name: ways, namespace: istio-system, labels: {topology.istio.io/network: n2}}\n\
        spec: {clusterIP: 10.96.8.8, type: LoadBalancer, ports: [{name: mesh, port: 15008}]}\n\
        status: {loadBalancer: {ingress: [{ip: 172.16.0.1}]}}\n---\n";

    namespace("shop", "{}")
        + &waypoint("{}", "Same")
        + &far("web", "10.96.0.1", ", istio.io/use-waypoint: wp")
        + &far("plain", "10.96.0.2", "")
        + &service("shop", "near", 80)
        + &entry("here", "10.1.0.1", "n1")
        + &entry("there", "10.2.0.1", "n2")
        + ways
}

fn joined(change: impl FnOnce(&mut Settings)) -> TestMesh {
    let mut settings = ambient();
    settings.gateway_api.east_west = true;
    settings.hbone.waypoints_leave_network = true;
    settings.services_select_workload_entries = true;
    change(&mut settings);
    let mut mesh = TestMesh::with_settings(&world(), settings);
    mesh.mesh_config(
        "serviceScopeConfigs: [{servicesSelector: {matchLabels: {far: 'yes'}}, scope: GLOBAL}]",
    );
    mesh
}

/// The endpoints of a cluster: with a port those behind Envoy's internal listeners, without one the
/// others.
fn endpoints(mesh: &mut TestMesh, proxy: ProxyId, cluster: &str) -> Vec<String> {
    let found = mesh.named::<ClusterLoadAssignment>(proxy, ResourceType::Endpoint, &[cluster]);
    let groups = found.values().flat_map(|assignment| &assignment.endpoints);
    let text = |endpoint: &LbEndpoint| {
        let Some(HostIdentifier::Endpoint(at)) = &endpoint.host_identifier else {
            panic!("{endpoint:?}")
        };
        let address = at
            .address
            .as_ref()
            .and_then(|address| address.address.as_ref());
        match address {
            Some(Address::EnvoyInternalAddress(internal)) => internal.endpoint_id.clone(),
            Some(Address::SocketAddress(socket)) => socket.address.clone(),
            Some(Address::Pipe(_)) | None => panic!("{endpoint:?}"),
        }
    };

    groups
        .flat_map(|group| &group.lb_endpoints)
        .map(text)
        .collect()
}

fn json<M: Message>(resource_type: ResourceType, message: &M) -> String {
    Codec::new()
        .any_to_json(resource_type.type_url(), &message.encode_to_vec())
        .unwrap()
        .to_string()
}

const WEB: &str = "inbound-vip|80|tcp|web.shop.svc.cluster.local";

#[test]
fn an_east_west_gateway_serves_only_multi_network_services() {
    let mut mesh = joined(|_| ());
    let proxy = mesh.deployed("istio-system", "ways", "istio.io-eastwest-controller", "n1");
    assert_eq!(served(&mesh, proxy), ["shop/plain", "shop/web", "shop/wp"]);
    assert_eq!(
        mesh.all_names(proxy, ResourceType::Listener),
        [
            "connect_terminate",
            "forward_inner_connect",
            "main_internal"
        ]
    );

    let mut clusters = mesh.all_names(proxy, ResourceType::Cluster);
    clusters.sort_unstable();
    let host =
        |port: u16, name: &str| format!("inbound-vip|{port}|tcp|{name}.shop.svc.cluster.local");
    let fixed = ["encap", "forward_inner_connect"].map(str::to_owned);
    let mut expected = vec!["BlackHoleCluster".to_owned()];
    expected.extend(fixed);
    expected.extend([host(15008, "wp"), host(80, "plain"), host(80, "web")]);

    expected.push("main_internal".to_owned());
    assert_eq!(clusters, expected);
    mesh.mesh_config("serviceScopeConfigs: []");
    assert_eq!(served(&mesh, proxy), Vec::<String>::new());
    let main = mesh.named::<Listener>(proxy, ResourceType::Listener, &["main_internal"]);
    assert_eq!(
        main["main_internal"].filter_chains[0].name,
        "virtualInbound-blackhole"
    );
}

#[test]
fn an_east_west_gateway_forwards_inner_tunnels() {
    let mut mesh = joined(|_| ());
    let proxy = mesh.deployed("istio-system", "ways", "istio.io-eastwest-controller", "n1");

    // The gateway of the other network selects the workload there.
    assert_eq!(endpoints(&mut mesh, proxy, WEB), ["10.1.0.1:8080"]);
    let found = mesh.named::<ClusterLoadAssignment>(proxy, ResourceType::Endpoint, &[WEB]);
    assert!(
        json(ResourceType::Endpoint, &found[WEB])
            .contains("\"serverListenerName\":\"forward_inner_connect\"")
    );
    let clusters = mesh.named::<Cluster>(
        proxy,
        ResourceType::Cluster,
        &["encap", "forward_inner_connect", WEB],
    );
    let forward = json(ResourceType::Cluster, &clusters["forward_inner_connect"]);

    assert!(
        forward.contains("\"upstreamPortOverride\":15008") && !forward.contains("transportSocket"),
        "{forward}"
    );
    let encap = json(ResourceType::Cluster, &clusters["encap"]);
    assert!(
        encap.contains("\"forward_inner_connect\"") && !encap.contains("HttpProtocolOptions"),
        "{encap}"
    );

    let listeners = mesh.named::<Listener>(
        proxy,
        ResourceType::Listener,
        &["connect_terminate", "main_internal"],
    );
    let terminate = json(ResourceType::Listener, &listeners["connect_terminate"]);
    assert!(terminate.contains("%REQ(x-istio-source)%"), "{terminate}");
    let main = json(ResourceType::Listener, &listeners["main_internal"]);

    // A request that a remote waypoint has allowed goes to the service; all others go to the
    // service's waypoint.
    assert!(
        main.contains("io.istio.source") && main.contains("\"web.shop.svc.cluster.local:80\""),
        "{main}"
    );
    assert!(
        !main.contains("direct-tcp") && !main.contains("near.shop"),
        "{main}"
    );
}

#[test]
fn a_waypoint_reaches_other_networks_by_a_tunnel_within_a_tunnel() {
    let cluster = "inbound-vip|80|http|web.shop.svc.cluster.local";
    let mut mesh = joined(|_| ());
    let proxy = mesh.deployed("shop", "wp", "istio.io-mesh-controller", "n1");
    assert_eq!(
        endpoints(&mut mesh, proxy, cluster),
        ["10.1.0.1:8080", "172.16.0.1:15008"]
    );
    let found = mesh.named::<ClusterLoadAssignment>(proxy, ResourceType::Endpoint, &[cluster]);
    let text = json(ResourceType::Endpoint, &found[cluster]);

    assert!(
        text.contains("\"serverListenerName\":\"inner_connect_originate\""),
        "{text}"
    );
    assert!(
        text.contains(
            "\"double_hbone\":{\"hbone_target_address\":\"web.shop.svc.cluster.local:80\"}"
        ),
        "{text}"
    );

    assert!(
        text.contains("\"local\":\"172.16.0.1:15008\"") && !text.contains("\"tunnel\""),
        "{text}"
    );
    let names = mesh.all_names(proxy, ResourceType::Listener);
    assert!(
        ["inner_connect_originate", "outer_connect_originate"]
            .iter()
            .all(|name| names.iter().any(|own| own == name))
    );

    let mut stays = joined(|settings| settings.hbone.waypoints_leave_network = false);
    let proxy = stays.deployed("shop", "wp", "istio.io-mesh-controller", "n1");
    assert_eq!(endpoints(&mut stays, proxy, cluster), ["10.1.0.1:8080"]);
}

#[test]
fn an_ingress_gateway_leaves_its_network_where_it_may() {
    let cluster = "outbound|80||web.shop.svc.cluster.local";
    for (leaves, expected) in [
        (true, &["10.1.0.1", "172.16.0.1:15008"][..]),
        (false, &["10.1.0.1"]),
    ] {
        let mut mesh = joined(|settings| settings.hbone.gateways_leave_network = leaves);
        let proxy = mesh.gateway_in("shop", "n1");
        assert_eq!(endpoints(&mut mesh, proxy, cluster), expected);
        let has = mesh
            .all_names(proxy, ResourceType::Cluster)
            .iter()
            .any(|name| name == "outer_connect_originate");
        assert_eq!(has, leaves);
    }
}

#[test]
fn texts_that_tunnels_share_with_listeners_behind_them_have_a_hash_if_envoy_has_such_a_type() {
    let mut mesh = joined(|_| ());
    let istio = mesh.deployed("shop", "wp", "istio.io-mesh-controller", "n1");
    let stock = mesh.with_agent_metrics("waypoint", "shop");
    let before_1_38 = mesh.with_extensions("waypoint", "shop", &["envoy.string"]);

    let types = |mesh: &mut TestMesh, proxy| {
        let found = mesh.named::<Listener>(proxy, ResourceType::Listener, &["connect_terminate"]);
        let text = json(ResourceType::Listener, &found["connect_terminate"]);
        [
            "istio.hashable_string",
            "envoy.hashable_string",
            "envoy.string",
        ]
        .map(|name| text.matches(&format!("\"{name}\"")).count())
    };

    assert_eq!(types(&mut mesh, istio), [3, 0, 0]);
    // Its agent's metrics also need the client's baggage.
    assert_eq!(types(&mut mesh, stock), [0, 4, 0]);
    // It would reject the listener.
    assert_eq!(types(&mut mesh, before_1_38), [0, 0, 3]);
}
