//! Whether the authorization policies of a filter chain let somebody pass, and which says so: Envoy's RBAC filters, evaluated as
//! its documentation has it. What only the proxy itself can know, such as the claims of a token, is told as unknown.

use std::collections::BTreeMap;
use std::net::IpAddr;

use navarch_proto::envoy::config::listener::v3::{FilterChain, filter};
use navarch_proto::envoy::config::rbac::v3::principal::Identifier;
use navarch_proto::envoy::config::rbac::v3::rbac::Action;
use navarch_proto::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac, permission};
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use navarch_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use navarch_proto::envoy::r#type::matcher::v3::{filter_state_matcher, path_matcher};
use prost::Message;

use super::{HttpRequest, chain, pattern};

/// What the end of a tunnel notes the identity of its peer under.
const PEER_PRINCIPAL: &str = "io.istio.peer_principal";

/// Who asks for what.
#[derive(Clone, Debug)]
pub struct Visitor<'a> {
    /// The identity that mutual TLS proves, such as `spiffe://cluster.local/ns/shop/sa/web`; `None` in plain text.
    pub identity: Option<&'a str>,
    /// The address that it comes from.
    pub source: IpAddr,
    /// The workload's address and port.
    pub destination: (IpAddr, u16),
    /// The request, where it is HTTP.
    pub http: Option<&'a HttpRequest>,
}

/// What policies say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass.
    Passes,
    /// A policy denies it: the name of its rule, as the proxy has it.
    Denied(String),
    /// There are policies that allow, and none of them allows this: the names of their rules.
    NotAllowed(Vec<String>),
    /// It depends on what only the proxy knows, such as the claims of a token.
    Unknown,
}

/// The rules of the RBAC filters of a chain: those for requests where the chain reads HTTP, else those for connections.
fn rules_of(chain: &FilterChain) -> Vec<Rbac> {
    let mut rules = Vec::new();
    for one in &chain.filters {
        let Some(filter::ConfigType::TypedConfig(config)) = &one.config_type else { continue };
        if config.type_url.ends_with("network.rbac.v3.RBAC") {
            rules.extend(NetworkRbac::decode(config.value.as_slice()).ok().and_then(|rbac| rbac.rules));
        } else if config.type_url.ends_with(".HttpConnectionManager")
            && let Ok(manager) = HttpConnectionManager::decode(config.value.as_slice())
        {
            for one in manager.http_filters {
                let Some(http_filter::ConfigType::TypedConfig(config)) = one.config_type else { continue };
                if config.type_url.ends_with("http.rbac.v3.RBAC") {
                    rules.extend(HttpRbac::decode(config.value.as_slice()).ok().and_then(|rbac| rbac.rules));
                }
            }
        }
    }
    rules
}

/// What the policies of a chain say of a visitor.
#[must_use]
pub fn verdict(chain: &FilterChain, visitor: &Visitor<'_>) -> Verdict {
    let mut is_unknown = false;
    for rules in rules_of(chain) {
        let named = rules.policies.iter().map(|(name, policy)| (name, fits(policy, visitor)));
        let named: Vec<_> = named.collect();
        let fitting = named.iter().find(|(_, fits)| *fits == Some(true));
        let may_fit = named.iter().any(|(_, fits)| fits.is_none());
        match (rules.action(), fitting, may_fit) {
            (Action::Deny, Some((name, _)), _) => return Verdict::Denied((*name).clone()),
            (Action::Allow, None, false) => {
                return Verdict::NotAllowed(rules.policies.keys().cloned().collect());
            }
            (Action::Allow | Action::Deny, None, true) => is_unknown = true,
            (Action::Log, _, _) | (Action::Allow, Some(_), _) | (Action::Deny, None, false) => {}
        }
    }
    if is_unknown { Verdict::Unknown } else { Verdict::Passes }
}

/// Whether a policy is about a visitor; `None` where that cannot be known.
fn fits(policy: &Policy, visitor: &Visitor<'_>) -> Option<bool> {
    let permits = any(policy.permissions.iter().map(|one| permits(one, visitor)));
    let is = any(policy.principals.iter().map(|one| is(one, visitor)));
    both(permits, is)
}

/// Whether one of these holds.
fn any(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut is_known = true;
    for one in all {
        match one {
            Some(true) => return Some(true),
            Some(false) => {}
            None => is_known = false,
        }
    }
    is_known.then_some(false)
}

/// Whether both hold.
fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

/// Whether all of these hold.
fn all(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(all.map(|one| one.map(|holds| !holds))).map(|one_fails| !one_fails)
}

/// Whether a permission fits what is asked.
#[expect(deprecated, reason = "older forms of matchers are still sent")]
fn permits(permission: &Permission, visitor: &Visitor<'_>) -> Option<bool> {
    use permission::Rule;
    match permission.rule.as_ref()? {
        Rule::AndRules(set) => all(set.rules.iter().map(|rule| permits(rule, visitor))),
        Rule::OrRules(set) => any(set.rules.iter().map(|rule| permits(rule, visitor))),
        Rule::NotRule(rule) => permits(rule, visitor).map(|fits| !fits),
        Rule::Any(any) => Some(*any),
        Rule::Header(matcher) => Some(pattern::header(matcher, &headers(visitor)?)),
        Rule::UrlPath(matcher) => {
            let path_matcher::Rule::Path(matcher) = matcher.rule.as_ref()?;
            let path = &visitor.http?.path;
            Some(pattern::text(matcher, path.split_once('?').map_or(path.as_str(), |(path, _)| path)))
        }
        Rule::DestinationIp(range) => Some(chain::holds(range, visitor.destination.0)),
        Rule::DestinationPort(port) => Some(u32::from(visitor.destination.1) == *port),
        Rule::UriTemplate(_)
        | Rule::DestinationPortRange(_)
        | Rule::Metadata(_)
        | Rule::RequestedServerName(_)
        | Rule::Matcher(_)
        | Rule::SourcedMetadata(_) => None,
    }
}

/// Whether a principal fits who asks.
#[expect(deprecated, reason = "older forms of matchers are still sent")]
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not evaluated is not known")]
fn is(principal: &Principal, visitor: &Visitor<'_>) -> Option<bool> {
    match principal.identifier.as_ref()? {
        Identifier::AndIds(set) => all(set.ids.iter().map(|id| is(id, visitor))),
        Identifier::OrIds(set) => any(set.ids.iter().map(|id| is(id, visitor))),
        Identifier::NotId(id) => is(id, visitor).map(|fits| !fits),
        Identifier::Any(any) => Some(*any),
        Identifier::Authenticated(peer) => Some(match (&peer.principal_name, visitor.identity) {
            (Some(matcher), Some(identity)) => pattern::text(matcher, identity),
            (None, Some(_)) => true,
            (_, None) => false,
        }),
        // Behind the end of a tunnel the identity of its peer is noted there.
        Identifier::FilterState(matcher) if matcher.key == PEER_PRINCIPAL => {
            Some(match (&matcher.matcher, visitor.identity) {
                (Some(filter_state_matcher::Matcher::StringMatch(matcher)), Some(identity)) => {
                    pattern::text(matcher, identity)
                }
                (_, Some(_)) => return None,
                (_, None) => false,
            })
        }
        Identifier::DirectRemoteIp(range) | Identifier::RemoteIp(range) | Identifier::SourceIp(range) => {
            Some(chain::holds(range, visitor.source))
        }
        Identifier::Header(matcher) => Some(pattern::header(matcher, &headers(visitor)?)),
        _ => None,
    }
}

/// The headers of the request.
fn headers(visitor: &Visitor<'_>) -> Option<BTreeMap<String, String>> {
    let request = visitor.http?;
    let mut headers = request.headers.clone();
    for (name, value) in [(":authority", &request.host), (":method", &request.method), (":path", &request.path)] {
        headers.insert(name.to_owned(), value.clone());
    }
    Some(headers)
}
