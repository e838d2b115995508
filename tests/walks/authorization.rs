//! AuthorizationPolicies behave as Istio's documentation says: an evaluator written from the
//! documentation alone and the filters that proxies receive agree on random requests.

use std::net::IpAddr;

use navarch_proto::envoy::config::rbac::v3::Rbac;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::documented_policies::{Policy, documented_verdict};
use crate::mesh::Mesh;
use crate::rbac::{self, Request, TestRequest};

/// Values by attribute; some of them match some of the random requests.
const VALUES: [(&str, &[&str]); 20] = [
    (
        "principals",
        &[
            "*",
            "cluster.local/ns/shop/sa/web",
            "old.local/ns/bank/sa/teller",
            "*/sa/web",
            "cluster.local/ns/shop/*",
            "*/ns/shop/sa/web.x",
            "far.away/ns/shop/sa/web",
        ],
    ),
    ("namespaces", &["shop", "sh*", "*op", "*", "shop.2", "bank"]),
    (
        "serviceAccounts",
        &["web", "shop/web.x", "bank/teller", "shop/webyx"],
    ),
    (
        "trustDomains",
        &["cluster.local", "old.local", "*.away", "far*", "*"],
    ),
    (
        "ipBlocks",
        &[
            "10.1.2.3",
            "10.1.0.0/16",
            "fd00::/8",
            "0.0.0.0/0",
            "192.168.0.128/25",
        ],
    ),
    ("remoteIpBlocks", &["10.1.2.3", "192.168.0.0/16", "::/0"]),
    (
        "requestPrincipals",
        &[
            "*",
            "iss.example/ada",
            "iss.example/*",
            "*/eve",
            "*.example/ada",
            "iss.example/a*",
            "*da",
        ],
    ),
    (
        "hosts",
        &[
            "shop.example",
            "Shop.*",
            "*.EXAMPLE",
            "*",
            "shop.example:80",
        ],
    ),
    ("methods", &["GET", "*", "PO*", "*ST"]),
    (
        "paths",
        &[
            "/", "/a", "/a*", "*/c", "*", "/a/{*}/c", "/a/{**}", "/{*}/b", "/a.c",
        ],
    ),
    ("ports", &["8080", "8081"]),
    ("source.ip", &["10.1.0.0/16", "fd00::1"]),
    ("source.namespace", &["bank", "s*"]),
    (
        "source.principal",
        &["cluster.local/ns/bank/sa/teller", "*web"],
    ),
    ("request.headers[x-tier]", &["gold", "g*", "*", "*er"]),
    ("request.auth.claims[group]", &["readers", "w*", "*"]),
    ("request.auth.audiences", &["shop", "*"]),
    ("request.auth.presenter", &["app-*"]),
    ("destination.ip", &["10.9.9.9", "10.0.0.0/24"]),
    ("connection.sni", &["*.shop", "web.shop", "*"]),
];

/// Random values of an attribute.
fn values(attribute: &'static str) -> impl Strategy<Value = Vec<&'static str>> {
    let all = VALUES
        .iter()
        .find(|(name, _)| *name == attribute)
        .unwrap()
        .1;
    subsequence(all, 1..=all.len().min(3))
}

/// A random source or operation: some of its fields, positive or negated.
fn fields(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let field = |name: &'static str| {
        (Just(name), any::<bool>(), values(name)).prop_map(|(name, wanted, values)| {
            let field = if wanted {
                name.to_owned()
            } else {
                format!("not{}{}", name[..1].to_uppercase(), &name[1..])
            };
            (field, json!(values))
        })
    };
    subsequence(names, 1..=2.min(names.len()))
        .prop_flat_map(move |names| names.into_iter().map(field).collect::<Vec<_>>())
        .prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

fn source() -> impl Strategy<Value = Value> {
    prop_oneof![
        fields(&[
            "principals",
            "namespaces",
            "trustDomains",
            "requestPrincipals",
            "ipBlocks",
            "remoteIpBlocks"
        ]),
        fields(&["serviceAccounts", "ipBlocks"]),
    ]
}

fn condition() -> impl Strategy<Value = Value> {
    let keys: Vec<&str> = VALUES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| name.contains('.'))
        .collect();
    select(keys)
        .prop_flat_map(|key| (Just(key), values(key), of(values(key)), any::<bool>()))
        .prop_map(|(key, values, others, wanted)| {
            let mut when = json!({ "key": key });
            when[if wanted { "values" } else { "notValues" }] = json!(values);
            if let (Some(others), true) = (others, wanted) {
                when["notValues"] = json!(others);
            }
            when
        })
}

fn rule() -> impl Strategy<Value = Value> {
    let operation = fields(&["hosts", "methods", "paths", "ports"]);
    (
        vec(source(), 0..3),
        vec(operation, 0..3),
        vec(condition(), 0..2),
    )
        .prop_map(|(from, to, when)| {
            let mut rule = json!({});
            let wrap = |field: &str, items: Vec<Value>| {
                items
                    .into_iter()
                    .map(|item| json!({ field: item }))
                    .collect::<Vec<_>>()
            };

            for (list, items) in [
                ("from", wrap("source", from)),
                ("to", wrap("operation", to)),
                ("when", when),
            ] {
                if !items.is_empty() {
                    rule[list] = json!(items);
                }
            }

            rule
        })
}

fn policy() -> impl Strategy<Value = Policy> {
    let namespace = prop_oneof![4 => Just("shop"), 1 => Just("istio-system"), 1 => Just("bank")];
    let app = prop_oneof![3 => Just(""), 2 => Just("web"), 1 => Just("other")];
    let action = prop_oneof![4 => Just("ALLOW"), 4 => Just("DENY"), 1 => Just("AUDIT")];

    (
        namespace,
        app,
        prop::bool::weighted(0.1),
        action,
        vec(rule(), 0..3),
    )
        .prop_map(|(namespace, app, is_dry_run, action, rules)| {
            // Validation rejects a policy without rules whose action is not ALLOW.
            let rules = if rules.is_empty() && action != "ALLOW" {
                vec![json!({})]
            } else {
                rules
            };

            Policy {
                namespace,
                app,
                is_dry_run,
                action,
                rules,
            }
        })
}

/// A random request or connection.
fn any_request() -> impl Strategy<Value = TestRequest> {
    let identity = of(select(vec![
        "spiffe://cluster.local/ns/shop/sa/web",
        "spiffe://cluster.local/ns/shop/sa/web.x",
        "spiffe://cluster.local/ns/shop/sa/webyx",
        "spiffe://cluster.local/ns/shop-2/sa/web",
        "spiffe://cluster.local/ns/bank/sa/teller",
        "spiffe://old.local/ns/shop/sa/web",
        "spiffe://far.away/ns/shop/sa/web",
        "spiffe://far.away/ns/bank/sa/teller",
    ]));

    let ip = || {
        select(vec![
            "10.1.2.3",
            "10.1.9.9",
            "192.168.0.1",
            "192.168.0.200",
            "fd00::1",
        ])
    };

    let sni = select(vec!["", "web.shop", "other.shop", "outside"]);
    (identity, ip(), ip(), sni, request()).prop_map(|(identity, source, remote, sni, http)| {
        TestRequest {
            identity: identity.map(str::to_owned),
            source: source.parse().unwrap(),
            remote: remote.parse().unwrap(),
            sni: sni.to_owned(),
            http: Some(http),
            ..bytes_of(0)
        }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let host = select(vec![
        "shop.example",
        "SHOP.example",
        "shop.example:80",
        "shop",
        "other.example",
    ]);

    let path = select(vec![
        "/", "/a", "/ab", "/a/b", "/a/b/c", "/a/b/d/c", "/x/b", "/c", "/abc", "/a/",
    ]);
    let claims = of((
        select(vec!["iss.example", "other.example"]),
        select(vec!["ada", "eve"]),
        0..4_usize,
    ));

    let tier = of(select(vec!["gold", "silver", ""]));
    (select(vec!["GET", "POST", "PUT"]), host, path, tier, claims).prop_map(|(method, host, path, tier, claims)| {
        let groups = [json!("readers"), json!(["writers", "others"]), json!(7), json!([])];
        Request {
            method: method.to_owned(),
            host: host.to_owned(),
            path: path.to_owned(),
            headers: tier.map(|tier| ("x-tier".to_owned(), tier.to_owned())).into_iter().collect(),
            claims: claims.map(|(iss, sub, group)| {
                json!({ "iss": iss, "sub": sub, "group": groups[group], "aud": ["shop"], "azp": format!("app-{group}") })
            }),
        }
    })
}

/// The workload `web` with an HTTP port and a TCP port.
pub(crate) fn web() -> Mesh {
    Mesh::default().config("trustDomainAliases: [old.local]").with(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web-0, namespace: shop, labels: {app: web}}\n\
         spec: {nodeName: n}\nstatus: {phase: Running, podIP: 10.9.9.9, podIPs: [{ip: 10.9.9.9}]}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
         spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {app: web}, ports: [\
         {name: http, port: 80, targetPort: 8080}, {name: tcp, port: 81, targetPort: 8081}]}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\n\
         endpoints: [{addresses: [10.9.9.9], conditions: {ready: true}, targetRef: {kind: Pod, name: web-0, namespace: shop}}]\n\
         ports: [{name: http, port: 8080}, {name: tcp, port: 8081}]",
    )
}

/// The filters of all chains of a port of `web`, and whether they are HTTP filters.
pub(crate) fn chains_of_web(mesh: &Mesh, port: u16) -> Vec<(Vec<Rbac>, bool)> {
    let resources = mesh.sidecar("shop", "web");
    let inbound = resources
        .listeners
        .iter()
        .find(|listener| listener.name == "virtualInbound")
        .unwrap();
    let chains: Vec<_> = rbac::chains_of_port(inbound, u32::from(port))
        .into_iter()
        .map(rbac::of_chain)
        .collect();
    assert!(!chains.is_empty(), "port {port} has chains");
    chains
}

/// A connection of an unauthenticated client to `web`.
pub(crate) fn bytes_of(port: u16) -> TestRequest {
    TestRequest {
        identity: None,
        source: IpAddr::from([10, 1, 2, 3]),
        remote: IpAddr::from([10, 1, 2, 3]),
        destination: IpAddr::from([10, 9, 9, 9]),
        port,
        sni: String::new(),
        http: None,
    }
}

/// The workload with policies.
fn mesh(policies: &[Policy]) -> Mesh {
    let mut mesh = web();
    for (at, policy) in policies.iter().enumerate() {
        let mut spec = json!({ "action": policy.action, "rules": policy.rules });
        if !policy.app.is_empty() {
            spec["selector"] = json!({ "matchLabels": { "app": policy.app } });
        }
        let object = json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": {
                "name": format!("p{at}"), "namespace": policy.namespace,
                "annotations": { "istio.io/dry-run": policy.is_dry_run.to_string() },
            },
            "spec": spec,
        });
        mesh = mesh.with(&object.to_string());
    }
    mesh
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn authorization_policies_behave_as_documented(
        policies in vec(policy(), 0..4),
        all in vec(any_request(), 60),
    ) {
        let mesh = mesh(&policies);
        for (port, is_http) in [(8080_u16, true), (8081, false)] {
            for (filters, http) in chains_of_web(&mesh, port) {
                prop_assert_eq!(http, is_http, "port {}", port);
                for test_request in &all {
                    let http = test_request.http.clone().filter(|_| is_http);
                    let test_request = TestRequest { port, http, ..test_request.clone() };
                    let meant = documented_verdict(&policies, &test_request);
                    let done = rbac::lets_pass(&filters, &test_request);
                    prop_assert!(meant == done, "meant {meant}, done {done}: {test_request:?}\n{filters:#?}");
                }
            }
        }
    }
}
