//! Requests that enter at a gateway, their tokens, and plans about both.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use navarch::api::settings::Settings;
use navarch::push::context::PushContext;
use navarch_answers::implied;
use navarch_answers::mirror::Mirror;
use navarch_answers::plan::{Plan, plan_of};
use navarch_answers::why::WhyNot;
use navarch_answers::why_not::{Origin, Others, Request, why_not};
use serde_json::json;

use super::waypoint::{changes, context_of, snapshots};

/// A gateway whose Service maps 80 and 443 to 8080 and 8443, and `web` behind it.
const EDGE: &str = "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec:
  selector: {istio: edgegateway}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example]}
  - {port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*/shop.example'], tls: {mode: SIMPLE, credentialName: shop}}
  - {port: {number: 9443, name: tls, protocol: TLS}, hosts: [db.example], tls: {mode: PASSTHROUGH}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: edge}
spec:
  hosts: [shop.example]
  gateways: [edge]
  http:
  - match: [{uri: {prefix: /admin}, headers: {'@request.auth.claims.groups': {exact: staff}}}]
    route: [{destination: {host: admin.shop.svc.cluster.local}}]
  - match: [{uri: {prefix: /api}}]
    route: [{destination: {host: web.shop.svc.cluster.local}}]
---
";

/// A RequestAuthentication for the pods with a label.
fn issuer(namespace: &str, labels: &str, more: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: tokens, namespace: {namespace}}}\n\
         spec: {{selector: {{matchLabels: {{{labels}}}}}, jwtRules: [{{issuer: https://issuer.example, \
         jwksUri: https://issuer.example/keys{more}}}]}}\n---\n"
    )
}

/// An AuthorizationPolicy for the pods with a label.
fn policy(namespace: &str, labels: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: callers, namespace: {namespace}}}\n\
         spec: {{selector: {{matchLabels: {{{labels}}}}}, {spec}}}\n---\n"
    )
}

/// The gateway, the workloads behind it, and more.
fn mesh(more: &str) -> Arc<PushContext> {
    let mut yaml = String::from(EDGE);

    for (name, namespace, ip, labels) in [
        ("edge-1", "edge", "10.2.0.1", "istio: edgegateway"),
        ("web-1", "shop", "10.2.0.2", "app: web"),
        ("admin-1", "shop", "10.2.0.3", "app: admin"),
    ] {
        writeln!(
            yaml,
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{{labels}, security.istio.io/tlsMode: istio}}}}\n\
             spec: {{serviceAccountName: {name}, containers: [{{name: app, image: app}}]}}\n\
             status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: 'True'}}]}}\n---"
        )
        .unwrap();
    }

    for (name, namespace, vip, selector, pod, ip, ports) in [
        (
            "edge",
            "edge",
            "10.97.0.1",
            "istio: edgegateway",
            "edge-1",
            "10.2.0.1",
            vec![("http", 80, 8080), ("https", 443, 8443)],
        ),
        (
            "web",
            "shop",
            "10.97.0.2",
            "app: web",
            "web-1",
            "10.2.0.2",
            vec![("http", 80, 8080)],
        ),
        (
            "admin",
            "shop",
            "10.97.0.3",
            "app: admin",
            "admin-1",
            "10.2.0.3",
            vec![("http", 80, 8080)],
        ),
    ] {
        let declared: Vec<String> = ports
            .iter()
            .map(|(port, number, to)| format!("{{name: {port}, port: {number}, targetPort: {to}}}"))
            .collect();
        let listed: Vec<String> = ports
            .iter()
            .map(|(port, _, to)| format!("{{name: {port}, port: {to}, protocol: TCP}}"))
            .collect();
        let declared = declared.join(", ");
        let listed = listed.join(", ");
        writeln!(
            yaml,
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             spec: {{clusterIP: {vip}, clusterIPs: [{vip}], selector: {{{selector}}}, ports: [{declared}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\n\
             endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {pod}, namespace: {namespace}}}}}]\n\
             ports: [{listed}]\n---"
        )
        .unwrap();
    }

    context_of(Settings::default(), &(yaml + more))
}

/// The result of a request to a host and port at the gateway, with the claims of a token.
fn at_gateway(
    more: &str,
    to: (&str, Option<u16>, &str),
    claims: Option<&serde_json::Value>,
) -> WhyNot {
    let context = mesh(more);
    let mirror = Mirror::of(&context, implied(&context));
    let places = snapshots(&mirror);
    let at = |ip: IpAddr| {
        places
            .iter()
            .find(|place| place.proxy.ips.contains(&ip))
            .cloned()
    };

    let gateway = at("10.2.0.1".parse().unwrap()).unwrap();
    let (host, port, path) = to;
    let claims = claims.map(|claims| claims.as_object().unwrap().clone());
    let request = Request {
        host: host.to_owned(),
        port,
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: BTreeMap::new(),
        claims,
        to_all: false,
    };

    let others = Others {
        at: &at,
        waypoints: &Vec::new,
        ztunnels: &Vec::new,
        read: &RefCell::default(),
    };

    why_not(&context, &Origin::Proxy(gateway), &request, others)
}

/// The result of a request to the API, with these claims or without a token.
fn api(more: &str, claims: Option<&serde_json::Value>) -> WhyNot {
    at_gateway(more, ("shop.example", Some(80), "/api"), claims)
}

#[test]
fn a_request_at_a_gateway_uses_the_port_that_its_service_maps_and_a_server_with_its_host() {
    let answer = at_gateway("", ("shop.example", None, "/api"), None);
    let text = answer.to_string();
    assert_eq!(answer.reason, None, "{text}");

    for step in [
        "GET shop.example:80/api at gateway edge-1.edge",
        "Service edge/edge maps port 80 to port 8080 of the gateway",
        "listener \"0.0.0.0_8080\" accepts the connection",
        "Gateway edge/edge has a host that matches shop.example",
        "it is forwarded to web.shop 100 %",
        "web-1.shop at 10.2.0.2:8080 allows it",
    ] {
        assert!(text.contains(step), "{step} in\n{text}");
    }

    let text = at_gateway("", ("shop.example", Some(443), "/api"), None).to_string();
    assert!(
        text.contains("listener \"0.0.0.0_8443\" accepts the connection over TLS for shop.example"),
        "{text}"
    );
    assert!(
        text.contains("web-1.shop at 10.2.0.2:8080 allows it"),
        "{text}"
    );
}

#[test]
fn a_missing_host_a_missing_route_and_a_missing_listener_have_different_advice() {
    let advice = |to| at_gateway("", to, None).advice.unwrap_or_default();
    let unclaimed = advice(("other.example", Some(80), "/api"));
    assert!(
        unclaimed
            .contains("no server of its Gateways has a host that matches other.example at port 80"),
        "{unclaimed}"
    );
    assert!(
        unclaimed.ends_with("hosts of its servers: shop.example"),
        "{unclaimed}"
    );

    let unrouted = advice(("shop.example", Some(80), "/"));
    assert!(
        unrouted.contains("bound to Gateway edge/edge matches this host"),
        "{unrouted}"
    );
    let closed = at_gateway("", ("shop.example", Some(81), "/"), None);
    assert!(
        closed
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("has no listener for port 81")),
        "{closed}"
    );

    assert!(
        closed
            .advice
            .as_deref()
            .is_some_and(|advice| advice.starts_with("its ports are 80, 443")),
        "{closed}"
    );
}

#[test]
fn only_policies_reject_a_request_without_a_token() {
    let claims = json!({ "iss": "https://issuer.example", "sub": "me", "aud": ["shop"] });
    let tokens = issuer("edge", "istio: edgegateway", "");
    let answer = api(&tokens, None);
    assert_eq!(answer.reason, None, "{answer}");
    assert!(
        answer
            .to_string()
            .contains("accepts tokens of https://issuer.example, and requests without one"),
        "{answer}"
    );

    let demands = tokens.clone()
        + &policy(
            "edge",
            "istio: edgegateway",
            "action: DENY, rules: [{from: [{source: {notRequestPrincipals: ['*']}}]}]",
        );

    let answer = api(&demands, None);
    let reason = answer.reason.clone().unwrap_or_default();
    let advice = answer.advice.clone().unwrap_or_default();
    assert!(
        reason.contains("403 by ns[edge]-policy[callers]-rule[0]"),
        "{answer}"
    );
    assert!(
        advice.contains("AuthorizationPolicy edge/callers") && advice.contains("--token-claims"),
        "{answer}"
    );

    let answer = api(&demands, Some(&claims));
    assert_eq!(answer.reason, None, "{answer}");
    assert!(
        answer.unknown.iter().any(|one| one.contains("signature")),
        "{answer}"
    );

    // A policy that allows some subjects only.
    let allows = "action: ALLOW, rules: [{from: [{source: {requestPrincipals: ['https://issuer.example/you']}}]}]";
    let allows = tokens.clone() + &policy("edge", "istio: edgegateway", allows);

    for (claims, is_fine) in [
        (
            Some(json!({ "iss": "https://issuer.example", "sub": "you" })),
            true,
        ),
        (Some(claims.clone()), false),
        (None, false),
    ] {
        let answer = api(&allows, claims.as_ref());
        assert_eq!(answer.reason.is_none(), is_fine, "{answer}");
        assert!(is_fine || answer.reason.unwrap().ends_with("403"));
    }

    // Tokens of another issuer, and for another audience.
    let other = api(
        &tokens,
        Some(&json!({ "iss": "https://other.example", "sub": "me" })),
    );
    assert!(
        other
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("401, Jwt issuer is not configured")),
        "{other}"
    );

    assert_eq!(
        other.advice.as_deref(),
        Some("the issuers that it accepts: https://issuer.example")
    );
    let meant_for = |audience: &str| {
        issuer(
            "edge",
            "istio: edgegateway",
            &format!(", audiences: [{audience}]"),
        )
    };

    let reason = api(&meant_for("bank"), Some(&claims))
        .reason
        .unwrap_or_default();
    assert!(
        reason.contains("403, Audiences in Jwt are not allowed"),
        "{reason}"
    );
    assert_eq!(api(&meant_for("shop"), Some(&claims)).reason, None);
}

#[test]
fn claims_select_routes_and_are_forwarded_with_tokens() {
    let staff = json!({ "iss": "https://issuer.example", "sub": "me", "groups": ["staff"] });
    let tokens = issuer("edge", "istio: edgegateway", "");
    let to_admin = |claims| at_gateway(&tokens, ("shop.example", Some(80), "/admin"), claims);
    assert!(
        to_admin(Some(&staff))
            .to_string()
            .contains("it is forwarded to admin.shop 100 %"),
        "{}",
        to_admin(Some(&staff))
    );

    assert!(
        to_admin(None)
            .reason
            .is_some_and(|reason| reason.contains("404"))
    );

    // Behind the gateway the request has a token only if the gateway forwards it.
    let demands = |more: &str| {
        let behind = "action: ALLOW, rules: [{when: [{key: 'request.auth.claims[groups]', values: [staff]}]}]";
        issuer("edge", "istio: edgegateway", more)
            + &issuer("shop", "app: web", "")
            + &policy("shop", "app: web", behind)
    };

    let kept = api(&demands(", forwardOriginalToken: true"), Some(&staff));
    assert_eq!(kept.reason, None, "{kept}");
    let taken = api(&demands(""), Some(&staff));
    assert!(
        taken
            .reason
            .as_deref()
            .is_some_and(|reason| reason.starts_with("web-1.shop allows it to others")),
        "{taken}"
    );

    assert!(
        taken
            .to_string()
            .contains("removes it from the request (forwardOriginalToken is not set)"),
        "{taken}"
    );
}

#[test]
fn external_clients_have_no_identity_and_no_known_address() {
    let by_address =
        "action: DENY, rules: [{from: [{source: {remoteIpBlocks: [203.0.113.0/24]}}]}]";
    let answer = api(&policy("edge", "istio: edgegateway", by_address), None);
    assert!(
        answer.reason.is_none() && answer.unknown.iter().any(|one| one.contains("addresses")),
        "{answer}"
    );
    let by_identity = "action: ALLOW, rules: [{from: [{source: {principals: ['*']}}]}]";
    let answer = api(&policy("edge", "istio: edgegateway", by_identity), None);

    assert!(
        answer
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("not to a client without identity")),
        "{answer}"
    );

    // Behind the gateway, the gateway is the client.
    let by_gateway = "action: ALLOW, rules: [{from: [{source: {principals: [cluster.local/ns/edge/sa/edge-1]}}]}]";
    assert_eq!(
        api(&policy("shop", "app: web", by_gateway), None).reason,
        None
    );
}

#[test]
fn http_is_recognized_behind_the_gateway_at_ports_without_a_declared_protocol() {
    let raw = "apiVersion: v1
kind: Service
metadata: {name: raw, namespace: shop}
spec: {clusterIP: 10.97.0.4, clusterIPs: [10.97.0.4], selector: {app: web}, ports: [{name: main, port: 81, targetPort: 8081}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: raw-1, namespace: shop, labels: {kubernetes.io/service-name: raw}}
addressType: IPv4
endpoints: [{addresses: [10.2.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: web-1, namespace: shop}}]
ports: [{name: main, port: 8081, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: to-raw, namespace: edge}
spec: {hosts: [shop.example], gateways: [edge], http: [{match: [{uri: {prefix: /raw}}], route: [{destination: {host: raw.shop.svc.cluster.local}}]}]}
---
";
    // At a filter chain for TCP the rule denies every connection: it has no path.
    let rule = "action: DENY, rules: [{to: [{operation: {paths: [/raw/secret]}}]}]";
    let more = raw.to_owned() + &policy("shop", "app: web", rule);

    let open = at_gateway(&more, ("shop.example", Some(80), "/raw/open"), None);
    let text = open.to_string();
    assert!(
        open.reason.is_none() && text.contains("web-1.shop at 10.2.0.2:8081 allows it"),
        "{text}"
    );

    let secret = at_gateway(&more, ("shop.example", Some(80), "/raw/secret"), None);
    assert!(
        secret.reason.as_deref().is_some_and(
            |reason| reason.starts_with("web-1.shop denies it") && reason.contains("403")
        ),
        "{secret}"
    );
}

/// The lines of a plan about requests.
fn planned(more: &str, change: &str) -> Vec<String> {
    let context = mesh(more);
    let plan: Plan = plan_of(
        &mut Mirror::of(&context, implied(&context)),
        changes(change).pop().unwrap(),
    );
    plan.traffic
        .iter()
        .map(|one| format!("{}: {} → {}", one.request, one.before, one.after))
        .collect()
}

#[test]
fn plans_report_clients_that_lose_access() {
    let demands = policy(
        "edge",
        "istio: edgegateway",
        "action: DENY, rules: [{from: [{source: {notRequestPrincipals: ['*']}}]}]",
    );
    let lines = planned(&issuer("edge", "istio: edgegateway", ""), &demands);
    let expected = "GET shop.example:8080/api: web.shop:80 100 % → 403 without a token by AuthorizationPolicy edge/callers";
    assert!(lines.iter().any(|line| line == expected), "{lines:#?}");

    let none = policy("shop", "app: web", "action: ALLOW");
    let lines = planned("", &none);
    let expected =
        "GET web:80/ at web-1: allowed → 403: not allowed by AuthorizationPolicy shop/callers";
    assert!(lines.iter().any(|line| line == expected), "{lines:#?}");
    let strict = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\n\
                  spec: {mtls: {mode: STRICT}}\n";
    let lines = planned("", strict);
    let plain = lines
        .iter()
        .find(|line| line.starts_with("GET web:80/ in plain text at web-1: allowed → closed"));

    assert!(
        plain.is_some()
            && !lines
                .iter()
                .any(|line| line.starts_with("GET web:80/ at web-1")),
        "{lines:#?}"
    );
}

#[test]
fn plans_show_tls_passthrough_changes_of_a_gateway() {
    let db = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: db, namespace: edge}\n\
              spec: {hosts: [db.example], gateways: [edge], tls: [{match: [{port: 9443, sniHosts: [db.example]}], \
              route: [{destination: {host: web.shop.svc.cluster.local, port: {number: 80}}}]}]}\n";
    let lines = planned("", db);
    let line = lines
        .iter()
        .find(|line| line.starts_with("TLS db.example:9443: "));
    assert!(
        line.is_some_and(|line| line.ends_with("→ web.shop:80 100 %")),
        "{lines:#?}"
    );
}
