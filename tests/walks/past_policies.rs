//! Known vulnerabilities and bugs of policies about clients, hosts and headers.
//! `docs/security-regressions.md` has the list.

use std::collections::BTreeMap;

use serde_json::json;

use crate::authorization::{bytes_of, chains_of_web, web};
use crate::mesh::Mesh;
use crate::rbac::{self, Request, TestRequest};

/// The AuthorizationPolicy of `web`.
pub(crate) fn policy(spec: &str) -> Mesh {
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
