//! The workload to which a proxy belongs, its labels, and its locality.

use std::net::IpAddr;
use std::sync::Arc;

use navarch::push::mesh_state::Change;
use serde_json::{Value, json};

use super::mesh::Mesh;
use super::{bytes, request, shop};

/// The shop, where proxies with these labels cannot reach unknown hosts.
fn closed_for(labels: &str) -> Mesh {
    let spec = format!(
        "{{workloadSelector: {{labels: {{{labels}}}}}, outboundTrafficPolicy: {{mode: REGISTRY_ONLY}}}}"
    );
    shop().rule("Sidecar", "shop", "closed", &spec)
}

/// Whether the Sidecar of [`closed_for`] applies to the proxy.
fn is_chosen(mesh: &Mesh, ip: &str, locality: &str, metadata: &Value) -> bool {
    let proxy = mesh.proxy_with("sidecar", ip, "shop", "client", locality, metadata);
    proxy.walk(&bytes("203.0.113.1:7777")).clusters()[0].0 == "BlackHoleCluster"
}

#[test]
fn a_proxy_has_the_topology_labels_of_its_node() {
    let plain = json!({});
    assert!(is_chosen(
        &closed_for("topology.kubernetes.io/zone: z"),
        "10.9.9.9",
        "r/z",
        &plain
    ));

    let of_network = closed_for("topology.istio.io/network: n1");
    assert!(!is_chosen(&of_network, "10.9.9.9", "", &plain));
    assert!(is_chosen(
        &of_network,
        "10.9.9.9",
        "",
        &json!({"NETWORK": "n1"})
    ));

    let of_node = closed_for("kubernetes.io/hostname: n7");
    assert!(is_chosen(
        &of_node,
        "10.9.9.9",
        "",
        &json!({"NODE_NAME": "n7"})
    ));

    // The locality in its labels takes precedence over that in its node.
    let labelled = json!({"LABELS": {"istio-locality": "r/y"}});
    assert!(is_chosen(
        &closed_for("topology.kubernetes.io/zone: y"),
        "10.9.9.9",
        "r/z",
        &labelled
    ));
}

#[test]
fn pod_labels_take_precedence_over_node_metadata() {
    let pod = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {{tier: pod}}}}\n\
             spec: {{nodeName: n1}}\nstatus: {{phase: Running, podIP: 10.9.9.9, podIPs: [{{ip: 10.9.9.9}}], \
             conditions: [{{type: Ready, status: 'True'}}]}}"
        )
    };

    let sent =
        json!({"LABELS": {"only": "sent"}, "STATIC_LABELS": {"tier": "static", "team": "a"}});
    let chosen = |mesh: Mesh, name: &str, metadata: &Value| {
        is_chosen(&mesh.with(&pod(name)), "10.9.9.9", "", metadata)
    };
    assert!(chosen(closed_for("tier: pod, team: a"), "client-0", &sent));
    assert!(!chosen(closed_for("only: sent"), "client-0", &sent));

    // A pod with another name is not its own, unless pods are looked up by address.
    assert!(chosen(closed_for("only: sent"), "other", &sent));
    let by_address = |mesh: Mesh| mesh.settings(|settings| settings.find_pods_by_address = true);
    assert!(chosen(
        by_address(closed_for("tier: pod, team: a")),
        "other",
        &sent
    ));

    // A pod of another cluster is not its own.
    let far = json!({"CLUSTER_ID": "far", "LABELS": {"only": "sent"}});
    assert!(chosen(
        by_address(closed_for("only: sent")),
        "client-0",
        &far
    ));
}

#[test]
fn a_proxy_without_a_pod_has_the_labels_of_the_service_entry_at_its_address() {
    let entry = "{hosts: [vm.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, \
                 endpoints: [{address: 10.9.9.9, labels: {tier: machine}}]}";
    let mesh = || closed_for("tier: machine").rule("ServiceEntry", "shop", "vm", entry);
    assert!(is_chosen(&mesh(), "10.9.9.9", "", &json!({})));
    assert!(!is_chosen(&mesh(), "10.9.9.10", "", &json!({})));
    // A ServiceEntry in another namespace belongs to another workload.
    let elsewhere = closed_for("tier: machine").rule("ServiceEntry", "bank", "vm", entry);
    assert!(!is_chosen(&elsewhere, "10.9.9.9", "", &json!({})));
    // A WorkloadEntry with the proxy's name that no ServiceEntry selects does not define its
    // labels.
    let named = "{address: 10.9.9.9, labels: {tier: machine}}";
    let alone = closed_for("tier: machine").rule("WorkloadEntry", "shop", "client-0", named);
    assert!(!is_chosen(&alone, "10.9.9.9", "", &json!({})));
}

#[test]
fn a_filter_for_string_metadata_matches_no_other_type() {
    let filter = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: slow, namespace: shop}\n\
                  spec: {configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, proxy: {metadata: {KEY: '7'}}}, \
                  patch: {operation: MERGE, value: {connect_timeout: 77s}}}]}";
    let timeout = |metadata: &Value| {
        let mesh = shop().with(filter);
        let proxy = mesh.proxy_with("sidecar", "10.9.9.9", "shop", "client", "", metadata);
        let cluster = &proxy.clusters["outbound|9080||reviews.shop.svc.cluster.local"];
        cluster
            .connect_timeout
            .as_ref()
            .map(|timeout| timeout.seconds)
    };

    assert_eq!(timeout(&json!({"KEY": "7"})), Some(77));

    for other in [
        json!({"KEY": 7}),
        json!({"KEY": "8"}),
        json!({"KEY": ["7"]}),
        json!({}),
    ] {
        assert_eq!(timeout(&other), Some(10), "{other}");
    }
}

#[test]
fn a_gateway_with_a_host_name_is_reached_once_the_name_is_resolved() {
    let far = "apiVersion: v1\nkind: Pod\nmetadata: {name: reviews-1, namespace: shop, labels: {app: reviews, \
               topology.istio.io/network: n2, security.istio.io/tlsMode: istio}}\nspec: {nodeName: n2}\n\
               status: {phase: Running, podIP: 10.1.0.2, podIPs: [{ip: 10.1.0.2}]}";
    let gateway = "apiVersion: v1\nkind: Service\nmetadata: {name: eastwest, namespace: istio-system, \
                   labels: {topology.istio.io/network: n2}}\nspec: {type: LoadBalancer, clusterIP: 10.96.0.9, \
                   ports: [{name: tls, port: 15443, protocol: TCP}]}\n\
                   status: {loadBalancer: {ingress: [{hostname: gw.example}]}}";
    let mesh = || shop().with(far).with(gateway);
    let reached = |mesh: Mesh| {
        let client = mesh.proxy_with(
            "sidecar",
            "10.9.9.9",
            "shop",
            "client",
            "",
            &json!({"NETWORK": "n1"}),
        );
        client
            .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
            .addresses()
    };

    assert!(
        reached(mesh()).contains(&"10.1.0.2:8080".to_owned()),
        "without an address the gateway cannot be bypassed"
    );
    let ips: [IpAddr; 2] = [
        "203.0.113.7".parse().unwrap(),
        "203.0.113.8".parse().unwrap(),
    ];

    let resolved = mesh().found_out(Change::GatewayHost(
        Arc::from("gw.example"),
        Some(Arc::from(ips)),
    ));
    let addresses = reached(resolved);
    assert!(
        addresses.contains(&"203.0.113.7:15443".to_owned()),
        "{addresses:?}"
    );

    assert!(
        addresses.contains(&"203.0.113.8:15443".to_owned()),
        "{addresses:?}"
    );
    assert!(
        !addresses.contains(&"10.1.0.2:8080".to_owned()),
        "{addresses:?}"
    );
}

#[test]
fn empty_tags_of_a_namespace_remove_those_of_the_mesh() {
    let telemetry = |namespace: &str, tags: &str| {
        format!(
            "apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {{name: tags, namespace: {namespace}}}\n\
             spec: {{tracing: [{{providers: [{{name: zipkin}}], customTags: {tags}}}]}}"
        )
    };

    let provider = "extensionProviders: [{name: zipkin, zipkin: {service: ratings.shop.svc.cluster.local, port: 9080}}]";
    let tagged = |own: &str| {
        let mesh = shop().config(provider).with(&telemetry(
            "istio-system",
            "{house: {literal: {value: blue}}}",
        ));
        let mesh = mesh.with(&telemetry("shop", own));
        let listeners = mesh.sidecar("shop", "client").listeners;
        listeners.iter().any(|listener| has_text(listener, "blue"))
    };

    assert!(tagged("null"), "an absent tag changes nothing");
    assert!(!tagged("{}"));
}

/// Whether a text is anywhere in a listener, including packed messages.
fn has_text(listener: &navarch_proto::envoy::config::listener::v3::Listener, text: &str) -> bool {
    use prost::Message;
    let bytes = listener.encode_to_vec();
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[test]
fn a_root_namespace_sidecar_is_named_after_the_proxys_namespace() {
    let spec = "{ingress: [{port: {number: 9999, protocol: HTTP, name: http}, defaultEndpoint: 127.0.0.1:7070}]}";
    let listeners = shop()
        .rule("Sidecar", "istio-system", "all", spec)
        .sidecar("shop", "client")
        .listeners;
    let says = |text: &str| listeners.iter().any(|listener| has_text(listener, text));
    assert!(says("namespaces/shop/sidecar/all") && says("all.shop:9999/*"));
    assert!(!says("namespaces/istio-system/sidecar/all"));
}

#[test]
fn clusters_by_sni_exist_although_another_server_replaces_theirs_on_its_port() {
    let spec = |first: &str| {
        format!(
            "{{selector: {{istio: edge}}, servers: [{first}{{port: {{number: 80, name: tls, protocol: TLS}}, hosts: ['*.local'], \
             tls: {{mode: AUTO_PASSTHROUGH}}}}]}}"
        )
    };

    let plain = "{port: {number: 80, name: tcp, protocol: TCP}, hosts: ['*']}, ";
    for first in ["", plain] {
        let gateway = shop()
            .rule("Gateway", "shop", "edge", &spec(first))
            .gateway();
        assert!(
            gateway
                .clusters
                .contains_key("outbound_.9080_._.reviews.shop.svc.cluster.local"),
            "{first}"
        );
    }

    let without = shop()
        .rule(
            "Gateway",
            "shop",
            "edge",
            "{selector: {istio: edge}, servers: []}",
        )
        .gateway();

    assert!(
        !without
            .clusters
            .contains_key("outbound_.9080_._.reviews.shop.svc.cluster.local")
    );
}
