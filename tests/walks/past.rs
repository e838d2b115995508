//! What has gone wrong with policies and routes before, tried again. `tests/secure/past.rs` has the list.

use navarch::walk::{Connection, Entry, Outcome};
use serde_json::json;

use crate::authorization::{bytes_of, chains_of_web, web};
use crate::mesh::Mesh;
use crate::rbac::{self, Asked};
use crate::{bytes, shop, tls};

/// The same connection, opened to the proxy itself.
fn direct(connection: Connection) -> Connection {
    Connection { entry: Entry::Direct, ..connection }
}

/// The AuthorizationPolicy of `web`.
fn policy(spec: &str) -> Mesh {
    web().with(&format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: p, namespace: shop}}\nspec: {spec}"
    ))
}

/// Whether a peer may open connections of bytes to `web`.
fn may_connect(mesh: &Mesh, identity: &str) -> bool {
    let asked = Asked { identity: Some(format!("spiffe://cluster.local/{identity}")), ..bytes_of(8081) };
    chains_of_web(mesh, 8081).iter().all(|(filters, _)| rbac::lets_pass(filters, &asked))
}

#[test]
fn tcp_is_denied_by_the_end_of_a_principal() {
    let mesh = policy("{action: DENY, rules: [{from: [{source: {principals: ['*/sa/eve']}}]}]}");
    assert!(!may_connect(&mesh, "ns/shop/sa/eve") && !may_connect(&mesh, "ns/bank/sa/eve"));
    assert!(may_connect(&mesh, "ns/shop/sa/ada"));
    let mesh = policy("{rules: [{from: [{source: {principals: ['*/ns/shop/sa/ada']}}]}]}");
    assert!(may_connect(&mesh, "ns/shop/sa/ada") && !may_connect(&mesh, "ns/bank/sa/ada"));
}

#[test]
fn dots_in_service_accounts_are_dots() {
    let mesh = policy("{rules: [{from: [{source: {serviceAccounts: [shop/web.x, 'bank/a+b']}}]}]}");
    assert!(may_connect(&mesh, "ns/shop/sa/web.x"));
    for other in ["ns/shop/sa/webyx", "ns/shop/sa/web.xx", "ns/shop.x/sa/web.x", "ns/bank/sa/aab", "ns/shop/sa/web"] {
        assert!(!may_connect(&mesh, other), "{other}");
    }
    let mesh = policy("{action: DENY, rules: [{from: [{source: {namespaces: ['sh.p'], principals: ['*web.x']}}]}]}");
    assert!(may_connect(&mesh, "ns/shop/sa/web.x"), "dots of namespaces, too");
}

#[test]
fn gateways_pass_on_to_their_hosts_alone() {
    let gateway = "{selector: {istio: edge}, servers: [{port: {number: 15443, name: tls, protocol: TLS}, \
                   hosts: ['reviews.shop.svc.cluster.local', '*.open.example'], tls: {mode: AUTO_PASSTHROUGH}}]}";
    let entry = |host: &str, rest: &str| {
        format!(
            "{{hosts: [{host}], resolution: STATIC, {rest}, ports: [{{number: 9080, name: tcp, protocol: TCP}}], \
                 endpoints: [{{address: 10.3.0.1}}]}}"
        )
    };
    let mesh = shop()
        .rule("Gateway", "shop", "edge", gateway)
        .rule("ServiceEntry", "shop", "inside", &entry("a.open.example", "location: MESH_INTERNAL"))
        .rule("ServiceEntry", "shop", "outside", &entry("b.open.example", "location: MESH_EXTERNAL"))
        .rule("ServiceEntry", "bank", "private", &entry("c.open.example", "location: MESH_INTERNAL, exportTo: ['.']"));
    let edge = mesh.gateway();
    let passes = |host: &str, alpn: &str| {
        let mut asked = direct(tls("10.9.9.8:15443", &format!("outbound_.9080_._.{host}")));
        asked.tls.as_mut().unwrap().alpn = vec![alpn.to_owned()];
        matches!(edge.walk(&asked).outcome, Outcome::Forwarded(_))
    };
    assert!(passes("reviews.shop.svc.cluster.local", "istio") && passes("a.open.example", "istio"));
    for (host, why) in [
        ("ratings.shop.svc.cluster.local", "it is none of its hosts"),
        ("db.shop.svc.cluster.local", "it is none of its hosts"),
        ("b.open.example", "it is outside of the mesh"),
        ("c.open.example", "it is another namespace's own"),
        ("evil.reviews.shop.svc.cluster.local", "it is nobody"),
    ] {
        assert!(!passes(host, "istio"), "{host}: {why}");
    }
    assert!(!passes("reviews.shop.svc.cluster.local", "h2"), "the mesh's own TLS alone is passed on");
}

/// Done right it takes no time at all; if not, for ever.
#[test]
fn expressions_that_explode_hurt_nobody() {
    let bomb = "((((a{1,99}){1,99}){1,99}){1,99}){1,99}";
    let nested = format!("{}a{}", "(".repeat(5000), ")*".repeat(5000));
    let mut mesh = shop();
    for (at, expression) in [bomb, nested.as_str(), "(a*)*b", "(?:a|a)*$", "["].into_iter().enumerate() {
        let filter = json!({"configPatches": [{
            "applyTo": "CLUSTER", "match": {"proxy": {"proxyVersion": expression}},
            "patch": {"operation": "MERGE", "value": {"connect_timeout": "7s"}},
        }]});
        let routes = json!({"hosts": ["reviews"], "http": [{
            "match": [{"uri": {"regex": expression}}], "route": [{"destination": {"host": "reviews"}}],
        }]});
        mesh = mesh
            .with(&format!(
                "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: f{at}, namespace: shop}}\nspec: {filter}"
            ))
            .rule("VirtualService", "shop", &format!("r{at}"), &routes.to_string());
    }
    let client =
        mesh.proxy_with("sidecar", "10.9.9.9", "shop", "client", "", &json!({"ISTIO_VERSION": "a".repeat(5000)}));
    assert_eq!(client.walk(&bytes("10.96.0.3:5432")).addresses(), ["10.1.0.4:8080"]);
}

#[test]
fn routes_without_a_destination_are_told_of() {
    for routes in [
        "tcp: [{route: [{}]}]",
        "tcp: [{}]",
        "tcp: [{route: []}]",
        "tls: [{match: [{port: 5432, sniHosts: [db]}], route: [{}]}]",
        "tls: [{match: [{port: 5432, sniHosts: [db]}]}]",
        "http: [{route: [{}]}]",
        "http: [{route: [{weight: 50}, {weight: 50}]}]",
        "http: [{mirror: {}}, {mirrors: [{}]}, {}]",
    ] {
        let spec = format!("{{hosts: [db, reviews], {routes}}}");
        let object = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "v", "namespace": "shop"},
            "spec": navarch::api::yaml::parse(&spec, navarch::api::yaml::Schema::V1_1).unwrap(),
        });
        let judged = navarch::webhook::verdict::judge(&object);
        assert!(!judged.verdict.errors.is_empty(), "{routes} is refused");
        // It may be there all the same, where no webhook looked: the rest goes on.
        let client = shop().rule("VirtualService", "shop", "v", &spec).sidecar("shop", "client");
        let walk = client.walk(&bytes("10.96.0.3:5432"));
        assert!(!matches!(walk.outcome, Outcome::Answered(_)), "{routes}: {walk:?}");
        let gateway = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}, \
                       {port: {number: 81, name: tcp, protocol: TCP}, hosts: ['*']}, \
                       {port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}]}";
        let bound = format!("{{hosts: ['*'], gateways: [edge], {routes}}}");
        let mesh = shop().rule("Gateway", "shop", "edge", gateway).rule("VirtualService", "shop", "v", &bound);
        assert!(!mesh.gateway().listeners.is_empty(), "{routes}");
    }
}
