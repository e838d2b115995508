//! Sidecars and the waypoints of services, from YAML.

use navarch_api::object::Kind;
use navarch_api::settings::Settings;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use navarch_proto::envoy::config::core::v3::address::Address;
use navarch_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use navarch_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;
use prost_types::value::Kind as ValueKind;

use crate::hbone::ORIGINAL_DST;
use crate::test_mesh::{TestMesh, networking};

const WEB: &str = "outbound|80||web.shop.svc.cluster.local";
/// The endpoint of the waypoint `wp` of `shop`, and the tunnel to the address of `web` through it.
const THROUGH_WAYPOINT: &str = "10.244.9.9:15008 to 10.96.0.1:80";
/// The endpoint of `web` itself.
const OWN: &str = "10.1.0.1";
const ON: &str = "istio.io/use-waypoint: wp, navarch.io/sidecar-use-waypoint: 'true'";

fn settings() -> Settings {
    let mut settings = Settings {
        ambient: true,
        ..Settings::default()
    };
    settings.hbone.sends = true;
    settings.hbone.ingress_waypoints = true;
    settings.hbone.sidecar_waypoints = true;
    settings
}

/// A Gateway `wp` with these labels and its address in the status, whose listener admits these
/// namespaces.
fn gateway(labels: &str, from: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{name: wp, namespace: shop, labels: {{{labels}}}}}\n\
         spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: mesh, port: 15008, protocol: HBONE, \
         allowedRoutes: {{namespaces: {{from: {from}}}}}}}]}}\n\
         status: {{addresses: [{{type: Hostname, value: wp.shop.svc.cluster.local}}]}}\n---\n"
    )
}

fn service(namespace: &str, name: &str, labels: &str, address: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\n\
         metadata: {{name: {name}, namespace: {namespace}, labels: {{{labels}}}}}\n\
         spec: {{clusterIP: {address}, selector: {{app: {name}}}, \
         ports: [{{name: http, port: 80, targetPort: 8080}}]}}\n---\n"
    )
}

fn web(labels: &str) -> String {
    service("shop", "web", labels, "10.96.0.1")
}

fn workload(namespace: &str, name: &str, address: &str, network: &str) -> String {
    networking(
        "WorkloadEntry",
        namespace,
        name,
        &format!("{{address: {address}, network: '{network}', labels: {{app: {name}}}}}"),
    )
}

fn namespace(labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, labels: {{{labels}}}}}\n---\n"
    )
}

/// The namespace, the waypoint `wp` with one pod, and the workload of `web`.
fn world() -> String {
    let own_service = "apiVersion: v1\nkind: Service\nmetadata: {name: wp, namespace: shop}\n\
        spec: {clusterIP: 10.96.9.9, selector: {app: wp}, \
        ports: [{name: mesh, port: 15008, targetPort: 15008}]}\n---\n";
    namespace("")
        + &gateway("", "Same")
        + own_service
        + &workload("shop", "wp", "10.244.9.9", "")
        + &workload("shop", "web", OWN, "")
}

fn mesh(further: &str) -> TestMesh {
    TestMesh::with_settings(&(world() + further), settings())
}

/// The endpoints of a cluster: `waypoint to destination` of tunnels through waypoints, the address
/// of others.
fn endpoints(mesh: &mut TestMesh, proxy: ProxyId, cluster: &str) -> Vec<String> {
    let found = mesh.named::<ClusterLoadAssignment>(proxy, ResourceType::Endpoint, &[cluster]);
    found
        .values()
        .flat_map(|assignment| &assignment.endpoints)
        .flat_map(|group| &group.lb_endpoints)
        .map(described)
        .collect()
}

fn described(endpoint: &LbEndpoint) -> String {
    let Some(HostIdentifier::Endpoint(host)) = &endpoint.host_identifier else {
        panic!("{endpoint:?}")
    };
    let address = host.address.as_ref().unwrap().address.as_ref().unwrap();

    match address {
        Address::SocketAddress(socket) => socket.address.clone(),
        Address::EnvoyInternalAddress(internal) => {
            let metadata = &endpoint.metadata.as_ref().unwrap().filter_metadata;
            let Some(ValueKind::StringValue(local)) = &metadata[ORIGINAL_DST].fields["local"].kind
            else {
                panic!("{metadata:?}")
            };
            format!("{} to {local}", internal.endpoint_id)
        }
        Address::Pipe(_) => panic!("{endpoint:?}"),
    }
}

fn cluster(mesh: &mut TestMesh, proxy: ProxyId, name: &str) -> Option<Cluster> {
    mesh.named::<Cluster>(proxy, ResourceType::Cluster, &[name])
        .remove(name)
}

#[test]
fn a_sidecar_sends_through_the_waypoint_of_a_service_that_requests_it() {
    let mut mesh = mesh(&web(ON));
    let client = mesh.sidecar("shop", "client");
    assert_eq!(endpoints(&mut mesh, client, WEB), [THROUGH_WAYPOINT]);

    let elsewhere = mesh.sidecar("bank", "client");
    assert_eq!(endpoints(&mut mesh, elsewhere, WEB), [THROUGH_WAYPOINT]);
}

#[test]
fn without_the_setting_sidecars_send_to_the_services_own_endpoints() {
    let mut settings = settings();
    settings.hbone.sidecar_waypoints = false;
    let mut mesh = TestMesh::with_settings(&(world() + &web(ON)), settings);
    let client = mesh.sidecar("shop", "client");
    assert_eq!(endpoints(&mut mesh, client, WEB), [OWN]);
}

#[test]
fn a_label_of_a_service_takes_precedence_over_that_of_its_namespace() {
    let mut mesh = mesh(&web("istio.io/use-waypoint: wp"));
    let client = mesh.sidecar("shop", "client");
    assert_eq!(endpoints(&mut mesh, client, WEB), [OWN]);

    mesh.apply(&namespace("navarch.io/sidecar-use-waypoint: 'true'"));
    assert_eq!(endpoints(&mut mesh, client, WEB), [THROUGH_WAYPOINT]);

    mesh.apply(&web(
        "istio.io/use-waypoint: wp, navarch.io/sidecar-use-waypoint: 'false'",
    ));
    assert_eq!(endpoints(&mut mesh, client, WEB), [OWN]);
}

#[test]
fn gateways_do_not_follow_the_label_of_sidecars() {
    let mut mesh = mesh(&web(ON));
    let gateway = mesh.gateway("shop");
    assert_eq!(endpoints(&mut mesh, gateway, WEB), [OWN]);

    mesh.apply(&web(
        "istio.io/use-waypoint: wp, istio.io/ingress-use-waypoint: 'true'",
    ));
    let client = mesh.sidecar("shop", "client");
    assert_eq!(endpoints(&mut mesh, gateway, WEB), [THROUGH_WAYPOINT]);
    assert_eq!(endpoints(&mut mesh, client, WEB), [OWN]);
}

#[test]
fn a_waypoint_that_is_away_leaves_no_endpoints() {
    let mut mesh = mesh(&web(ON));
    let client = mesh.sidecar("shop", "client");
    assert_eq!(endpoints(&mut mesh, client, WEB), [THROUGH_WAYPOINT]);

    mesh.remove(Kind::WorkloadEntry, "shop", "wp");
    assert_eq!(endpoints(&mut mesh, client, WEB), Vec::<String>::new());

    mesh.remove(Kind::Service, "shop", "wp");
    assert_eq!(endpoints(&mut mesh, client, WEB), Vec::<String>::new());

    mesh.remove(Kind::KubernetesGateway, "shop", "wp");
    assert_eq!(endpoints(&mut mesh, client, WEB), Vec::<String>::new());
}

#[test]
fn a_service_without_a_waypoint_for_services_keeps_its_endpoints() {
    let mut mesh = mesh(&web(ON));
    let client = mesh.sidecar("shop", "client");

    for traffic in ["service", "all"] {
        let labels = format!("istio.io/waypoint-for: {traffic}");
        mesh.apply(&gateway(&labels, "Same"));
        assert_eq!(endpoints(&mut mesh, client, WEB), [THROUGH_WAYPOINT]);
    }
    mesh.apply(&gateway("istio.io/waypoint-for: workload", "Same"));
    assert_eq!(endpoints(&mut mesh, client, WEB), [OWN]);

    mesh.apply(&gateway("", "Same"));
    mesh.apply(&web(
        "istio.io/use-waypoint: none, navarch.io/sidecar-use-waypoint: 'true'",
    ));
    assert_eq!(endpoints(&mut mesh, client, WEB), [OWN]);
}

#[test]
fn a_waypoint_of_another_namespace_must_admit_the_service() {
    let labels = format!("{ON}, istio.io/use-waypoint-namespace: shop");
    let pay = "outbound|80||pay.bank.svc.cluster.local";
    let mut mesh = mesh(
        &(service("bank", "pay", &labels, "10.96.0.2") + &workload("bank", "pay", "10.1.0.2", "")),
    );
    let client = mesh.sidecar("bank", "client");
    assert_eq!(endpoints(&mut mesh, client, pay), Vec::<String>::new());

    mesh.apply(&gateway("", "All"));
    assert_eq!(
        endpoints(&mut mesh, client, pay),
        ["10.244.9.9:15008 to 10.96.0.2:80"]
    );

    // A Sidecar limits what applications call, not the waypoints.
    mesh.apply(&networking(
        "Sidecar",
        "bank",
        "default",
        "{egress: [{hosts: ['./*']}]}",
    ));
    assert_eq!(
        endpoints(&mut mesh, client, pay),
        ["10.244.9.9:15008 to 10.96.0.2:80"]
    );
}

#[test]
fn clients_that_cannot_tunnel_get_no_endpoints() {
    let mut mesh = mesh(&web(ON));
    let declines = mesh.with_metadata(
        "sidecar",
        "shop",
        "client",
        &serde_json::json!({"DISABLE_HBONE_SEND": "true"}),
    );
    assert_eq!(endpoints(&mut mesh, declines, WEB), Vec::<String>::new());

    let grpc = mesh.grpc("shop", "client", &[]);
    assert_eq!(endpoints(&mut mesh, grpc, WEB), Vec::<String>::new());

    let mut settings = settings();
    settings.hbone.sends = false;
    let mut mesh = TestMesh::with_settings(&(world() + &web(ON)), settings);
    let client = mesh.sidecar("shop", "client");
    assert_eq!(endpoints(&mut mesh, client, WEB), Vec::<String>::new());
}

#[test]
fn waypoints_of_other_networks_are_not_used() {
    let gateway_between = "apiVersion: v1\nkind: Service\n\
        metadata: {name: ways, namespace: istio-system, labels: {topology.istio.io/network: n2}}\n\
        spec: {clusterIP: 10.96.8.8, type: LoadBalancer, ports: [{name: tls, port: 15443}]}\n\
        status: {loadBalancer: {ingress: [{ip: 172.16.0.1}]}}\n---\n";
    let mut mesh = mesh(&(web(ON) + gateway_between));
    mesh.apply(&workload("shop", "wp", "10.244.9.9", "n2"));

    let in_network = |mesh: &mut TestMesh, network: &str| {
        let fields = serde_json::json!({"NETWORK": network});
        mesh.with_metadata("sidecar", "shop", "client", &fields)
    };
    let near = in_network(&mut mesh, "n2");
    assert_eq!(endpoints(&mut mesh, near, WEB), [THROUGH_WAYPOINT]);
    let far = in_network(&mut mesh, "n1");
    assert_eq!(endpoints(&mut mesh, far, WEB), Vec::<String>::new());
}

#[test]
fn a_headless_service_is_reached_at_its_pods() {
    let mut mesh = mesh(&service("shop", "web", ON, "None"));
    let client = mesh.sidecar("shop", "client");

    let found = cluster(&mut mesh, client, WEB).unwrap();
    let original_dst = ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into());
    assert_eq!(found.cluster_discovery_type, Some(original_dst));
}

/// A ServiceEntry that requests its waypoint.
fn entry(host: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n\
         metadata: {{name: entry, namespace: shop, labels: {{{ON}}}}}\n\
         spec: {{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], {spec}}}\n---\n"
    )
}

#[test]
fn a_service_entry_is_reached_through_its_waypoint_if_its_address_is_enough() {
    let name = "outbound|80||db.example";
    let through = "10.244.9.9:15008 to 10.96.7.7:80";
    for (spec, expected) in [
        (
            "addresses: [10.96.7.7], resolution: STATIC, endpoints: [{address: 10.3.0.1}]",
            vec![through],
        ),
        ("addresses: [10.96.7.7], resolution: DNS", vec![through]),
        ("addresses: [10.96.7.7], resolution: NONE", vec![]),
        (
            "addresses: [10.96.7.0/24], resolution: STATIC, endpoints: [{address: 10.3.0.1}]",
            vec![],
        ),
    ] {
        let mut mesh = mesh(&entry("db.example", spec));
        let client = mesh.sidecar("shop", "client");
        assert_eq!(endpoints(&mut mesh, client, name), expected, "{spec}");
        let cluster = cluster(&mut mesh, client, name).unwrap();
        assert_eq!(
            cluster.cluster_discovery_type,
            Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            "{spec}"
        );
    }
}

#[test]
fn routes_and_policies_of_the_service_are_the_waypoints() {
    let route = networking(
        "VirtualService",
        "shop",
        "web",
        "{hosts: [web, own.example], http: [{timeout: 3s, route: [{destination: {host: web, subset: v1}}]}]}",
    );
    let rule = networking(
        "DestinationRule",
        "shop",
        "web",
        "{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}, tls: {mode: DISABLE}}, \
         subsets: [{name: v1, labels: {version: v1}}]}",
    );
    let mut mesh = mesh(&(web(ON) + &route + &rule));
    let client = mesh.sidecar("shop", "client");

    let routes = mesh.routes(client, "80");
    let text_of = |name: &str| {
        let host = routes.virtual_hosts.iter().find(|host| host.name == name);
        format!("{:?}", host.unwrap().routes)
    };
    let own = text_of("web.shop.svc.cluster.local:80");
    assert!(own.contains(WEB) && !own.contains("|v1|"), "{own}");

    // The route of another host is still the sidecar's, and leads to the waypoint.
    let v1 = "outbound|80|v1|web.shop.svc.cluster.local";
    let other = text_of("own.example:80");
    assert!(other.contains(v1), "{other}");
    assert_eq!(endpoints(&mut mesh, client, v1), [THROUGH_WAYPOINT]);

    let built = cluster(&mut mesh, client, WEB).unwrap();
    let sockets: Vec<&str> = built
        .transport_socket_matches
        .iter()
        .map(|socket| socket.name.as_str())
        .collect();
    assert_eq!(sockets.first(), Some(&"hbone"));
    assert!(!format!("{:?}", built.circuit_breakers).contains("Some(7)"));
}
