//! Objects that crashed istiod: proxies must get their configuration, whatever the objects contain.
//! `docs/security-regressions.md` has the list.

use navarch::webhook::verdict::validate;
use serde_json::{Value, json};

use crate::mesh::Mesh;
use crate::{bytes, request, shop};

/// A client gets the normal configuration.
fn is_served(mesh: &Mesh) {
    let client = mesh.sidecar("shop", "client");
    assert_eq!(
        client.walk(&bytes("10.96.0.3:5432")).addresses(),
        ["10.1.0.4:8080"]
    );
    let walk = client.walk(&request("10.96.0.1:9080", "reviews", "/", &[]));
    assert_eq!(walk.addresses(), ["10.1.0.1:8080", "10.1.0.2:8080"]);
}

/// Decodes objects as the API server might send them, and returns the errors.
fn judged(object: &Value) -> Vec<String> {
    validate(object)
        .verdict
        .errors
        .into_iter()
        .map(|problem| format!("{}: {}", problem.field, problem.message))
        .collect()
}

#[test]
fn istio_59171_ports_that_are_null_are_rejected() {
    for resolution in ["DYNAMIC_DNS", "DNS", "NONE", "STATIC"] {
        for ports in [
            json!([null]),
            json!([{"number": 80, "name": "http", "protocol": "HTTP"}, null]),
        ] {
            let object = json!({
                "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "e", "namespace": "shop"},
                "spec": {"hosts": ["*.google.com"], "location": "MESH_EXTERNAL", "ports": ports, "resolution": resolution},
            });
            assert!(!judged(&object).is_empty(), "{resolution}: {object}");
        }
    }
}

/// Hosts of Istio's own Gateways use the same code as those of the Gateway API.
#[test]
fn istio_56300_hosts_of_gateways_with_wildcards_and_half_a_namespace() {
    for host in [
        "*.example.com",
        "*",
        "/",
        "/*",
        "shop/",
        "/a.example",
        "./*.example.com",
        "*/*",
        "a/b/c",
        "",
        "shop/*.a.b",
    ] {
        let servers =
            json!([{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": [host]}]);
        let spec = json!({"selector": {"istio": "edge"}, "servers": servers});

        let routes =
            "{hosts: ['*'], gateways: [edge], http: [{route: [{destination: {host: reviews}}]}]}";
        let mesh = shop()
            .rule("Gateway", "shop", "edge", &spec.to_string())
            .rule("VirtualService", "shop", "edge", routes);

        is_served(&mesh);
        drop(mesh.gateway());

        let object = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": "edge", "namespace": "shop"}, "spec": spec,
        });
        let is_good =
            ["*.example.com", "*", "./*.example.com", "*/*", "shop/*.a.b"].contains(&host);

        assert_eq!(
            judged(&object).is_empty(),
            is_good,
            "{host:?}: {:?}",
            judged(&object)
        );
    }
}

#[test]
fn istio_59321_workload_entries_of_another_network_with_ambient_on() {
    let entry = "{address: 10.7.7.7, network: elsewhere, labels: {app: far}, serviceAccount: far}";
    let hosts = "{hosts: [far.example], resolution: STATIC, location: MESH_INTERNAL, workloadSelector: {labels: {app: far}}, \
                 ports: [{number: 80, name: http, protocol: HTTP}]}";
    for ambient in [false, true] {
        let mesh = shop()
            .settings(|settings| settings.ambient = ambient)
            .rule("WorkloadEntry", "shop", "far", entry)
            .rule("ServiceEntry", "shop", "far", hosts);
        is_served(&mesh);
    }
}

/// A ServiceEntry with DNS resolution, endpoints in several localities, and failover by labels
/// (istio #61857, reported after the others).
#[test]
fn istio_61857_failover_by_labels_of_names_in_several_localities() {
    let hosts = "{hosts: [far.example], resolution: DNS, location: MESH_EXTERNAL, \
                 ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: a.example, locality: r1/a}, \
                 {address: b.example, locality: r2/b}, {address: c.example, locality: r3/c}]}";
    let rule = "{host: far.example, trafficPolicy: {outlierDetection: {consecutive5xxErrors: 5}, loadBalancer: \
                {localityLbSetting: {failoverPriority: ['topology.kubernetes.io/region']}}}}";
    let mesh = shop().rule("ServiceEntry", "shop", "far", hosts).rule(
        "DestinationRule",
        "shop",
        "far",
        rule,
    );
    is_served(&mesh);
    let far = mesh.proxy("sidecar", "10.9.9.9", "shop", "client", "r3/c");
    assert!(far.clusters.contains_key("outbound|80||far.example"));
}
