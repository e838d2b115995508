//! Known vulnerabilities and bugs of policies and routes. `docs/security-regressions.md` has the
//! list.

use std::collections::BTreeMap;

use navarch::walk::policy::{Peer, TokenClaims, Verdict, Visitor, verdict};
use navarch::walk::{Connection, Entry, HttpRequest, Outcome, Resources};
use navarch::webhook::verdict::validate;
use navarch_proto::envoy::config::listener::v3::filter;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    PathWithEscapedSlashesAction, RouteSpecifier,
};
use prost::Message as _;
use serde_json::json;

use crate::authorization::{bytes_of, chains_of_web, web};
use crate::mesh::Mesh;
use crate::rbac::{self, Request, TestRequest};
use crate::{bytes, request, shop, tls};

/// The same connection, opened to the proxy itself.
fn direct(connection: Connection) -> Connection {
    Connection {
        entry: Entry::Direct,
        ..connection
    }
}

/// The AuthorizationPolicy of `web`.
fn policy(spec: &str) -> Mesh {
    web().with(&format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: p, namespace: shop}}\nspec: {spec}"
    ))
}

/// Whether a peer may open TCP connections to `web`.
fn may_connect(mesh: &Mesh, identity: &str) -> bool {
    let test_request = TestRequest {
        identity: Some(format!("spiffe://cluster.local/{identity}")),
        ..bytes_of(8081)
    };
    chains_of_web(mesh, 8081)
        .iter()
        .all(|(filters, _)| rbac::lets_pass(filters, &test_request))
}

#[test]
fn cve_2020_8595_queries_lead_around_no_exact_path() {
    let mesh = policy(
        "{action: DENY, rules: [{from: [{source: {notRequestPrincipals: ['*']}}], \
         to: [{operation: {paths: [/admin]}}]}]}",
    );
    let resources = mesh.sidecar("shop", "web");
    let inbound = resources
        .listeners
        .iter()
        .find(|listener| listener.name == "virtualInbound")
        .unwrap();
    let chains = rbac::chains_of_port(inbound, 8080);
    assert!(!chains.is_empty());

    for (path, is_denied) in [
        ("/admin", true),
        ("/admin?", true),
        ("/admin?page=1", true),
        ("/other?/admin", false),
    ] {
        let request = HttpRequest {
            method: "GET".to_owned(),
            host: "web".to_owned(),
            path: path.to_owned(),
            headers: BTreeMap::new(),
            claims: None,
        };
        let visitor = Visitor {
            peer: Peer::Nobody,
            source: None,
            remote: None,
            claims: TokenClaims::Absent,
            destination: ([10, 9, 9, 9].into(), 8080),
            http: Some(&request),
        };
        for chain in &chains {
            let verdict = verdict(chain, &visitor);
            let denied = matches!(verdict, Verdict::Denied(_));
            assert_eq!(denied, is_denied, "{path}: {verdict:?}");
        }
    }
}

/// The HTTP connection managers of a proxy that handle requests for services.
fn managers(resources: &Resources) -> Vec<HttpConnectionManager> {
    let mut managers = Vec::new();

    for listener in &resources.listeners {
        let chains = listener
            .filter_chains
            .iter()
            .chain(&listener.default_filter_chain);
        for one in chains.flat_map(|chain| &chain.filters) {
            if let Some(filter::ConfigType::TypedConfig(config)) = &one.config_type
                && config.type_url.ends_with(".HttpConnectionManager")
            {
                managers.push(HttpConnectionManager::decode(config.value.as_slice()).unwrap());
            }
        }
    }

    // The ends of tunnels have no filters for requests.
    managers.retain(|manager| {
        manager
            .http_filters
            .iter()
            .any(|filter| filter.name == "envoy.filters.http.cors")
    });
    managers
}

#[test]
fn cve_2021_31920_and_cve_2021_29492_every_connection_manager_normalizes_paths() {
    let keep = PathWithEscapedSlashesAction::KeepUnchanged;
    let unescape = PathWithEscapedSlashesAction::UnescapeAndForward;
    let gateway = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}";
    let bound = "{hosts: ['*'], gateways: [edge], http: [{route: [{destination: {host: web}}]}]}";

    for (config, merges, escaped) in [
        ("", false, keep),
        ("pathNormalization: {normalization: BASE}", false, keep),
        (
            "pathNormalization: {normalization: MERGE_SLASHES}",
            true,
            keep,
        ),
        (
            "pathNormalization: {normalization: DECODE_AND_MERGE_SLASHES}",
            true,
            unescape,
        ),
    ] {
        let mesh = web()
            .config(config)
            .rule("Gateway", "shop", "edge", gateway)
            .rule("VirtualService", "shop", "edge", bound);

        for (name, resources) in [
            ("sidecar", mesh.sidecar("shop", "web")),
            ("gateway", mesh.gateway()),
        ] {
            let managers = managers(&resources);
            assert!(!managers.is_empty(), "{name}");
            for manager in managers {
                let done = (
                    manager.normalize_path,
                    manager.merge_slashes,
                    manager.path_with_escaped_slashes_action(),
                );
                assert_eq!(
                    done,
                    (Some(true), merges, escaped),
                    "{name} {}: {config}",
                    manager.stat_prefix
                );
            }
        }
    }
}

/// By this setting the router takes `/admin;x=1` for `/admin`. Envoys before 1.36.10, 1.37.6, 1.38.4
/// and 1.39.1 then judge the path with its parameters, and route by what is before the first one.
#[test]
fn cve_2026_73511_and_cve_2026_73553_routes_and_policies_match_the_same_path() {
    let gateway = "{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}";
    let bound = "{hosts: ['*'], gateways: [edge], http: [{match: [{uri: {exact: /admin}}], route: [{destination: {host: web}}]}]}";
    let mesh = web().rule("Gateway", "shop", "edge", gateway).rule(
        "VirtualService",
        "shop",
        "edge",
        bound,
    );

    let mut tables = Vec::new();
    for kind in ["sidecar", "router"] {
        let served = mesh.routes_of(kind);
        assert!(!served.is_empty(), "{kind}");
        tables.extend(served.into_values());
    }

    let served = tables.len();
    for manager in managers(&mesh.sidecar("shop", "web")) {
        if let Some(RouteSpecifier::RouteConfig(inbound)) = manager.route_specifier {
            tables.push(inbound);
        }
    }
    assert!(tables.len() > served, "inbound listeners hold their routes");

    for table in tables {
        assert!(
            !table.ignore_path_parameters_in_path_matching,
            "{}",
            table.name
        );
    }
}

/// Envoys before 1.36.10, 1.37.6, 1.38.4 and 1.39.1 match no expression with a value that is not
/// UTF-8: rules that deny by one do not apply then.
#[test]
fn cve_2026_73552_rules_about_headers_are_no_expressions() {
    for rule in [
        "{when: [{key: 'request.headers[x-role]', values: [guest, 'g*', '*t', '*']}]}",
        "{when: [{key: 'request.headers[x-role]', notValues: [guest, 'g*', '*t', '*']}]}",
        "{to: [{operation: {hosts: [a.example, 'a.*', '*.example', '*'], methods: [GET, 'P*']}}]}",
        "{to: [{operation: {notHosts: [a.example, '*.example'], notMethods: [GET, 'P*']}}]}",
    ] {
        let mesh = policy(&format!("{{action: DENY, rules: [{rule}]}}"));
        for (filters, _) in chains_of_web(&mesh, 8080) {
            let policies: Vec<_> = filters
                .iter()
                .flat_map(|rules| rules.policies.values())
                .collect();
            assert!(!policies.is_empty(), "{rule}");
            for policy in policies {
                let text = format!("{policy:?}");
                assert!(text.contains("HeaderMatcher {"), "{text}");
                assert!(!text.contains("SafeRegex"), "{text}");
            }
        }
    }
}

/// Envoy looks at each value of a header by itself in matchers of headers. Expressions (CEL) and
/// generic matchers have the values joined by commas.
#[test]
fn cve_2026_26308_rules_about_headers_are_matchers_of_headers() {
    for rule in [
        "{when: [{key: 'request.headers[x-role]', values: [guest]}]}",
        "{when: [{key: 'request.headers[x-role]', notValues: [guest]}]}",
    ] {
        let mesh = policy(&format!("{{action: DENY, rules: [{rule}]}}"));
        for (filters, _) in chains_of_web(&mesh, 8080) {
            let policies: Vec<_> = filters
                .iter()
                .flat_map(|rules| rules.policies.values())
                .collect();
            assert!(!policies.is_empty(), "{rule}");
            for policy in policies {
                assert!(
                    policy.condition.is_none() && policy.checked_condition.is_none(),
                    "{policy:?}"
                );
                let principals = format!("{:?}", policy.principals);
                assert!(
                    principals.contains("HeaderMatcher { name: \"x-role\""),
                    "{principals}"
                );
            }
        }
    }
}

#[test]
fn cve_2020_16844_tcp_is_denied_by_the_end_of_a_principal() {
    let mesh = policy("{action: DENY, rules: [{from: [{source: {principals: ['*/sa/eve']}}]}]}");
    assert!(!may_connect(&mesh, "ns/shop/sa/eve") && !may_connect(&mesh, "ns/bank/sa/eve"));
    assert!(may_connect(&mesh, "ns/shop/sa/ada"));
    let mesh = policy("{rules: [{from: [{source: {principals: ['*/ns/shop/sa/ada']}}]}]}");
    assert!(may_connect(&mesh, "ns/shop/sa/ada") && !may_connect(&mesh, "ns/bank/sa/ada"));
}

#[test]
fn cve_2026_39350_dots_in_service_accounts_are_dots() {
    let mesh = policy("{rules: [{from: [{source: {serviceAccounts: [shop/web.x, 'bank/a+b']}}]}]}");
    assert!(may_connect(&mesh, "ns/shop/sa/web.x"));
    for other in [
        "ns/shop/sa/webyx",
        "ns/shop/sa/web.xx",
        "ns/shop.x/sa/web.x",
        "ns/bank/sa/aab",
        "ns/shop/sa/web",
    ] {
        assert!(!may_connect(&mesh, other), "{other}");
    }
}

#[test]
fn istio_59992_letters_of_expressions_in_principals_and_namespaces_are_letters() {
    let mesh =
        policy("{rules: [{from: [{source: {namespaces: ['sh.p'], principals: ['*web.x']}}]}]}");
    assert!(may_connect(&mesh, "ns/sh.p/sa/web.x"));
    for other in ["ns/shop/sa/web.x", "ns/sh.p/sa/webyx", "ns/sh.pp/sa/web.x"] {
        assert!(!may_connect(&mesh, other), "{other}");
    }
    let mesh = policy(
        "{action: DENY, rules: [{from: [{source: {namespaces: ['sh.p'], principals: ['*web.x']}}]}]}",
    );
    assert!(may_connect(&mesh, "ns/shop/sa/web.x") && !may_connect(&mesh, "ns/sh.p/sa/web.x"));
    let mesh = policy("{rules: [{from: [{source: {principals: ['*/sa/w[a-z]b', '*/sa/a*b']}}]}]}");
    assert!(!may_connect(&mesh, "ns/shop/sa/web") && !may_connect(&mesh, "ns/shop/sa/ab"));
}

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

/// A request of an unauthenticated client for a host and a path.
fn stranger_request(host: &str, path: &str) -> TestRequest {
    let http = Request {
        method: "GET".to_owned(),
        host: host.to_owned(),
        path: path.to_owned(),
        headers: BTreeMap::new(),
        claims: None,
    };
    TestRequest {
        http: Some(http),
        ..bytes_of(8080)
    }
}

/// Whether the filters for a proxy of this version allow a request to `web`.
fn lets_pass(mesh: &Mesh, version: &str, test_request: &TestRequest) -> bool {
    let metadata = json!({"ISTIO_VERSION": version});
    let resources = mesh.proxy_with("sidecar", "10.9.9.9", "shop", "web", "r1/r1-a", &metadata);
    let inbound = resources
        .listeners
        .iter()
        .find(|listener| listener.name == "virtualInbound")
        .unwrap();
    let chains = rbac::chains_of_port(inbound, 8080);
    assert!(!chains.is_empty(), "{version}");
    chains.into_iter().map(rbac::of_chain).all(|(filters, _)| {
        assert!(
            !filters.is_empty(),
            "{version}: the chain has no RBAC filter"
        );
        rbac::lets_pass(&filters, test_request)
    })
}

#[test]
fn cve_2021_39155_hosts_are_the_same_in_any_case_and_with_a_port() {
    let mesh = policy(
        "{action: DENY, rules: [{to: [{operation: {hosts: ['Shop.Example', 'shop.example:*']}}]}]}",
    );

    for host in [
        "shop.example",
        "SHOP.example",
        "sHOP.eXAMPLE:8080",
        "shop.example:80",
    ] {
        assert!(
            !lets_pass(&mesh, "1.32.0", &stranger_request(host, "/")),
            "{host}"
        );
    }

    assert!(lets_pass(
        &mesh,
        "1.32.0",
        &stranger_request("other.example", "/")
    ));
    let mesh = policy(
        "{rules: [{to: [{operation: {hosts: ['shop.example'], notHosts: ['*.Shop.Example']}}]}]}",
    );

    assert!(lets_pass(
        &mesh,
        "1.32.0",
        &stranger_request("SHOP.example", "/")
    ));

    assert!(!lets_pass(
        &mesh,
        "1.32.0",
        &stranger_request("a.shop.example", "/")
    ));
}

/// Istio 1.12 wrote hosts in a form unknown to Envoy 1.11, which therefore matched every host. The
/// evaluator here knows only the forms of 2021 and panics on any other, no matter which version the
/// proxy reports.
#[test]
fn cve_2022_21679_policies_about_hosts_mean_the_same_to_proxies_of_all_versions() {
    let allow = policy("{rules: [{to: [{operation: {hosts: [shop.example]}}]}]}");
    let deny = policy("{action: DENY, rules: [{to: [{operation: {notHosts: [shop.example]}}]}]}");
    for version in [
        "1.11.0", "1.12.1", "1.20.0", "1.27.3", "1.31.0", "1.32.0", "2.0.0", "", "unknown",
    ] {
        for (name, mesh) in [("ALLOW", &allow), ("DENY", &deny)] {
            assert!(
                lets_pass(mesh, version, &stranger_request("shop.example", "/")),
                "{name} {version}"
            );
            assert!(
                !lets_pass(mesh, version, &stranger_request("evil.example", "/")),
                "{name} {version}"
            );
        }
    }
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
