//! Connections that ztunnel allows to ambient pods, and the transport between workloads.

use navarch_answers::implied;
use navarch_answers::mirror::Mirror;
use navarch_answers::plan::plan_of;
use navarch_answers::why_not::{Origin, Request};

use super::waypoint::{changes, follow, snapshot, why_fails};

/// An AuthorizationPolicy that ztunnel enforces.
fn policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{spec}}}\n---\n"
    )
}

/// A rule for one account.
fn of_account(account: &str) -> String {
    format!("rules: [{{from: [{{source: {{principals: [cluster.local/ns/shop/sa/{account}]}}}}]}}]")
}

/// Rejects everything except mutual TLS.
const STRICT: &str = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\n\
                      spec: {mtls: {mode: STRICT}}\n---\n";

/// An ambient pod on a node, and that node's ztunnel.
const NODE: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: ztunnel-1, namespace: istio-system, labels: {app: ztunnel}}\n\
spec: {nodeName: n1, containers: [{name: istio-proxy, image: ztunnel}]}\n\
status: {phase: Running, podIP: 10.1.1.1, podIPs: [{ip: 10.1.1.1}]}\n---\n\
apiVersion: v1\nkind: Pod\nmetadata: {name: near, namespace: shop, labels: {app: near}, annotations: {ambient.istio.io/redirection: enabled}}\n\
spec: {nodeName: n1, serviceAccountName: near, containers: [{name: app, image: app}]}\n\
status: {phase: Running, podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], conditions: [{type: Ready, status: 'True'}]}\n---\n\
apiVersion: v1\nkind: Service\nmetadata: {name: near, namespace: shop}\n\
spec: {clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], selector: {app: near}, ports: [{name: http, port: 80, targetPort: 8080}]}\n---\n\
apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
metadata: {name: near-1, namespace: shop, labels: {kubernetes.io/service-name: near}}\naddressType: IPv4\n\
endpoints: [{addresses: [10.1.1.2], nodeName: n1, conditions: {ready: true}, targetRef: {kind: Pod, name: near, namespace: shop}}]\n\
ports: [{name: http, port: 8080, protocol: TCP}]\n---\n";

#[test]
fn policies_of_connections_are_the_reason_where_ztunnel_denies() {
    let spec = |action: &str, account: &str| {
        let rules = of_account(account);
        policy(
            "plain",
            &format!("selector: {{matchLabels: {{app: plain}}}}, action: {action}, {rules}"),
        )
    };

    let answer = why_fails(&spec("DENY", "client"), "client", "plain");
    let expected = "ztunnel at 10.1.0.3:8080 denies it to spiffe://cluster.local/ns/shop/sa/client: the connection is closed by \
                    AuthorizationPolicy shop/plain";
    assert_eq!(answer.reason.as_deref(), Some(expected), "{answer}");
    assert_eq!(
        why_fails(&spec("DENY", "other"), "client", "plain").reason,
        None
    );

    assert_eq!(
        why_fails(&spec("ALLOW", "client"), "client", "plain").reason,
        None
    );
    let answer = why_fails(&spec("ALLOW", "other"), "client", "plain");
    assert!(
        answer
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("allows it to others")),
        "{answer}"
    );

    assert!(
        answer
            .advice
            .as_deref()
            .is_some_and(|advice| advice.contains("AuthorizationPolicy shop/plain")),
        "{answer}"
    );

    // A rule with conditions on requests, which ztunnel cannot evaluate, never allows.
    let paths = "selector: {matchLabels: {app: plain}}, action: ALLOW, rules: [{to: [{operation: {paths: [/]}}]}]";
    let answer = why_fails(&policy("plain", paths), "client", "plain");
    assert!(
        answer
            .advice
            .as_deref()
            .is_some_and(|advice| advice.contains("about requests")),
        "{answer}"
    );
}

#[test]
fn behind_a_waypoint_the_client_is_the_waypoint() {
    let of_web = |account: &str| {
        let rules = of_account(account);
        policy(
            "web-pods",
            &format!("selector: {{matchLabels: {{app: web}}}}, action: ALLOW, {rules}"),
        )
    };
    let answer = why_fails(&of_web("client"), "client", "web");
    assert!(
        answer
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("not to spiffe://cluster.local/ns/shop/sa/way")),
        "{answer}"
    );
    assert_eq!(why_fails(&of_web("way"), "client", "web").reason, None);
}

#[test]
fn plain_text_is_rejected_where_mutual_tls_is_required() {
    // Ambient pods communicate through tunnels.
    assert_eq!(why_fails(STRICT, "client", "plain").reason, None);
    // Sidecars also use tunnels, but not to pods that do not support them.
    assert_eq!(why_fails(STRICT, "beside", "plain").reason, None);
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: beside, namespace: shop}\n\
                   spec: {clusterIP: 10.96.0.3, clusterIPs: [10.96.0.3], selector: {app: beside}, ports: [{name: http, port: 80, targetPort: 8080}]}\n---\n\
                   apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                   metadata: {name: beside-1, namespace: shop, labels: {kubernetes.io/service-name: beside}}\naddressType: IPv4\n\
                   endpoints: [{addresses: [10.1.0.5], conditions: {ready: true}, targetRef: {kind: Pod, name: beside, namespace: shop}}]\n\
                   ports: [{name: http, port: 8080, protocol: TCP}]\n---\n";
    assert_eq!(why_fails(service, "client", "beside").reason, None);
    let answer = why_fails(&format!("{service}{STRICT}"), "client", "beside");
    let expected =
        "beside.shop accepts only mutual TLS at 10.1.0.5:8080, and the client sends plain text";
    assert_eq!(answer.reason.as_deref(), Some(expected), "{answer}");
}

#[test]
fn a_sidecar_that_accepts_hbone_is_expected_like_any_other() {
    let labelled = NODE.replacen(
        "labels: {app: near}, annotations: {ambient.istio.io/redirection: enabled}",
        "labels: {app: near, networking.istio.io/tunnel: http}",
        1,
    );
    let is_expected = |more: &str| {
        let clients = implied(&snapshot(more));
        clients
            .iter()
            .any(|client| client.pod() == ("shop", "near"))
    };
    assert!(is_expected(&labelled));
    assert!(!is_expected(NODE), "ztunnel captures it");
}

#[test]
fn pods_outside_of_the_mesh_send_plain_text_past_waypoints() {
    let from_outside = |more: &str, host: &str| {
        follow(more, "beside", host, |origin, request| match origin {
            Origin::Proxy(place) => (Origin::Outside(place.proxy), request),
            Origin::Ambient(_) | Origin::Outside(_) => panic!("{origin:?} has no proxy"),
        })
    };

    let answer = from_outside("", "web");
    assert_eq!(answer.reason, None, "{answer}");
    assert!(!answer.to_string().contains("waypoint"), "{answer}");
    let reason = from_outside(STRICT, "plain").reason.unwrap_or_default();
    assert!(
        reason.contains("denies it to a client without identity (plain text)"),
        "{reason}"
    );
}

#[test]
fn a_request_is_followed_to_all_destinations_on_request() {
    let denies_one = policy(
        "two",
        "selector: {matchLabels: {version: one}}, action: DENY, rules: [{}]",
    );
    let answer = follow(&denies_one, "client", "web", |origin, request| {
        let request = Request {
            to_all: true,
            ..request
        };
        (origin, request)
    });
    let reason = answer.reason.clone().unwrap_or_default();
    assert!(reason.contains("10.1.0.1:8080"), "{answer}");
    let refused: Vec<&str> = answer.refused_at.iter().map(String::as_str).collect();
    assert!(refused.contains(&"10.1.0.1:8080"), "{refused:?}");
    assert!(!refused.contains(&"10.1.0.2:8080"), "{refused:?}");
    assert!(
        answer.destinations.contains_key("10.1.0.2:8080"),
        "{answer}"
    );
}

#[test]
fn policies_of_the_ztunnel_on_the_node_are_evaluated() {
    let answer = why_fails(NODE, "client", "near");
    assert_eq!(answer.reason, None, "{answer}");
    assert_eq!(
        answer.unknown,
        Vec::<String>::new(),
        "the answer names its ztunnel: {answer}"
    );
    let denies = policy(
        "near",
        "selector: {matchLabels: {app: near}}, action: DENY, rules: [{to: [{operation: {ports: ['8080']}}]}]",
    );
    let answer = why_fails(&format!("{NODE}{denies}"), "client", "near");

    assert!(
        answer
            .reason
            .as_deref()
            .is_some_and(|reason| reason.contains("by AuthorizationPolicy shop/near")),
        "{answer}"
    );
}

#[test]
fn a_plan_reports_clients_that_ztunnel_denies() {
    let context = snapshot(NODE);
    let planned = |yaml: &str| -> Vec<String> {
        let plan = plan_of(
            &mut Mirror::of(&context, implied(&context)),
            changes(yaml).pop().unwrap(),
        );
        plan.traffic
            .iter()
            .map(|one| format!("{}: {} → {}", one.request, one.before, one.after))
            .collect()
    };

    let lines = planned(STRICT);
    let expected = "TCP shop/near:8080 in plain text at ztunnel: allowed → closed by a PeerAuthentication that is STRICT";
    assert!(lines.iter().any(|line| line == expected), "{lines:#?}");
    assert!(
        !lines
            .iter()
            .any(|line| line.starts_with("TCP shop/near:8080 at ztunnel: allowed → closed")),
        "{lines:#?}"
    );

    let lines = planned(&policy(
        "near",
        "selector: {matchLabels: {app: near}}, action: ALLOW",
    ));
    assert!(
        lines.contains(
            &"TCP shop/near:8080 at ztunnel: allowed → closed: not allowed by AuthorizationPolicy shop/near".to_owned()
        ),
        "{lines:#?}"
    );
}
