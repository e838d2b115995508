//! Walks that depend on the shape of a mesh: addresses, networks, interception, scopes, unusual
//! hosts.

use navarch::walk::Outcome;
use serde_json::json;

use super::mesh::Mesh;
use super::{SUBSETS, bytes, direct, inbound, request, shop, tls};

/// A gateway of the shop, and its routes.
const EDGE: &str = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}";
const WEB: &str = "{hosts: [web.example, a.example], gateways: [edge], http: [{route: [{destination: {host: reviews}}]}]}";

/// The shop with a replaced text in the object `reviews`.
fn reviews_with(from: &str, to: &str) -> Mesh {
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: reviews, namespace: shop}}\n\
         spec: {{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {{app: reviews}}, {from}\
         ports: [{{name: http, port: 9080, targetPort: 8080, protocol: TCP}}]}}\n{to}"
    );
    shop().with(&service)
}

#[test]
fn headless_services_are_reached_at_their_pods() {
    let mesh = shop().with(
        "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\n\
         spec: {clusterIP: None, selector: {app: db}, ports: [{name: tcp, port: 5432, targetPort: 8080, protocol: TCP}]}",
    );
    let client = mesh.sidecar("shop", "client");
    let walk = client.walk(&bytes("10.1.0.4:5432"));
    assert_eq!(
        walk.clusters(),
        [("outbound|5432||db.shop.svc.cluster.local", 1)]
    );
    assert_eq!(
        walk.addresses(),
        ["10.1.0.4:5432"],
        "the request goes to the pod that the client chose"
    );
}

#[test]
fn both_address_families_reach_a_dual_stack_service() {
    let six = "apiVersion: v1\nkind: Service\nmetadata: {name: reviews, namespace: shop}\n\
               spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilyPolicy: PreferDualStack, \
               selector: {app: reviews}, ports: [{name: tcp, port: 9080, targetPort: 8080, protocol: TCP}]}";
    let mesh = shop()
        .with(six)
        .settings(|settings| settings.dual_stack = true);
    let client = mesh.proxy("sidecar", "10.9.9.9,fd00::9", "shop", "client", "");
    for to in ["10.96.0.1:9080", "[fd00::1]:9080"] {
        let walk = client.walk(&bytes(to));
        assert_eq!(
            walk.clusters(),
            [("outbound|9080||reviews.shop.svc.cluster.local", 1)],
            "{to}"
        );
    }
}

#[test]
fn a_port_can_override_the_policy_of_its_service() {
    let rule = "{host: reviews, trafficPolicy: {portLevelSettings: [{port: {number: 9080}, \
                loadBalancer: {simple: PASSTHROUGH}}]}}";
    let client = shop()
        .rule("DestinationRule", "shop", "reviews", rule)
        .sidecar("shop", "client");
    assert_eq!(
        client
            .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
            .addresses(),
        ["10.96.0.1:9080"]
    );
}

#[test]
fn services_not_exported_are_invisible_in_other_namespaces() {
    let kept = "apiVersion: v1\nkind: Service\nmetadata: {name: ratings, namespace: shop, \
                annotations: {networking.istio.io/exportTo: '.'}}\nspec: {clusterIP: 10.96.0.2, selector: {app: ratings}, \
                ports: [{name: http, port: 9080, targetPort: 8080, protocol: TCP}]}";
    let mesh = shop().with(kept);
    let to = |namespace: &str| {
        mesh.sidecar(namespace, "client")
            .walk(&request("10.96.0.2:9080", "ratings.shop", "/", &[]))
            .clusters()[0]
            .0
            .to_owned()
    };

    assert_eq!(to("shop"), "outbound|9080||ratings.shop.svc.cluster.local");
    assert_eq!(to("bank"), "PassthroughCluster");
    let private = "{hosts: [reviews.shop.svc.cluster.local], exportTo: ['.'], http: [{directResponse: {status: 418}}]}";
    let mesh = shop().rule("VirtualService", "shop", "reviews", private);
    let ask = |namespace: &str| {
        mesh.sidecar(namespace, "client")
            .walk(&request("10.96.0.1:9080", "reviews.shop", "/", &[]))
            .outcome
    };
    assert_eq!(ask("shop"), Outcome::Answered(418));

    assert!(matches!(ask("bank"), Outcome::Forwarded(_)));
}

#[test]
fn pods_of_another_network_are_reached_by_its_gateway() {
    let far = |pod: &str, ip: &str, tls: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}, namespace: shop, labels: {{app: reviews, \
             topology.istio.io/network: n2, {tls}}}}}\nspec: {{nodeName: n2}}\n\
             status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}]}}"
        )
    };

    let mesh = shop().with(&far("reviews-1", "10.1.0.2", "security.istio.io/tlsMode: istio")).with(
        "apiVersion: v1\nkind: Service\nmetadata: {name: eastwest, namespace: istio-system, \
             labels: {topology.istio.io/network: n2}}\nspec: {type: LoadBalancer, clusterIP: 10.96.0.9, \
             ports: [{name: tls, port: 15443, protocol: TCP}]}\nstatus: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}",
    );

    let client = mesh.proxy_with(
        "sidecar",
        "10.9.9.9",
        "shop",
        "client",
        "",
        &json!({"NETWORK": "n1"}),
    );

    let reached = client
        .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
        .addresses();
    assert!(
        reached.contains(&"203.0.113.7:15443".to_owned()),
        "{reached:?}"
    );
    assert!(
        !reached.contains(&"10.1.0.2:8080".to_owned()),
        "{reached:?}"
    );

    let there = mesh.proxy_with(
        "sidecar",
        "10.9.9.9",
        "shop",
        "client",
        "",
        &json!({"NETWORK": "n2"}),
    );

    let reached = there
        .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
        .addresses();
    assert!(reached.contains(&"10.1.0.2:8080".to_owned()), "{reached:?}");
}

#[test]
fn ingress_of_a_sidecar_leads_to_its_endpoint() {
    let rule = "{workloadSelector: {labels: {app: ratings}}, ingress: [{port: {number: 9999, protocol: HTTP, name: http}, \
                defaultEndpoint: 127.0.0.1:7070}]}";
    let mesh = shop().rule("Sidecar", "shop", "ratings", rule);
    let server = mesh.proxy("sidecar", "10.1.0.3", "shop", "ratings", "");
    let walk = server.walk(&inbound(request("10.1.0.3:9999", "ratings", "/", &[])));
    assert_eq!(walk.clusters(), [("inbound|9999||", 1)]);
    assert_eq!(walk.addresses(), ["127.0.0.1:7070"]);
    let walk = server.walk(&inbound(request("10.1.0.3:8080", "ratings", "/", &[])));
    assert_eq!(
        walk.clusters(),
        [("InboundPassthroughCluster", 1)],
        "the ports of its services are no longer declared"
    );
}

#[test]
fn hosts_without_a_service_can_be_routed() {
    let rule = "{hosts: [nowhere.example], http: [{route: [{destination: {host: ratings, port: {number: 9080}}}]}]}";
    // Such hosts are added to the virtual hosts of port 80, which exist if any service has that
    // port.
    let mesh = shop().service("web", "10.96.0.8", ("http", 80), &[]).rule(
        "VirtualService",
        "shop",
        "nowhere",
        rule,
    );
    let walk =
        mesh.sidecar("shop", "client")
            .walk(&request("10.96.0.8:80", "nowhere.example", "/", &[]));
    assert_eq!(walk.addresses(), ["10.1.0.3:8080"]);
}

#[test]
fn without_interception_the_ports_of_services_are_open_on_loopback() {
    let none = json!({"INTERCEPTION_MODE": "NONE"});
    let client = shop().proxy_with("sidecar", "10.9.9.9", "shop", "client", "", &none);
    let walk = client.walk(&direct(request("127.0.0.1:9080", "ratings", "/", &[])));
    assert_eq!(walk.addresses(), ["10.1.0.3:8080"]);
    assert!(
        !client
            .listeners
            .iter()
            .any(|listener| listener.name.starts_with("virtual")),
        "no connection is redirected"
    );
}

#[test]
fn tproxy_captures_like_redirect_and_keeps_the_source_address() {
    let tproxy = json!({"INTERCEPTION_MODE": "TPROXY"});
    let server = shop().proxy_with("sidecar", "10.1.0.3", "shop", "ratings", "", &tproxy);
    let walk = server.walk(&inbound(request("10.1.0.3:8080", "ratings", "/", &[])));
    assert_eq!(walk.clusters(), [("inbound|8080||", 1)]);
    let listener = server
        .listeners
        .iter()
        .find(|listener| listener.name == "virtualInbound")
        .unwrap();
    assert_eq!(listener.transparent, Some(true));

    let filters = listener
        .listener_filters
        .iter()
        .map(|filter| filter.name.as_str())
        .collect::<Vec<_>>();
    assert!(
        filters.contains(&"envoy.filters.listener.original_src"),
        "{filters:?}"
    );
}

#[test]
fn traffic_distribution_prefers_the_own_zone() {
    let near = reviews_with("trafficDistribution: PreferClose, ", "").sidecar("shop", "client");
    assert_eq!(
        near.walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
            .addresses(),
        ["10.1.0.1:8080"]
    );
}

#[test]
fn a_local_internal_traffic_policy_keeps_to_the_node() {
    let mesh = reviews_with("internalTrafficPolicy: Local, ", "");
    let on = |node: &str| {
        let node = json!({ "NODE_NAME": node });
        let client = mesh.proxy_with("sidecar", "10.9.9.9", "shop", "client", "", &node);
        client
            .walk(&request("10.96.0.1:9080", "reviews", "/", &[]))
            .addresses()
    };
    assert_eq!(on("n1"), ["10.1.0.1:8080"]);
    assert_eq!(on("n2"), ["10.1.0.2:8080"]);
    assert_eq!(on("n3"), Vec::<String>::new());
}

#[test]
fn an_external_name_is_another_name_of_a_service() {
    let alias = "apiVersion: v1\nkind: Service\nmetadata: {name: alias, namespace: shop}\n\
                 spec: {type: ExternalName, externalName: ratings.shop.svc.cluster.local, \
                 ports: [{name: http, port: 9080, protocol: TCP}]}";
    let client = shop().with(alias).sidecar("shop", "client");
    let walk = client.walk(&request(
        "10.96.0.2:9080",
        "alias.shop.svc.cluster.local",
        "/",
        &[],
    ));
    assert_eq!(walk.addresses(), ["10.1.0.3:8080"]);
}

#[test]
fn wildcard_service_entries_forward_to_the_original_destination() {
    let entry = "{hosts: ['*.wild.example'], location: MESH_EXTERNAL, resolution: NONE, \
                 ports: [{number: 443, name: tls, protocol: TLS}, {number: 80, name: http, protocol: HTTP}]}";
    let mesh = shop().rule("ServiceEntry", "shop", "wild", entry);
    let closed = "{outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: ['*/*']}]}";
    let client = mesh
        .rule("Sidecar", "shop", "closed", closed)
        .sidecar("shop", "client");
    let walk = client.walk(&tls("93.184.0.1:443", "x.wild.example"));
    assert_eq!(walk.clusters(), [("outbound|443||*.wild.example", 1)]);

    assert_eq!(walk.addresses(), ["93.184.0.1:443"]);
    assert_eq!(
        client
            .walk(&tls("93.184.0.1:443", "tame.example"))
            .clusters(),
        [("BlackHoleCluster", 1)]
    );

    let walk = client.walk(&request("93.184.0.1:80", "y.wild.example", "/", &[]));
    assert_eq!(walk.addresses(), ["93.184.0.1:80"]);
    assert_eq!(
        client
            .walk(&request("93.184.0.1:80", "tame.example", "/", &[]))
            .outcome,
        Outcome::Answered(502)
    );
}

#[test]
fn a_service_entry_with_a_cidr_matches_all_its_addresses() {
    let entry = "{hosts: [range.example], addresses: [10.50.0.0/16], location: MESH_INTERNAL, resolution: STATIC, \
                 ports: [{number: 9000, name: tcp, protocol: TCP}], endpoints: [{address: 10.2.0.1, ports: {tcp: 9001}}]}";
    let client = shop()
        .rule("ServiceEntry", "shop", "range", entry)
        .sidecar("shop", "client");
    assert_eq!(
        client.walk(&bytes("10.50.7.8:9000")).addresses(),
        ["10.2.0.1:9001"]
    );
    assert_eq!(
        client.walk(&bytes("10.51.7.8:9000")).clusters(),
        [("PassthroughCluster", 1)]
    );
}

#[test]
fn selectors_reach_across_pods_and_workload_entries() {
    let entry = "{hosts: [all.example], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: \
                 {labels: {app: ratings}}, addresses: [240.1.1.1], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]}";
    let machine = "{address: 10.3.0.1, labels: {app: ratings}}";
    let ready = "apiVersion: v1\nkind: Pod\nmetadata: {name: ratings-0, namespace: shop, labels: {app: ratings}}\n\
                 status: {phase: Running, podIP: 10.1.0.3, podIPs: [{ip: 10.1.0.3}], \
                 conditions: [{type: Ready, status: 'True'}]}";
    let mesh = shop()
        .with(ready)
        .rule("ServiceEntry", "shop", "all", entry);
    let mesh = mesh.rule("WorkloadEntry", "shop", "machine", machine);
    let client = mesh.sidecar("shop", "client");
    let walk = client.walk(&request("240.1.1.1:80", "all.example", "/", &[]));

    assert_eq!(
        walk.addresses(),
        ["10.1.0.3:8080", "10.3.0.1:8080"],
        "an entry selects pods"
    );
    let walk = client.walk(&request("10.96.0.2:9080", "ratings", "/", &[]));
    assert_eq!(
        walk.addresses(),
        ["10.1.0.3:8080", "10.3.0.1:8080"],
        "a service selects entries"
    );
}

#[test]
fn unknown_hosts_are_sent_to_the_egress_proxy() {
    let rule = "{outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: ratings.shop.svc.cluster.local, port: {number: 9080}}}, \
                egress: [{hosts: ['*/*']}]}";
    let client = shop()
        .rule("Sidecar", "shop", "egress", rule)
        .sidecar("shop", "client");
    let walk = client.walk(&bytes("203.0.113.1:7777"));
    assert_eq!(
        walk.clusters(),
        [("outbound|9080||ratings.shop.svc.cluster.local", 1)]
    );
}

#[test]
fn gateways_redirect_and_forward_by_sni() {
    let servers = "{selector: {istio: edge}, servers: [\
                   {port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example], tls: {httpsRedirect: true}}, \
                   {port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.local'], tls: {mode: AUTO_PASSTHROUGH}}]}";
    let mutual = "{host: reviews, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}, subsets: [{name: v1, labels: {version: v1}}]}";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: reviews-0, namespace: shop, labels: {app: reviews, version: v1, \
               security.istio.io/tlsMode: istio}}\nspec: {nodeName: n1}\n\
               status: {phase: Running, podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}]}";
    let web = "{hosts: [shop.example], gateways: [edge], http: [{route: [{destination: {host: ratings}}]}]}";

    let mesh = shop()
        .with(pod)
        .rule("Gateway", "shop", "edge", servers)
        .rule("DestinationRule", "shop", "reviews", mutual)
        .rule("VirtualService", "shop", "web", web);
    let edge = mesh.gateway();
    let walk = edge.walk(&direct(request("10.9.9.8:80", "shop.example", "/a?b", &[])));
    let location = "https://shop.example/a?b".to_owned();

    assert_eq!(
        walk.outcome,
        Outcome::Redirected {
            status: 301,
            location
        }
    );

    let mut inner = direct(tls(
        "10.9.9.8:15443",
        "outbound_.9080_.v1_.reviews.shop.svc.cluster.local",
    ));
    assert!(
        matches!(edge.walk(&inner).outcome, Outcome::Closed(_)),
        "the chain matches only the mesh's own TLS"
    );

    inner.tls.as_mut().unwrap().alpn = vec!["istio".to_owned()];
    assert_eq!(edge.walk(&inner).addresses(), ["10.1.0.1:8080"]);
}

#[test]
fn an_ingress_is_served_by_its_class() {
    let ingress = |class: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: web, namespace: shop, \
             annotations: {{kubernetes.io/ingress.class: {class}}}}}\nspec: {{rules: [{{host: shop.example, http: {{paths: [\
             {{path: /r, pathType: Prefix, backend: {{service: {{name: ratings, port: {{number: 9080}}}}}}}}]}}}}]}}"
        )
    };

    let ask = |class: &str, path: &str| {
        let edge = shop().with(&ingress(class)).proxy(
            "router",
            "10.9.9.8",
            "istio-system",
            "ingressgateway",
            "",
        );
        edge.walk(&direct(request("10.9.9.8:80", "shop.example", path, &[])))
    };

    assert_eq!(ask("istio", "/r/x").addresses(), ["10.1.0.3:8080"]);
    assert_eq!(
        ask("istio", "/rest").outcome,
        Outcome::NotFound,
        "the prefix matches whole elements of the path"
    );
    assert!(ask("nginx", "/r").addresses().is_empty());
}

#[test]
fn outbound_traffic_policy_applies_to_unknown_hosts() {
    let closed = shop()
        .config("outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
        .sidecar("shop", "client");
    assert_eq!(
        closed.walk(&bytes("203.0.113.1:7777")).clusters(),
        [("BlackHoleCluster", 1)]
    );
    let open = shop().sidecar("shop", "client");
    assert_eq!(
        open.walk(&bytes("203.0.113.1:7777")).addresses(),
        ["203.0.113.1:7777"]
    );
}

#[test]
fn bytes_may_be_split_among_subsets_of_another_service() {
    let route = "{hosts: [db], tcp: [{match: [{destinationSubnets: [10.96.0.3/32]}], route: [\
                 {destination: {host: reviews, subset: v1, port: {number: 9080}}, weight: 30}, \
                 {destination: {host: reviews, subset: v2, port: {number: 9080}}, weight: 70}]}]}";
    let mesh = shop()
        .rule("DestinationRule", "shop", "reviews", SUBSETS)
        .rule("VirtualService", "shop", "db", route);
    let walk = mesh
        .sidecar("shop", "client")
        .walk(&bytes("10.96.0.3:5432"));
    let weights: Vec<u32> = walk.clusters().iter().map(|(_, weight)| *weight).collect();
    assert_eq!((weights, walk.addresses().len()), (vec![30, 70], 2));
}

#[test]
fn patches_may_contain_durations_in_gos_notation() {
    let filter = "{configPatches: [{applyTo: CLUSTER, match: {cluster: {service: ratings.shop.svc.cluster.local}}, \
                  patch: {operation: MERGE, value: {connect_timeout: 1m30s}}}]}";
    let filter = format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: f, namespace: shop}}\nspec: {filter}"
    );
    let client = shop().with(&filter).sidecar("shop", "client");
    let cluster = &client.clusters["outbound|9080||ratings.shop.svc.cluster.local"];
    assert_eq!(
        cluster.connect_timeout.as_ref().map(|span| span.seconds),
        Some(90)
    );
}

#[test]
fn an_envoy_filter_sets_the_maximum_direct_response_size() {
    let patched = |context: &str| {
        let filter = format!(
            "{{configPatches: [{{applyTo: ROUTE_CONFIGURATION, match: {{context: {context}}}, \
             patch: {{operation: MERGE, value: {{max_direct_response_body_size_bytes: 100}}}}}}]}}"
        );
        let filter = format!(
            "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: f, namespace: shop}}\nspec: {filter}"
        );
        let mesh =
            shop()
                .rule("Gateway", "shop", "edge", EDGE)
                .rule("VirtualService", "shop", "web", WEB);
        mesh.with(&filter)
    };

    for (kind, context, table) in [
        ("sidecar", "SIDECAR_OUTBOUND", "9080"),
        ("router", "GATEWAY", "http.80"),
    ] {
        let largest = |mesh: Mesh| mesh.routes_of(kind)[table].max_direct_response_body_size_bytes;
        assert_eq!(largest(patched(context)), Some(100), "{kind}");
        assert_eq!(
            largest(patched("SIDECAR_INBOUND")),
            Some(1024 * 1024),
            "{kind}"
        );
    }
}

#[test]
fn virtual_hosts_are_in_the_order_of_their_names() {
    let mut mesh = shop();

    for number in 0..100 {
        let namespace = ["z", "a", "m"][number % 3];
        mesh = mesh.with(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}, namespace: {namespace}}}\n\
             spec: {{clusterIP: 10.97.0.{number}, ports: [{{name: http, port: 9080}}]}}"
        ));
    }

    let routes = &mesh.routes_of("sidecar")["9080"];
    let mut names: Vec<&str> = routes
        .virtual_hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();

    assert_eq!(
        names.pop(),
        Some("allow_any"),
        "it is the last one, as with istiod"
    );
    assert_eq!(names.len(), 102);
    assert!(names.is_sorted(), "{names:?}");
}
