//! Known vulnerabilities and bugs of routes. `docs/security-regressions.md` has the list.

use navarch::walk::Outcome;
use navarch::webhook::verdict::validate;
use serde_json::json;

use crate::mesh::Mesh;
use crate::{bytes, direct, request, shop, tls};

#[test]
fn cve_2021_31921_auto_passthrough_gateways_forward_only_to_their_hosts() {
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
        .rule(
            "ServiceEntry",
            "shop",
            "inside",
            &entry("a.open.example", "location: MESH_INTERNAL"),
        )
        .rule(
            "ServiceEntry",
            "shop",
            "outside",
            &entry("b.open.example", "location: MESH_EXTERNAL"),
        )
        .rule(
            "ServiceEntry",
            "bank",
            "private",
            &entry("c.open.example", "location: MESH_INTERNAL, exportTo: ['.']"),
        );

    let edge = mesh.gateway();
    let passes = |host: &str, alpn: &str| {
        let mut tls_request = direct(tls("10.9.9.8:15443", &format!("outbound_.9080_._.{host}")));
        tls_request.tls.as_mut().unwrap().alpn = vec![alpn.to_owned()];
        matches!(edge.walk(&tls_request).outcome, Outcome::Forwarded(_))
    };
    assert!(passes("reviews.shop.svc.cluster.local", "istio") && passes("a.open.example", "istio"));

    for (host, why) in [
        ("ratings.shop.svc.cluster.local", "it is none of its hosts"),
        ("db.shop.svc.cluster.local", "it is none of its hosts"),
        ("b.open.example", "it is outside of the mesh"),
        ("c.open.example", "it is another namespace's own"),
        ("evil.reviews.shop.svc.cluster.local", "it does not exist"),
    ] {
        assert!(!passes(host, "istio"), "{host}: {why}");
    }

    assert!(
        !passes("reviews.shop.svc.cluster.local", "h2"),
        "only the mesh's own TLS is forwarded"
    );
}

/// Regular expressions whose evaluation takes for ever, or exhausts memory, unless they are checked
/// first.
fn bombs() -> [String; 5] {
    let nested = format!("{}a{}", "(".repeat(5000), ")*".repeat(5000));
    [
        "((((a{1,99}){1,99}){1,99}){1,99}){1,99}",
        &nested,
        "(a*)*b",
        "(?:a|a)*$",
        "[",
    ]
    .map(str::to_owned)
}

/// A proxy with a long version gets its configuration.
fn is_served(mesh: &Mesh) {
    let long = json!({"ISTIO_VERSION": "a".repeat(1000)});
    let client = mesh.proxy_with("sidecar", "10.9.9.9", "shop", "client", "", &long);
    assert_eq!(
        client.walk(&bytes("10.96.0.3:5432")).addresses(),
        ["10.1.0.4:8080"]
    );
}

#[test]
fn cve_2022_39278_exploding_route_regexes_are_harmless() {
    let mut mesh = shop();
    for (at, expression) in bombs().iter().enumerate() {
        let routes = json!({"hosts": ["reviews"], "http": [{
            "match": [{"uri": {"regex": expression}}], "route": [{"destination": {"host": "reviews"}}],
        }]});
        mesh = mesh.rule(
            "VirtualService",
            "shop",
            &format!("r{at}"),
            &routes.to_string(),
        );
    }
    is_served(&mesh);
}

#[test]
fn istio_security_2026_006_exploding_proxy_version_regexes_are_harmless() {
    let mut mesh = shop();
    for (at, expression) in bombs().iter().enumerate() {
        let filter = json!({"configPatches": [{
            "applyTo": "CLUSTER", "match": {"proxy": {"proxyVersion": expression}},
            "patch": {"operation": "MERGE", "value": {"connect_timeout": "7s"}},
        }]});
        mesh = mesh.with(&format!(
            "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: f{at}, namespace: shop}}\nspec: {filter}"
        ));
    }
    is_served(&mesh);
}

/// A user who may write VirtualServices in one namespace can route everyone's requests for a host
/// in another namespace, a known limit of Istio's API: the documented countermeasures must work.
#[test]
fn istio_security_2026_002_documented_settings_exclude_virtual_services_of_other_namespaces() {
    let routes = "{hosts: [reviews.shop.svc.cluster.local], http: [{route: [{destination: {host: ratings.shop.svc.cluster.local}}]}]}";
    let mesh = || shop().rule("VirtualService", "evil", "take", routes);
    let led_away = |mesh: &Mesh| {
        let client = mesh.sidecar("shop", "client");
        client
            .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
            .addresses()
            == ["10.1.0.3:8080"]
    };

    assert!(
        led_away(&mesh()),
        "without countermeasures the request is rerouted, as in Istio"
    );
    let kept = mesh().rule(
        "Sidecar",
        "shop",
        "default",
        "{egress: [{hosts: ['./*', 'istio-system/*']}]}",
    );

    assert!(
        !led_away(&kept),
        "a Sidecar limits the namespaces whose objects apply"
    );
    assert!(
        !led_away(&mesh().config("defaultVirtualServiceExportTo: ['.']")),
        "the mesh's default"
    );
    let named = mesh().rule(
        "VirtualService",
        "shop",
        "own",
        "{hosts: [reviews], http: [{route: [{destination: {host: reviews}}]}]}",
    );

    let judged = validate(&json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "take", "namespace": "evil"},
        "spec": {"hosts": ["reviews.shop.svc.cluster.local"], "http": [{"route": [{"destination": {"host": "a"}}]}]},
    }));
    assert!(
        judged.verdict.errors.is_empty(),
        "{:?}",
        judged.verdict.errors
    );

    // webhook::neighbours tests that two objects for one host are reported; here, only one of them
    // must apply.
    let client = named.sidecar("shop", "client");
    let addresses = client
        .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
        .addresses()
        .join(",");
    assert!(
        ["10.1.0.3:8080", "10.1.0.1:8080,10.1.0.2:8080"].contains(&addresses.as_str()),
        "{addresses}"
    );
}

#[test]
fn istio_60110_routes_without_a_destination_are_reported() {
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

        let judged = validate(&object);
        assert!(!judged.verdict.errors.is_empty(), "{routes} is rejected");

        // The object may exist all the same, if it was created while the webhook was not installed:
        // everything else must work.
        let client = shop()
            .rule("VirtualService", "shop", "v", &spec)
            .sidecar("shop", "client");
        let walk = client.walk(&bytes("10.96.0.3:5432"));
        assert!(
            !matches!(walk.outcome, Outcome::Answered(_)),
            "{routes}: {walk:?}"
        );

        let gateway = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}, \
                       {port: {number: 81, name: tcp, protocol: TCP}, hosts: ['*']}, \
                       {port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}]}";
        let bound = format!("{{hosts: ['*'], gateways: [edge], {routes}}}");
        let mesh = shop().rule("Gateway", "shop", "edge", gateway).rule(
            "VirtualService",
            "shop",
            "v",
            &bound,
        );

        assert!(!mesh.gateway().listeners.is_empty(), "{routes}");
    }
}
