//! The generated RBAC filters are equivalent to the policies: an evaluator of policies and one of
//! RBAC agree on random requests.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "Envoy has more values than are generated here"
)]

use std::net::Ipv4Addr;

use navarch_proto::envoy::config::rbac::v3::permission::Rule;
use navarch_proto::envoy::config::rbac::v3::principal::Identifier;
use navarch_proto::envoy::config::route::v3::HeaderMatcher;
use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{StringMatcher, path_matcher};
use proptest::prelude::*;

use super::*;
use navarch_api::istio::{
    AuthorizationFrom, AuthorizationOperation, AuthorizationRule, AuthorizationSource,
    AuthorizationTo,
};
use navarch_api::mesh::MeshConfig;
use navarch_api::object::ObjectMeta;

/// A request, or a TCP connection without HTTP properties.
#[derive(Clone, Debug)]
struct TestRequest {
    /// Namespace and service account of a peer with mutual TLS.
    peer: Option<(&'static str, &'static str)>,
    /// The source address.
    address: Ipv4Addr,
    /// The destination port.
    port: u16,
    method: &'static str,
    path: &'static str,
    host: &'static str,
}

const NAMESPACES: [&str; 3] = ["shop", "bank", "shop-old"];
const ACCOUNTS: [&str; 3] = ["web", "we.b", "web-2"];
const PATHS: [&str; 5] = ["/", "/admin", "/admin/x", "/public/admin", "/Admin"];
const METHODS: [&str; 3] = ["GET", "POST", "DELETE"];
const HOSTS: [&str; 4] = [
    "shop.example",
    "SHOP.example",
    "shop.example:80",
    "bank.example",
];
const PORTS: [u16; 2] = [80, 443];
const ADDRESSES: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 1, 1),
    Ipv4Addr::new(192, 0, 2, 1),
];

/// Some of these texts, usually none.
fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        3 => Just(Vec::new()),
        2 => proptest::sample::subsequence(of, 1..=of.len().min(2))
            .prop_map(|picked| picked.into_iter().map(str::to_owned).collect::<Vec<String>>()),
    ]
}

fn source() -> impl Strategy<Value = AuthorizationSource> {
    let principals = &[
        "*",
        "cluster.local/ns/shop/sa/web",
        "*/we.b",
        "cluster.local/ns/bank/*",
        "*",
    ];

    let namespaces = &["shop", "bank", "shop*", "*old"];
    let accounts = &["web", "bank/we.b", "shop/web-2"];
    let blocks = &["10.0.0.0/24", "192.0.2.1", "10.0.0.0/8"];
    (
        some(principals),
        some(namespaces),
        some(namespaces),
        some(accounts),
        some(blocks),
        some(blocks),
    )
        .prop_map(
            |(
                principals,
                namespaces,
                not_namespaces,
                service_accounts,
                ip_blocks,
                not_ip_blocks,
            )| AuthorizationSource {
                principals,
                namespaces,
                not_namespaces,
                service_accounts,
                ip_blocks,
                not_ip_blocks,
                ..AuthorizationSource::default()
            },
        )
}

fn operation() -> impl Strategy<Value = AuthorizationOperation> {
    let paths = &["/admin", "/admin*", "*/admin", "*"];
    let hosts = &["shop.example", "*.example", "shop.*", "*"];
    (
        some(paths),
        some(paths),
        some(&["GET", "POST", "*"]),
        some(hosts),
        some(hosts),
        some(&["80", "443"]),
    )
        .prop_map(|(paths, not_paths, methods, hosts, not_hosts, ports)| {
            AuthorizationOperation {
                paths,
                not_paths,
                methods,
                hosts,
                not_hosts,
                ports,
                ..AuthorizationOperation::default()
            }
        })
}

fn policy() -> impl Strategy<Value = Object<AuthorizationPolicy>> {
    let from = prop::collection::vec(
        source().prop_map(|source| AuthorizationFrom {
            source: Some(source),
        }),
        0..3,
    );

    let to = prop::collection::vec(
        operation().prop_map(|operation| AuthorizationTo {
            operation: Some(operation),
        }),
        0..3,
    );

    let rule = (from, to).prop_map(|(from, to)| AuthorizationRule {
        from,
        to,
        when: Vec::new(),
    });
    let action = prop_oneof![
        Just(AuthorizationAction::Allow),
        Just(AuthorizationAction::Deny)
    ];

    (prop::collection::vec(rule, 0..3), action, "[a-z]{8}").prop_map(|(rules, action, name)| {
        Object {
            meta: ObjectMeta {
                key: navarch_api::object::NamespacedName::new("shop", &name),
                ..ObjectMeta::default()
            },
            spec: AuthorizationPolicy {
                rules,
                action,
                ..AuthorizationPolicy::default()
            },
        }
    })
}

fn test_request() -> impl Strategy<Value = TestRequest> {
    let pick = proptest::sample::select::<&'static str>;
    let peer = prop::option::of((pick(&NAMESPACES[..]), pick(&ACCOUNTS[..])));
    let numbers = (
        proptest::sample::select(&ADDRESSES[..]),
        proptest::sample::select(&PORTS[..]),
    );

    (
        peer,
        numbers,
        pick(&METHODS[..]),
        pick(&PATHS[..]),
        pick(&HOSTS[..]),
    )
        .prop_map(|(peer, (address, port), method, path, host)| TestRequest {
            peer,
            address,
            port,
            method,
            path,
            host,
        })
}

/// Whether a policy's pattern matches a text; the wildcard is at one end.
fn says(pattern: &str, text: &str) -> bool {
    match (
        pattern,
        pattern.strip_prefix('*'),
        pattern.strip_suffix('*'),
    ) {
        ("*", ..) => !text.is_empty(),
        (_, Some(ending), _) => text.ends_with(ending),
        (_, None, Some(beginning)) => text.starts_with(beginning),
        (_, None, None) => pattern == text,
    }
}

/// Whether one of the values matches, if there are any, and none of the excluded ones.
fn holds(values: &[String], not_values: &[String], one: impl Fn(&str) -> bool) -> bool {
    (values.is_empty() || values.iter().any(|value| one(value)))
        && !not_values.iter().any(|value| one(value))
}

impl TestRequest {
    fn is_from(&self, source: &AuthorizationSource) -> bool {
        let peer = self
            .peer
            .map(|(namespace, account)| format!("cluster.local/ns/{namespace}/sa/{account}"));
        let in_block = |block: &str| {
            let (range, bits) = block.split_once('/').unwrap_or((block, "32"));
            let mask = u32::MAX << (32 - bits.parse::<u32>().unwrap());
            range.parse::<Ipv4Addr>().unwrap().to_bits() & mask == self.address.to_bits() & mask
        };

        let in_namespace = |wanted: &str| {
            self.peer
                .is_some_and(|(namespace, _)| says(wanted, namespace))
        };

        holds(&source.principals, &[], |wanted| {
            peer.as_ref().is_some_and(|peer| says(wanted, peer))
        }) && holds(&source.namespaces, &source.not_namespaces, in_namespace)
            && holds(&source.service_accounts, &[], |wanted| {
                let (namespace, account) = wanted.split_once('/').unwrap_or(("shop", wanted));
                self.peer == Some((namespace, account))
            })
            && holds(&source.ip_blocks, &source.not_ip_blocks, in_block)
    }

    fn is_to(&self, operation: &AuthorizationOperation, transport: Transport) -> bool {
        let AuthorizationOperation {
            paths,
            not_paths,
            methods,
            hosts,
            not_hosts,
            ports,
            ..
        } = operation;
        let host = self.host.to_lowercase();
        holds(ports, &[], |port| port == self.port.to_string())
            && (transport == Transport::Tcp
                || (holds(paths, not_paths, |path| says(path, self.path))
                    && holds(methods, &[], |method| says(method, self.method))
                    && holds(hosts, not_hosts, |wanted| {
                        says(&wanted.to_lowercase(), &host)
                    })))
    }

    /// Whether a rule matches. On a TCP connection, HTTP conditions are ignored in DENY rules and
    /// never match in ALLOW rules.
    fn matches(
        &self,
        rule: &AuthorizationRule,
        action: AuthorizationAction,
        transport: Transport,
    ) -> bool {
        let of_http = |operation: &AuthorizationOperation| {
            let AuthorizationOperation {
                paths,
                not_paths,
                methods,
                not_methods,
                hosts,
                not_hosts,
                ..
            } = operation;
            [paths, not_paths, methods, not_methods, hosts, not_hosts]
                .iter()
                .any(|list| !list.is_empty())
        };

        let operations = || rule.to.iter().filter_map(|to| to.operation.as_ref());
        let sayable = transport == Transport::Http
            || action == AuthorizationAction::Deny
            || !operations().any(of_http);
        sayable
            && (rule.from.is_empty()
                || rule
                    .from
                    .iter()
                    .any(|from| self.is_from(from.source.as_ref().unwrap())))
            && (rule.to.is_empty()
                || operations().any(|operation| self.is_to(operation, transport)))
    }

    fn is_let_in(&self, policies: &[Object<AuthorizationPolicy>], transport: Transport) -> bool {
        let matched = |action: AuthorizationAction| {
            let mut of = policies
                .iter()
                .filter(move |policy| policy.spec.action == action);
            of.any(|policy| {
                policy
                    .spec
                    .rules
                    .iter()
                    .any(|rule| self.matches(rule, action, transport))
            })
        };
        let has_allow = policies
            .iter()
            .any(|policy| policy.spec.action == AuthorizationAction::Allow);
        !matched(AuthorizationAction::Deny) && (!has_allow || matched(AuthorizationAction::Allow))
    }

    /// Whether RBAC allows it.
    fn passes(&self, rbac: &Rbac) -> bool {
        let matched = rbac.policies.values().any(|policy| {
            policy
                .permissions
                .iter()
                .any(|permission| self.permits(permission))
                && policy
                    .principals
                    .iter()
                    .any(|principal| self.identifies(principal))
        });
        match rbac.action() {
            Action::Allow => matched,
            Action::Deny => !matched,
            Action::Log => true,
        }
    }

    fn permits(&self, permission: &Permission) -> bool {
        match permission.rule.as_ref().unwrap() {
            Rule::AndRules(set) => set.rules.iter().all(|rule| self.permits(rule)),
            Rule::OrRules(set) => set.rules.iter().any(|rule| self.permits(rule)),
            Rule::NotRule(rule) => !self.permits(rule),
            Rule::Any(any) => *any,
            Rule::DestinationPort(port) => *port == u32::from(self.port),
            Rule::Header(header) if header.name == ":method" => header_says(header, self.method),
            Rule::Header(header) => header_says(header, self.host),
            Rule::UrlPath(path) => match path.rule.as_ref().unwrap() {
                path_matcher::Rule::Path(text) => text_says(text, self.path),
            },
            other => panic!("{other:?} is not generated here"),
        }
    }

    fn identifies(&self, principal: &Principal) -> bool {
        let id = self.peer.map(|(namespace, account)| {
            format!("spiffe://cluster.local/ns/{namespace}/sa/{account}")
        });

        match principal.identifier.as_ref().unwrap() {
            Identifier::AndIds(set) => set.ids.iter().all(|id| self.identifies(id)),
            Identifier::OrIds(set) => set.ids.iter().any(|id| self.identifies(id)),
            Identifier::NotId(id) => !self.identifies(id),
            Identifier::Any(any) => *any,
            Identifier::Authenticated(peer) => {
                id.is_some_and(|id| text_says(peer.principal_name.as_ref().unwrap(), &id))
            }
            Identifier::DirectRemoteIp(range) => {
                let mask = u32::MAX
                    .checked_shl(32 - range.prefix_len.unwrap())
                    .unwrap_or(0);
                range.address_prefix.parse::<Ipv4Addr>().unwrap().to_bits() & mask
                    == self.address.to_bits() & mask
            }
            other => panic!("{other:?} is not generated here"),
        }
    }
}

/// Whether Envoy's matcher matches a text.
fn text_says(matcher: &StringMatcher, text: &str) -> bool {
    let fold = |text: &str| {
        if matcher.ignore_case {
            text.to_lowercase()
        } else {
            text.to_owned()
        }
    };
    let text = fold(text);
    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::Exact(exact) => fold(exact) == text,
        MatchPattern::Prefix(prefix) => text.starts_with(&fold(prefix)),
        MatchPattern::Suffix(suffix) => text.ends_with(&fold(suffix)),
        MatchPattern::SafeRegex(regex) => regex::Regex::new(&format!("^(?:{})$", regex.regex))
            .unwrap()
            .is_match(&text),
        other => panic!("{other:?} is not generated here"),
    }
}

fn header_says(header: &HeaderMatcher, value: &str) -> bool {
    match header.header_match_specifier.as_ref().unwrap() {
        HeaderMatchSpecifier::PresentMatch(present) => *present,
        HeaderMatchSpecifier::StringMatch(text) => text_says(text, value),
        other => panic!("{other:?} is not generated here"),
    }
}

/// The RBAC filters of both actions, in their order.
fn rbac(policies: &[Object<AuthorizationPolicy>], transport: Transport) -> Vec<Rbac> {
    let domains = TrustDomains::new(&MeshConfig::istio_defaults());
    let all: Vec<&Object<AuthorizationPolicy>> = policies.iter().collect();
    let of = |action: AuthorizationAction| {
        let of: Vec<_> = all
            .iter()
            .copied()
            .filter(|policy| policy.spec.action == action)
            .collect();

        rule_sets(
            &of,
            action,
            MatchContext {
                transport,
                peers: Peers::Tls,
            },
            &domains,
        )
        .enforced
    };

    [AuthorizationAction::Deny, AuthorizationAction::Allow]
        .into_iter()
        .filter_map(of)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn policies_become_envoy_rbac_rules(
        policies in prop::collection::vec(policy(), 0..4),
        requests in prop::collection::vec(test_request(), 16),
    ) {
        for transport in [Transport::Http, Transport::Tcp] {
            let filters = rbac(&policies, transport);
            for request in &requests {
                let passes = filters.iter().all(|rbac| request.passes(rbac));
                prop_assert_eq!(passes, request.is_let_in(&policies, transport), "{:?} over {:?}", request, transport);
            }
        }
    }
}

/// A policy from the YAML of its spec.
fn of_yaml(yaml: &str) -> Object<AuthorizationPolicy> {
    let value = navarch_api::yaml::parse(yaml, navarch_api::yaml::Schema::V1_2).unwrap();
    let spec = navarch_api::typed::Typed::from_proto_json(&value)
        .unwrap()
        .value;
    let namespace = navarch_api::names::Namespace::new("shop");
    Object {
        meta: ObjectMeta {
            key: navarch_api::object::NamespacedName::of(namespace, Arc::from("p")),
            ..ObjectMeta::default()
        },
        spec,
    }
}

/// A connection of a peer.
fn of_peer(namespace: &'static str, account: &'static str) -> TestRequest {
    TestRequest {
        peer: Some((namespace, account)),
        address: ADDRESSES[0],
        port: 80,
        method: "GET",
        path: "/",
        host: "shop.example",
    }
}

/// CVE-2020-16844: a principal suffix in a DENY rule did not match TCP connections.
#[test]
fn cve_2020_16844_suffixes_of_principals_are_denied_over_tcp() {
    let policies = [of_yaml(
        "{action: DENY, rules: [{from: [{source: {principals: ['*/sa/web']}}]}]}",
    )];
    let filters = rbac(&policies, Transport::Tcp);
    assert!(
        !filters
            .iter()
            .all(|rbac| of_peer("bank", "web").passes(rbac))
    );
    assert!(
        filters
            .iter()
            .all(|rbac| of_peer("bank", "web-2").passes(rbac))
    );
}

/// CVE-2026-39350: a dot in the name of a service account matched any character.
#[test]
fn cve_2026_39350_dots_in_service_accounts_are_dots() {
    let policies = [of_yaml(
        "{rules: [{from: [{source: {serviceAccounts: ['bank/we.b']}}]}]}",
    )];
    let filters = rbac(&policies, Transport::Tcp);
    assert!(
        filters
            .iter()
            .all(|rbac| of_peer("bank", "we.b").passes(rbac))
    );
    assert!(
        !filters
            .iter()
            .all(|rbac| of_peer("bank", "wexb").passes(rbac))
    );
}

/// CVE-2021-39155: hosts were compared case-sensitively.
#[test]
fn cve_2021_39155_hosts_are_the_same_in_any_case() {
    let policies = [of_yaml(
        "{action: DENY, rules: [{to: [{operation: {hosts: ['Shop.example', 'shop.example:*']}}]}]}",
    )];
    let filters = rbac(&policies, Transport::Http);
    for host in ["shop.example", "SHOP.EXAMPLE", "shop.example:8080"] {
        assert!(
            !filters.iter().all(|rbac| TestRequest {
                host,
                ..of_peer("shop", "web")
            }
            .passes(rbac)),
            "{host}"
        );
    }
}

/// Patterns of users are escaped in regular expressions: no policy can make Envoy compile an
/// exploding one.
#[test]
fn user_supplied_values_are_escaped_in_expressions() {
    let bomb = "(((((a{1,100}){1,100}){1,100}){1,100}){1,100})";
    let yaml = format!(
        "{{action: DENY, rules: [{{from: [{{source: {{principals: ['*{bomb}'], namespaces: ['{bomb}']}}}}]}}]}}"
    );
    let text = format!("{:?}", rbac(&[of_yaml(&yaml)], Transport::Tcp));
    assert!(!text.contains("a{1,100}"), "{text}");
}

#[test]
fn inexpressible_conditions_narrow_allow_and_widen_deny() {
    let when = "when: [{key: no.such.attribute, values: [x]}]";
    let allow = of_yaml(&format!("{{rules: [{{{when}}}]}}"));
    let deny = of_yaml(&format!("{{action: DENY, rules: [{{{when}}}]}}"));
    assert!(
        !rbac(&[allow], Transport::Http)
            .iter()
            .all(|rbac| of_peer("shop", "web").passes(rbac))
    );
    assert!(
        !rbac(&[deny], Transport::Http)
            .iter()
            .all(|rbac| of_peer("shop", "web").passes(rbac))
    );
}
