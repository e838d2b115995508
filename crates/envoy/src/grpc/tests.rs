//! Resources of proxyless gRPC applications, from YAML.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::LbPolicy;
use navarch_proto::envoy::config::listener::v3::Listener;
use navarch_proto::envoy::config::route::v3::RouteConfiguration;

use crate::test_mesh::{TestMesh, networking, service};
use navarch_push::resource::ResourceType;

/// The names of the listeners that an application in `shop` receives for these names.
fn listeners(mesh: &mut TestMesh, names: &[&str]) -> Vec<String> {
    let client = mesh.grpc("shop", "client", &[]);
    let listeners: BTreeMap<String, Listener> = mesh.named(client, ResourceType::Listener, names);
    assert!(
        listeners
            .iter()
            .all(|(name, listener)| *name == listener.name)
    );
    listeners.into_keys().collect()
}

#[test]
fn a_listener_is_found_by_every_name_that_the_client_may_use() {
    let mut mesh =
        TestMesh::new(&[service("shop", "web", 80), service("bank", "pay", 80)].concat());

    for name in [
        "web:80",
        "web.shop:80",
        "web.shop.svc:80",
        "web.shop.svc.cluster.local:80",
    ] {
        assert_eq!(listeners(&mut mesh, &[name]), [name]);
    }

    for name in [
        "web:81",
        "pay:80",
        "pay.bank:80",
        "pay.bank.svc:80",
        "web.shop.svc.cluster.local:080",
        "",
        ":80",
        "[",
    ] {
        assert_eq!(listeners(&mut mesh, &[name]), [""; 0], "{name}");
    }

    assert_eq!(
        listeners(&mut mesh, &["pay.bank.svc.cluster.local:80"]),
        ["pay.bank.svc.cluster.local:80"]
    );
}

#[test]
fn a_grpc_host_without_a_port_means_all_its_ports() {
    let yaml = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
                spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {name: grpc, port: 90}]}\n";
    let mut mesh = TestMesh::new(yaml);
    assert_eq!(listeners(&mut mesh, &["web"]), ["web:80", "web:90"]);
    assert_eq!(
        listeners(&mut mesh, &["web:80", "web"]),
        ["web:80", "web:90"]
    );
    // As in istiod, each name of a host has the ports of all of them.
    assert_eq!(
        listeners(&mut mesh, &["web.shop:80", "web:90"]),
        ["web.shop:80", "web.shop:90", "web:80", "web:90"]
    );
}

#[test]
fn routes_hold_the_virtual_hosts_of_one_host() {
    let wildcard = "{hosts: ['*.example.com'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}";
    let inner = "{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}";
    let mut mesh = TestMesh::new(
        &[
            service("shop", "web", 80),
            service("shop", "api", 80),
            networking("ServiceEntry", "shop", "all", wildcard),
            networking("ServiceEntry", "shop", "one", inner),
        ]
        .concat(),
    );

    let client = mesh.grpc("shop", "client", &[]);
    let mut hosts = |name: &str| -> Option<Vec<String>> {
        let mut routes: BTreeMap<String, RouteConfiguration> =
            mesh.named(client, ResourceType::Route, &[name]);
        let hosts = routes.remove(name)?.virtual_hosts;
        let mut names: Vec<String> = hosts.into_iter().map(|host| host.name).collect();
        names.sort();
        Some(names)
    };

    let found = |names: &[&str]| {
        Some(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
    };

    assert_eq!(
        hosts("outbound|80||web.shop.svc.cluster.local"),
        found(&["web.shop.svc.cluster.local:80"])
    );
    assert_eq!(
        hosts("outbound|80||a.example.com"),
        found(&["*.example.com:80", "a.example.com:80"])
    );

    assert_eq!(
        hosts("outbound|80||*.example.com"),
        found(&["*.example.com:80"])
    );
    assert_eq!(hosts("outbound|81||web.shop.svc.cluster.local"), found(&[]));
    assert_eq!(hosts("outbound|80||none.example"), found(&[]));

    for name in [
        "80",
        "http_proxy",
        "outbound|0||web",
        "outbound|80||",
        "outbound|x||web",
        "inbound|80||",
    ] {
        assert_eq!(hosts(name), None, "{name}");
    }
}

#[test]
fn a_service_change_keeps_routes_of_other_services() {
    let cost = |services: usize| {
        let mut yaml = service("shop", "web", 80);
        (0..services).for_each(|number| yaml += &service("shop", &format!("other-{number}"), 80));
        let mut mesh = TestMesh::new(&yaml);
        let client = mesh.grpc("shop", "client", &[]);
        let name = "outbound|80||web.shop.svc.cluster.local";
        let _: BTreeMap<String, RouteConfiguration> =
            mesh.named(client, ResourceType::Route, &[name]);
        let rule =
            "{host: other-1, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}}";
        mesh.apply(&networking("DestinationRule", "shop", "other", rule))
            .published
    };
    assert_eq!(cost(3), 0);
}

#[test]
fn a_grpc_cluster_has_only_fields_that_grpc_supports() {
    let rule = "{host: web, trafficPolicy: {loadBalancer: {simple: RANDOM}, outlierDetection: {consecutive5xxErrors: 1}, \
                connectionPool: {tcp: {maxConnections: 3}}}, subsets: [{name: v1, labels: {version: v1}, \
                trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}, connectionPool: {http: {http2MaxRequests: 5}}}}]}";
    let mut mesh = TestMesh::new(
        &[
            service("shop", "web", 80),
            networking("DestinationRule", "shop", "web", rule),
        ]
        .concat(),
    );

    let client = mesh.grpc("shop", "client", &[]);
    let names =
        ["", "v1", "v2"].map(|subset| format!("outbound|80|{subset}|web.shop.svc.cluster.local"));
    let [whole, v1, v2] = &names;
    let subscribed = [
        whole.as_str(),
        v1,
        v2,
        "outbound|81||web.shop.svc.cluster.local",
        "BlackHoleCluster",
        "inbound|80||",
    ];

    let clusters: BTreeMap<String, Cluster> =
        mesh.named(client, ResourceType::Cluster, &subscribed);
    assert_eq!(clusters.keys().collect::<Vec<_>>(), [v1, whole]);
    assert_eq!(clusters[whole].lb_policy(), LbPolicy::RoundRobin);
    assert!(
        clusters[whole].circuit_breakers.is_none() && clusters[whole].outlier_detection.is_none()
    );
    assert_eq!(clusters[v1].lb_policy(), LbPolicy::LeastRequest);

    assert_eq!(
        clusters[v1].circuit_breakers.as_ref().unwrap().thresholds[0].max_requests,
        Some(5)
    );
    assert_eq!(
        mesh.remarks().len(),
        1,
        "unsupported settings are reported: {:?}",
        mesh.remarks()
    );
}

#[test]
fn a_server_accepts_mutual_tls_or_plain_text_but_never_both() {
    let peer = |mode: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
             metadata: {{name: default, namespace: shop}}\nspec: {{mtls: {{mode: {mode}}}}}\n---\n"
        )
    };

    let promise = [("security.istio.io/tlsMode", "istio")];
    let name = "xds.istio.io/grpc/lds/inbound/0.0.0.0:80";

    for (mode, labels, mtls) in [
        ("STRICT", &[][..], true),
        ("PERMISSIVE", &[], false),
        ("PERMISSIVE", &promise, true),
        ("DISABLE", &promise, false),
    ] {
        let selecting = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
                         spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: grpc, port: 80}]}\n---\n";
        let mut mesh = TestMesh::new(&[selecting, &peer(mode)].concat());
        let server = mesh.grpc("shop", "web", labels);
        let mut listeners: BTreeMap<String, Listener> =
            mesh.named(server, ResourceType::Listener, &[name]);
        let [chain] = &listeners
            .remove(name)
            .expect("the application serves the port")
            .filter_chains[..]
        else {
            panic!("one chain")
        };
        assert_eq!(chain.transport_socket.is_some(), mtls, "{mode} {labels:?}");
        let none: BTreeMap<String, Listener> = mesh.named(
            server,
            ResourceType::Listener,
            &["xds.istio.io/grpc/lds/inbound/0.0.0.0:81"],
        );
        assert!(none.is_empty(), "no Service has this port");
    }
}
