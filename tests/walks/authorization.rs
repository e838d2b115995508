//! AuthorizationPolicies behave as Istio's documentation says: an evaluator written from the
//! documentation alone and the filters that proxies receive agree on random requests.

use std::net::IpAddr;

use navarch_proto::envoy::config::rbac::v3::Rbac;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::mesh::Mesh;
use crate::rbac::{self, Request, TestRequest};

/// The trust domains of the mesh, which are equivalent.
const OWN_DOMAINS: [&str; 2] = ["cluster.local", "old.local"];

#[derive(Clone, Debug)]
struct Policy {
    namespace: &'static str,
    /// The label `app` of the selected workloads; empty selects all.
    app: &'static str,
    tried: bool,
    action: &'static str,
    rules: Vec<Value>,
}

// Part one: the documented behaviour.

/// Exact, `prefix*`, `*suffix`, and `*` for anything but the empty text.
fn fits(pattern: &str, text: &str) -> bool {
    if pattern == "*" {
        return !text.is_empty();
    }
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => text.ends_with(end),
        (_, Some(start)) => text.starts_with(start),
        _ => pattern == text,
    }
}

/// Whether a path matches a string or a template.
fn path_fits(pattern: &str, path: &str) -> bool {
    if !pattern.contains("{*") {
        return fits(pattern, path);
    }
    let mut segments = path.split('/');
    let mut wanted = pattern.split('/');
    loop {
        match (wanted.next(), segments.next()) {
            (None, None) => return true,
            (Some("{**}"), Some(_)) => return true,
            (Some("{*}"), Some(segment)) if !segment.is_empty() => {}
            (Some(wanted), Some(segment)) if wanted == segment => {}
            _ => return false,
        }
    }
}

fn ip_fits(block: &str, address: IpAddr) -> bool {
    let Some((base, length)) = block.split_once('/') else {
        return block.parse::<IpAddr>().unwrap() == address;
    };
    let length: usize = length.parse().unwrap();
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    };
    let base = bits(base.parse().unwrap());
    let address = bits(address);
    base.len() == address.len() && base[..length] == address[..length]
}

/// The trust domain, namespace and service account of an identity.
fn parts(identity: &str) -> [&str; 3] {
    let mut parts = identity.strip_prefix("spiffe://").unwrap().split('/');
    let (domain, _, namespace, _) = (
        parts.next().unwrap(),
        parts.next(),
        parts.next().unwrap(),
        parts.next(),
    );
    [domain, namespace, parts.next().unwrap()]
}

/// Whether a principal matches; the mesh's trust domains are equivalent in complete principals.
fn principal_fits(pattern: &str, identity: &str) -> bool {
    let [domain, namespace, account] = parts(identity);
    let mut names = vec![format!("{domain}/ns/{namespace}/sa/{account}")];
    let is_whole = pattern.split('/').count() == 5;
    if is_whole && OWN_DOMAINS.contains(&domain) {
        names = OWN_DOMAINS
            .map(|domain| format!("{domain}/ns/{namespace}/sa/{account}"))
            .to_vec();
    }
    names.iter().any(|name| fits(pattern, name))
}

/// A request or connection to evaluate.
struct Matter<'a> {
    policy: &'a Policy,
    test_request: &'a TestRequest,
}

impl Matter<'_> {
    /// Whether a value of an attribute matches; `None` if a connection has no such attribute.
    fn one(&self, attribute: &str, value: &str) -> Option<bool> {
        let test_request = self.test_request;
        let peer = |fits: &dyn Fn([&str; 3]) -> bool| {
            test_request
                .identity
                .as_deref()
                .is_some_and(|peer| fits(parts(peer)))
        };

        let http = || test_request.http.as_ref();
        let claim = |request: &Request, name: &str| {
            let claim = request
                .claims
                .as_ref()
                .and_then(|claims| claims.get(name))
                .cloned()
                .unwrap_or_default();
            let list = claim.as_array().cloned().unwrap_or_else(|| vec![claim]);
            list.iter()
                .any(|text| text.as_str().is_some_and(|text| fits(value, text)))
        };

        Some(match attribute {
            "principals" | "source.principal" => test_request
                .identity
                .as_deref()
                .is_some_and(|peer| principal_fits(value, peer)),
            "namespaces" | "source.namespace" => peer(&|[_, namespace, _]| fits(value, namespace)),
            "serviceAccounts" | "source.serviceAccount" => peer(&|[_, namespace, account]| {
                let (wanted, name) = value
                    .split_once('/')
                    .unwrap_or((self.policy.namespace, value));
                (wanted, name) == (namespace, account)
            }),
            "trustDomains" | "source.trustDomain" => peer(&|[domain, ..]| {
                fits(value, domain) || OWN_DOMAINS.contains(&value) && OWN_DOMAINS.contains(&domain)
            }),
            "ipBlocks" | "source.ip" => ip_fits(value, test_request.source),
            "remoteIpBlocks" | "remote.ip" => ip_fits(value, test_request.remote),
            "ports" | "destination.port" => test_request.port.to_string() == value,
            "destination.ip" => ip_fits(value, test_request.destination),
            "connection.sni" => fits(value, &test_request.sni),
            "requestPrincipals" | "request.auth.principal" => {
                let claims = http()?.claims.clone().unwrap_or_default();
                let issuer = claims["iss"].as_str();
                let subject = claims["sub"].as_str();
                let whole = issuer
                    .zip(subject)
                    .map(|(issuer, subject)| format!("{issuer}/{subject}"));
                whole.is_some_and(|whole| fits(value, &whole))
            }
            "hosts" => fits(&value.to_lowercase(), &http()?.host.to_lowercase()),
            "methods" => fits(value, &http()?.method),
            "paths" => path_fits(value, &http()?.path),
            // For headers `*` means that the header exists: istiod's filters also accept an empty
            // one.
            "request.headers[x-tier]" => http()?
                .headers
                .get("x-tier")
                .is_some_and(|header| value == "*" || fits(value, header)),
            "request.auth.claims[group]" => claim(http()?, "group"),
            "request.auth.audiences" => claim(http()?, "aud"),
            "request.auth.presenter" => claim(http()?, "azp"),
            other => panic!("{other} is not supported"),
        })
    }

    /// Whether one of the values matches, or none of the forbidden ones. On a connection,
    /// conditions on requests never match in ALLOW policies, and always match in DENY policies.
    fn clause(
        &self,
        attribute: &str,
        values: &Value,
        wanted: bool,
    ) -> Result<bool, NotOfConnections> {
        let mut found = false;
        for value in values.as_array().into_iter().flatten() {
            match self.one(attribute, value.as_str().unwrap()) {
                Some(fits) => found |= fits,
                None if self.policy.action == "ALLOW" => return Err(NotOfConnections),
                None => return Ok(true),
            }
        }
        Ok(found == wanted)
    }

    /// Whether all fields of a source or an operation match.
    fn fields(&self, fields: &Value) -> Result<bool, NotOfConnections> {
        let mut all = true;
        for (field, values) in fields.as_object().unwrap() {
            let (attribute, wanted) = match field.strip_prefix("not") {
                Some(rest) => (format!("{}{}", rest[..1].to_lowercase(), &rest[1..]), false),
                None => (field.clone(), true),
            };
            all &= self.clause(&attribute, values, wanted)?;
        }
        Ok(all)
    }

    /// Whether a rule matches.
    fn rule(&self, rule: &Value) -> Result<bool, NotOfConnections> {
        let mut all = true;

        for (list, field) in [("from", "source"), ("to", "operation")] {
            if let Some(items) = rule[list].as_array() {
                let mut any = false;
                for item in items {
                    any |= self.fields(&item[field])?;
                }
                all &= any;
            }
        }

        for when in rule["when"].as_array().into_iter().flatten() {
            let key = when["key"].as_str().unwrap();
            for (field, wanted) in [("values", true), ("notValues", false)] {
                if when[field].is_array() {
                    all &= self.clause(key, &when[field], wanted)?;
                }
            }
        }

        Ok(all)
    }
}

/// A rule of an ALLOW policy has a condition on requests, and this is a connection.
struct NotOfConnections;

/// Whether policies allow a request to the workload `web` of `shop`.
fn documented_verdict(policies: &[Policy], test_request: &TestRequest) -> bool {
    let holds = |policy: &&Policy| {
        !policy.tried
            && matches!(policy.namespace, "shop" | "istio-system")
            && matches!(policy.app, "" | "web")
    };

    let of = |action: &'static str| {
        policies
            .iter()
            .filter(holds)
            .filter(move |policy| policy.action == action)
    };

    let matches = |policy: &Policy| {
        let matter = Matter {
            policy,
            test_request,
        };
        policy
            .rules
            .iter()
            .any(|rule| matter.rule(rule).unwrap_or(false))
    };

    !of("DENY").any(matches) && (of("ALLOW").next().is_none() || of("ALLOW").any(matches))
}

// Part two: random policies and requests.

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
        .prop_map(|(namespace, app, tried, action, rules)| {
            // Validation rejects a policy without rules whose action is not ALLOW.
            let rules = if rules.is_empty() && action != "ALLOW" {
                vec![json!({})]
            } else {
                rules
            };

            Policy {
                namespace,
                app,
                tried,
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
                "annotations": { "istio.io/dry-run": policy.tried.to_string() },
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
