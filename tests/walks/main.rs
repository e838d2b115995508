//! Destinations of requests: tests of meaning, not of bytes.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, and looks for one variant of foreign enums"
)]

mod authorization;
mod breadth;
mod crashes;
mod documented_policies;
mod ingress;
mod mesh;
mod past_paths;
mod past_policies;
mod past_routes;
mod place;
mod rare;
mod rbac;
mod waypoint;
mod ztunnel;

use mesh::Mesh;
use navarch::walk::{Connection, Entry, HttpRequest, Outcome, Resources, Tls, Walk};
use navarch_tests::shown;

/// A mesh with reviews in two versions, on nodes of two regions, and ratings in one.
fn shop() -> Mesh {
    Mesh::default()
        .node("n1", "r1")
        .node("n2", "r2")
        .service(
            "reviews",
            "10.96.0.1",
            ("http", 9080),
            &[
                ("10.1.0.1", "version: v1", "n1"),
                ("10.1.0.2", "version: v2", "n2"),
            ],
        )
        .service(
            "ratings",
            "10.96.0.2",
            ("http", 9080),
            &[("10.1.0.3", "version: v1", "n1")],
        )
        .service(
            "db",
            "10.96.0.3",
            ("tcp", 5432),
            &[("10.1.0.4", "version: v1", "n1")],
        )
}

/// A DestinationRule with the subsets of reviews.
const SUBSETS: &str = "{host: reviews.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v1}}, \
                       {name: v2, labels: {version: v2}}]}";

/// A request of a workload to a host, at the address of its service.
fn request(to: &str, host: &str, path: &str, headers: &[(&str, &str)]) -> Connection {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let http = HttpRequest {
        method: "GET".to_owned(),
        host: host.to_owned(),
        path: path.to_owned(),
        headers: headers.collect(),
        claims: None,
    };
    Connection {
        http: Some(http),
        ..bytes(to)
    }
}

/// A connection of a workload with opaque content.
fn bytes(to: &str) -> Connection {
    Connection {
        entry: Entry::Outbound,
        destination: to.parse().unwrap(),
        source: None,
        tls: None,
        http: None,
    }
}

/// The same connection, opened to the proxy itself.
fn direct(connection: Connection) -> Connection {
    Connection {
        entry: Entry::Direct,
        ..connection
    }
}

/// The same connection, opened to the workload.
fn inbound(connection: Connection) -> Connection {
    Connection {
        entry: Entry::Inbound,
        ..connection
    }
}

fn tls(to: &str, sni: &str) -> Connection {
    Connection {
        tls: Some(Tls {
            sni: sni.to_owned(),
            alpn: Vec::new(),
        }),
        ..bytes(to)
    }
}

fn reviews(resources: &Resources, headers: &[(&str, &str)]) -> Walk {
    resources.walk(&request("10.96.0.1:9080", "reviews", "/", headers))
}

#[test]
fn without_rules_a_service_is_its_endpoints() {
    let client = shop().sidecar("shop", "client");
    let walk = reviews(&client, &[]);
    assert_eq!(
        walk.clusters(),
        [("outbound|9080||reviews.shop.svc.cluster.local", 1)]
    );
    assert_eq!(walk.addresses(), ["10.1.0.1:8080", "10.1.0.2:8080"]);
    let walk = client.walk(&bytes("10.96.0.3:5432"));
    assert_eq!(walk.addresses(), ["10.1.0.4:8080"]);
}

#[test]
fn splits_and_matches_select_subsets() {
    let mesh = shop()
        .rule("DestinationRule", "shop", "reviews", SUBSETS)
        .rule(
            "VirtualService",
            "shop",
            "reviews",
            "{hosts: [reviews], http: [{match: [{headers: {end-user: {exact: jason}}}], \
         route: [{destination: {host: reviews, subset: v2}}]}, \
         {route: [{destination: {host: reviews, subset: v1}, weight: 90}, \
         {destination: {host: reviews, subset: v2}, weight: 10}]}]}",
        );

    let client = mesh.sidecar("shop", "client");
    assert_eq!(
        reviews(&client, &[("end-user", "jason")]).addresses(),
        ["10.1.0.2:8080"]
    );
    let weights: Vec<u32> = reviews(&client, &[])
        .clusters()
        .iter()
        .map(|(_, weight)| *weight)
        .collect();
    assert_eq!(weights, [90, 10]);
}

#[test]
fn requests_are_matched_by_source_label_and_namespace() {
    let mesh = shop()
        .rule("DestinationRule", "shop", "reviews", SUBSETS)
        .rule(
            "VirtualService",
            "shop",
            "reviews",
            "{hosts: [reviews], http: [{match: [{sourceLabels: {app: tester}}], \
         route: [{destination: {host: reviews, subset: v2}}]}, {match: [{sourceNamespace: bank}], \
         directResponse: {status: 403}}, {route: [{destination: {host: reviews, subset: v1}}]}]}",
        );

    assert_eq!(
        reviews(&mesh.sidecar("shop", "tester"), &[]).addresses(),
        ["10.1.0.2:8080"]
    );
    assert_eq!(
        reviews(&mesh.sidecar("shop", "client"), &[]).addresses(),
        ["10.1.0.1:8080"]
    );

    let bank = mesh.sidecar("bank", "client");
    let walk = bank.walk(&request("10.96.0.1:9080", "reviews.shop", "/", &[]));
    assert_eq!(walk.outcome, Outcome::Answered(403));
}

#[test]
fn destination_rules_of_the_client_precede_those_of_the_service_and_the_root_namespace() {
    let rule = |version: &str| {
        format!(
            "{{host: reviews.shop.svc.cluster.local, subsets: [{{name: chosen, labels: {{version: {version}}}}}]}}"
        )
    };
    let route = "{hosts: [reviews.shop.svc.cluster.local], http: [{route: [{destination: \
                 {host: reviews.shop.svc.cluster.local, subset: chosen}}]}]}";
    let mesh = shop()
        .rule("VirtualService", "shop", "reviews", route)
        .rule("DestinationRule", "istio-system", "reviews", &rule("none"))
        .rule("DestinationRule", "shop", "reviews", &rule("v1"))
        .rule("DestinationRule", "bank", "reviews", &rule("v2"));

    let from = |namespace: &str| {
        let client = mesh.sidecar(namespace, "client");
        client
            .walk(&request("10.96.0.1:9080", "reviews.shop", "/", &[]))
            .addresses()
    };

    assert_eq!(from("bank"), ["10.1.0.2:8080"]);
    assert_eq!(from("shop"), ["10.1.0.1:8080"]);
    assert_eq!(from("other"), ["10.1.0.1:8080"]);
}

#[test]
fn delegates_route_under_the_conditions_of_their_root() {
    let mesh = shop()
        .rule(
            "VirtualService",
            "shop",
            "reviews",
            "{hosts: [reviews], http: [{match: [{uri: {prefix: /ratings}}], delegate: {name: ratings, namespace: bank}}, \
             {route: [{destination: {host: reviews}}]}]}",
        )
        .rule(
            "VirtualService",
            "bank",
            "ratings",
            "{http: [{match: [{uri: {prefix: /ratings/v1}}], \
             route: [{destination: {host: ratings.shop.svc.cluster.local}}]}, {redirect: {uri: /moved}}]}",
        );

    let client = mesh.sidecar("shop", "client");
    let to = |path: &str| client.walk(&request("10.96.0.1:9080", "reviews", path, &[]));
    assert_eq!(to("/ratings/v1/x").addresses(), ["10.1.0.3:8080"]);
    let moved = Outcome::Redirected {
        status: 301,
        location: "http://reviews/moved".to_owned(),
    };
    assert_eq!(to("/ratings/v2").outcome, moved);

    assert_eq!(to("/other").addresses(), ["10.1.0.1:8080", "10.1.0.2:8080"]);
}

#[test]
fn hosts_outside_the_egress_of_a_sidecar_are_treated_as_unknown() {
    let egress = "{egress: [{hosts: [./ratings.shop.svc.cluster.local]}]}";
    let client = shop()
        .rule("Sidecar", "shop", "narrow", egress)
        .sidecar("shop", "client");
    let walk = reviews(&client, &[]);
    assert_eq!(walk.clusters(), [("PassthroughCluster", 1)]);
    assert_eq!(walk.addresses(), ["10.96.0.1:9080"]);
    let closed = "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: [./ratings.shop.svc.cluster.local]}]}";
    let client = shop()
        .rule("Sidecar", "shop", "narrow", closed)
        .sidecar("shop", "client");
    assert_eq!(reviews(&client, &[]).outcome, Outcome::Answered(502));
    assert_eq!(
        client.walk(&bytes("10.96.0.3:5432")).clusters(),
        [("BlackHoleCluster", 1)]
    );
}

#[test]
fn failover_prefers_the_own_region_only_with_outlier_detection() {
    let rule = "{host: reviews, trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}}}";
    let client = shop()
        .rule("DestinationRule", "shop", "reviews", rule)
        .sidecar("shop", "client");
    assert_eq!(reviews(&client, &[]).addresses(), ["10.1.0.1:8080"]);
    let plain = shop().sidecar("shop", "client");
    assert_eq!(
        reviews(&plain, &[]).addresses(),
        ["10.1.0.1:8080", "10.1.0.2:8080"]
    );
}

#[test]
fn egress_follows_service_entries() {
    let mesh = shop()
        .rule(
            "ServiceEntry",
            "shop",
            "api",
            "{hosts: [api.example], location: MESH_EXTERNAL, resolution: DNS, \
             ports: [{number: 80, name: http, protocol: HTTP}, {number: 443, name: tls, protocol: TLS}], \
             endpoints: [{address: backend.example, ports: {http: 8000, tls: 8443}}]}",
        )
        .rule(
            "ServiceEntry",
            "shop",
            "other",
            "{hosts: [other.example], location: MESH_EXTERNAL, resolution: DNS, \
             ports: [{number: 443, name: tls, protocol: TLS}]}",
        );

    let client = mesh.sidecar("shop", "client");
    let walk = client.walk(&request("240.0.0.9:80", "api.example", "/", &[]));
    assert_eq!(walk.addresses(), ["backend.example:8000"]);
    assert_eq!(
        client
            .walk(&tls("93.184.0.1:443", "api.example"))
            .addresses(),
        ["backend.example:8443"]
    );

    assert_eq!(
        client
            .walk(&tls("93.184.0.1:443", "other.example"))
            .addresses(),
        ["other.example:443"]
    );

    assert_eq!(
        client
            .walk(&tls("93.184.0.1:443", "unknown.example"))
            .addresses(),
        ["93.184.0.1:443"]
    );
}

#[test]
fn gateways_route_by_host_and_by_server_name() {
    let mesh = shop()
        .rule(
            "Gateway",
            "shop",
            "edge",
            "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example]}, \
             {port: {number: 443, name: tls, protocol: TLS}, hosts: ['*.example'], tls: {mode: PASSTHROUGH}}]}",
        )
        .rule(
            "VirtualService",
            "shop",
            "web",
            "{hosts: [shop.example], gateways: [edge], http: [{match: [{uri: {prefix: /ratings}}], \
             route: [{destination: {host: ratings}}]}, {route: [{destination: {host: reviews}}]}]}",
        )
        .rule(
            "VirtualService",
            "shop",
            "db",
            "{hosts: [db.example], gateways: [edge], tls: [{match: [{port: 443, sniHosts: [db.example]}], \
             route: [{destination: {host: db}}]}]}",
        );

    let edge = mesh.gateway();
    let walk = |connection: Connection| edge.walk(&direct(connection));
    let to = |host: &str, path: &str| walk(request("10.9.9.8:80", host, path, &[]));
    assert_eq!(
        to("shop.example", "/ratings/1").addresses(),
        ["10.1.0.3:8080"]
    );
    assert_eq!(
        to("shop.example", "/").addresses(),
        ["10.1.0.1:8080", "10.1.0.2:8080"]
    );

    assert_eq!(to("other.example", "/").outcome, Outcome::NotFound);
    assert_eq!(
        walk(tls("10.9.9.8:443", "db.example")).addresses(),
        ["10.1.0.4:8080"]
    );
    assert!(matches!(
        walk(tls("10.9.9.8:443", "x.other")).outcome,
        Outcome::Closed(_)
    ));
}

#[test]
fn patches_of_an_envoy_filter_change_where_requests_go() {
    let patched = shop().with(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: closed, namespace: shop}\n\
         spec: {configPatches: [{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND, routeConfiguration: \
         {vhost: {domainName: reviews}}}, patch: {operation: INSERT_FIRST, value: {match: {prefix: /admin}, \
         direct_response: {status: 403}}}}, {applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, \
         patch: {operation: ADD, value: {match: {prefix: /broken}}}}]}",
    );

    let client = patched.sidecar("shop", "client");
    let to = |path: &str| client.walk(&request("10.96.0.1:9080", "reviews", path, &[]));
    assert_eq!(to("/admin").outcome, Outcome::Answered(403));
    assert_eq!(
        to("/broken").addresses().len(),
        2,
        "a route without an action is omitted"
    );

    let other = patched.sidecar("bank", "client");
    let walk = other.walk(&request("10.96.0.1:9080", "reviews.shop", "/admin", &[]));
    assert_eq!(
        walk.addresses().len(),
        2,
        "the filter applies to its own namespace only"
    );
}

#[test]
fn inbound_requests_go_to_the_workload() {
    let server = shop().proxy("sidecar", "10.1.0.3", "shop", "ratings", "");
    let request = request("10.1.0.3:8080", "ratings", "/", &[]);
    let walk = server.walk(&inbound(request));
    assert_eq!(walk.clusters(), [("inbound|8080||", 1)]);

    let walk = server.walk(&inbound(bytes("10.1.0.3:7000")));
    assert_eq!(walk.clusters(), [("InboundPassthroughCluster", 1)]);
}
