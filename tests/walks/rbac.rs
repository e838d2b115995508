//! Envoy's RBAC filters, evaluated on test requests as Envoy's documentation describes.

#![expect(
    deprecated,
    reason = "metadata matchers have the deprecated form, which every Envoy supports"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use navarch_proto::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener, filter};
use navarch_proto::envoy::config::rbac::v3::principal::Identifier;
use navarch_proto::envoy::config::rbac::v3::rbac::Action;
use navarch_proto::envoy::config::rbac::v3::{Permission, Principal, Rbac, permission};
use navarch_proto::envoy::config::route::v3::HeaderMatcher;
use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use navarch_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use navarch_proto::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use navarch_proto::envoy::r#type::matcher::v3::metadata_matcher::path_segment::Segment;
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{
    MetadataMatcher, PathMatcher, StringMatcher, ValueMatcher, list_matcher, path_matcher,
    value_matcher,
};
use prost::Message;
use regex::Regex;
use serde_json::{Value, json};

/// A request or connection, and its client.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    /// The peer's identity, if it is authenticated by mutual TLS, such as
    /// `spiffe://cluster.local/ns/shop/sa/web`.
    pub(crate) identity: Option<String>,
    /// The peer's address.
    pub(crate) source: IpAddr,
    /// The client's address.
    pub(crate) remote: IpAddr,
    /// The workload's address.
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
    pub(crate) sni: String,
    /// The request; `None` for other connections.
    pub(crate) http: Option<Request>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) host: String,
    /// Its path, without the query.
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// The claims of an accepted token.
    pub(crate) claims: Option<Value>,
}

/// The RBAC filters of a chain: their rules, and whether they are HTTP filters.
pub(crate) fn of_chain(chain: &FilterChain) -> (Vec<Rbac>, bool) {
    let mut rules = Vec::new();
    let mut http = false;

    for one in &chain.filters {
        let Some(filter::ConfigType::TypedConfig(config)) = &one.config_type else {
            continue;
        };

        if config.type_url.ends_with("network.rbac.v3.RBAC") {
            rules.extend(NetworkRbac::decode(config.value.as_slice()).unwrap().rules);
        }

        if config.type_url.ends_with("HttpConnectionManager") {
            http = true;
            rules.clear();
            let manager = HttpConnectionManager::decode(config.value.as_slice()).unwrap();
            for one in manager.http_filters {
                let Some(http_filter::ConfigType::TypedConfig(config)) = one.config_type else {
                    continue;
                };
                if config.type_url.ends_with("http.rbac.v3.RBAC") {
                    rules.extend(HttpRbac::decode(config.value.as_slice()).unwrap().rules);
                }
            }
        }
    }

    (rules, http)
}

pub(crate) fn chains_of_port(listener: &Listener, port: u32) -> Vec<&FilterChain> {
    let has_port = |chain: &&FilterChain| {
        let found = chain
            .filter_chain_match
            .as_ref()
            .and_then(|found| found.destination_port);
        found == Some(port)
    };
    listener.filter_chains.iter().filter(has_port).collect()
}

/// Whether filters allow a request or connection.
pub(crate) fn lets_pass(filters: &[Rbac], test_request: &TestRequest) -> bool {
    filters.iter().all(|rules| {
        let matched = rules.policies.values().any(|policy| {
            policy
                .permissions
                .iter()
                .any(|one| permits(one, test_request))
                && policy.principals.iter().any(|one| is(one, test_request))
        });
        match rules.action() {
            Action::Allow => matched,
            Action::Deny => !matched,
            Action::Log => true,
        }
    })
}

/// Whether a permission matches.
fn permits(permission: &Permission, test_request: &TestRequest) -> bool {
    use permission::Rule;
    match permission.rule.as_ref().unwrap() {
        Rule::AndRules(set) => set.rules.iter().all(|rule| permits(rule, test_request)),
        Rule::OrRules(set) => set.rules.iter().any(|rule| permits(rule, test_request)),
        Rule::NotRule(rule) => !permits(rule, test_request),
        Rule::Any(any) => *any,
        Rule::Header(matcher) => header(matcher, test_request),
        Rule::UrlPath(matcher) => path(matcher, test_request),
        Rule::UriTemplate(config) => template(config, test_request),
        Rule::DestinationIp(range) => in_range(range, test_request.destination),
        Rule::DestinationPort(port) => u32::from(test_request.port) == *port,
        Rule::Metadata(matcher) => metadata(matcher, test_request),
        Rule::RequestedServerName(matcher) => text(matcher, &test_request.sni),
        other => panic!("a permission that is not supported: {other:?}"),
    }
}

/// Whether a principal matches the client.
fn is(principal: &Principal, test_request: &TestRequest) -> bool {
    match principal.identifier.as_ref().unwrap() {
        Identifier::AndIds(set) => set.ids.iter().all(|id| is(id, test_request)),
        Identifier::OrIds(set) => set.ids.iter().any(|id| is(id, test_request)),
        Identifier::NotId(id) => !is(id, test_request),
        Identifier::Any(any) => *any,
        Identifier::Authenticated(peer) => match (&peer.principal_name, &test_request.identity) {
            (Some(matcher), Some(identity)) => text(matcher, identity),
            (None, Some(_)) => true,
            (_, None) => false,
        },
        Identifier::DirectRemoteIp(range) => in_range(range, test_request.source),
        Identifier::RemoteIp(range) => in_range(range, test_request.remote),
        Identifier::Header(matcher) => header(matcher, test_request),
        Identifier::Metadata(matcher) => metadata(matcher, test_request),
        other => panic!("a principal that is not supported: {other:?}"),
    }
}

/// Whether a header matches; an absent one never does.
fn header(matcher: &HeaderMatcher, test_request: &TestRequest) -> bool {
    let request = test_request
        .http
        .as_ref()
        .expect("only requests have headers");
    let value = match matcher.name.as_str() {
        ":authority" => Some(&request.host),
        ":method" => Some(&request.method),
        name => request.headers.get(name),
    };
    match matcher.header_match_specifier.as_ref().unwrap() {
        HeaderMatchSpecifier::StringMatch(matcher) => {
            value.is_some_and(|value| text(matcher, value))
        }
        HeaderMatchSpecifier::PresentMatch(present) => value.is_some() == *present,
        other => panic!("a header matcher that is not supported: {other:?}"),
    }
}

fn path(matcher: &PathMatcher, test_request: &TestRequest) -> bool {
    let request = test_request
        .http
        .as_ref()
        .expect("only requests have paths");
    let Some(path_matcher::Rule::Path(matcher)) = &matcher.rule else {
        panic!("no path matcher")
    };
    text(matcher, &request.path)
}

/// Whether the path matches a template: `*` is one segment, `**` any number of characters.
fn template(config: &TypedExtensionConfig, test_request: &TestRequest) -> bool {
    let request = test_request
        .http
        .as_ref()
        .expect("only requests have paths");
    let config =
        UriTemplateMatchConfig::decode(config.typed_config.as_ref().unwrap().value.as_slice())
            .unwrap();
    let parts: Vec<String> = config
        .path_template
        .split("**")
        .map(|part| regex::escape(part).replace("\\*", "[^/]+"))
        .collect();
    Regex::new(&format!("^{}$", parts.join(".*")))
        .unwrap()
        .is_match(&request.path)
}

/// Whether metadata of the filter that validates tokens matches.
fn metadata(matcher: &MetadataMatcher, test_request: &TestRequest) -> bool {
    let request = test_request
        .http
        .as_ref()
        .expect("only requests have tokens");
    let claims = request
        .claims
        .as_ref()
        .map(|claims| json!({ "envoy.filters.http.jwt_authn": { "payload": claims } }));
    let mut at = claims.as_ref().and_then(|all| all.get(&matcher.filter));
    for segment in &matcher.path {
        let Some(Segment::Key(key)) = &segment.segment else {
            panic!("a path has keys")
        };
        at = at.and_then(|value| value.get(key));
    }
    at.is_some_and(|found| value(matcher.value.as_ref().unwrap(), found)) != matcher.invert
}

/// Whether a value of metadata matches.
fn value(matcher: &ValueMatcher, found: &Value) -> bool {
    use value_matcher::MatchPattern;
    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::StringMatch(matcher) => {
            found.as_str().is_some_and(|found| text(matcher, found))
        }
        MatchPattern::OrMatch(either) => either.value_matchers.iter().any(|one| value(one, found)),
        MatchPattern::ListMatch(list) => {
            let Some(list_matcher::MatchPattern::OneOf(one)) = &list.match_pattern else {
                panic!("a list matcher")
            };
            found
                .as_array()
                .is_some_and(|items| items.iter().any(|item| value(one, item)))
        }
        other => panic!("a value matcher that is not supported: {other:?}"),
    }
}

fn text(matcher: &StringMatcher, found: &str) -> bool {
    let lower = |text: &str| {
        if matcher.ignore_case {
            text.to_lowercase()
        } else {
            text.to_owned()
        }
    };

    let found = &lower(found);

    match matcher.match_pattern.as_ref().unwrap() {
        MatchPattern::Exact(text) => lower(text) == *found,
        MatchPattern::Prefix(text) => found.starts_with(&lower(text)),
        MatchPattern::Suffix(text) => found.ends_with(&lower(text)),
        MatchPattern::Contains(text) => found.contains(&lower(text)),
        MatchPattern::SafeRegex(regex) => Regex::new(&format!("^(?:{})$", regex.regex))
            .unwrap()
            .is_match(found),
        other => panic!("a text matcher that is not supported: {other:?}"),
    }
}

fn in_range(range: &CidrRange, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true),
        IpAddr::V6(address) => (address.to_bits(), false),
    };
    let (base, base_is_v4) = bits(range.address_prefix.parse().unwrap());
    let (bits, is_v4) = bits(address);
    let length = range.prefix_len.unwrap_or(0);
    base_is_v4 == is_v4 && (length == 0 || (base ^ bits) >> (128 - length) == 0)
}
