//! Evaluation of the authorization policies of a filter chain: Envoy's RBAC filters, as documented
//! by Envoy. Unknown properties of the client, and values that only the proxy has, yield `Unknown`.

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
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{
    MetadataMatcher, StringMatcher, filter_state_matcher, path_matcher,
};
use prost::Message;

use super::token::Claims;
use super::{HttpRequest, chain, pattern, token};

/// The filter state key of the peer's identity at the end of a tunnel.
const PEER_PRINCIPAL: &str = "io.istio.peer_principal";

/// The client's identity by mutual TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer<'a> {
    /// This identity, such as `spiffe://cluster.local/ns/shop/sa/web`.
    Proven(&'a str),
    /// Unauthenticated: plain text, or no client certificate.
    Nobody,
    /// Authenticated, with an unknown identity.
    Somebody,
}

/// The claims that policies see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TokenClaims<'a> {
    /// None: there is no token, or it is not validated.
    Absent,
    /// Those of a valid token.
    Believed(&'a Claims),
    /// Any token is possible, so that matches on claims cannot be decided.
    Unknown,
}

/// The input of policies: client and request.
#[derive(Clone, Debug)]
pub struct Visitor<'a> {
    /// The client's identity.
    pub peer: Peer<'a>,
    /// The peer address, if known.
    pub source: Option<IpAddr>,
    /// The original client address, if known.
    pub remote: Option<IpAddr>,
    /// What policies compare with `request.auth.*`.
    pub claims: TokenClaims<'a>,
    /// The workload's address and port.
    pub destination: (IpAddr, u16),
    /// `None` for connections that are not HTTP: matches on headers cannot be decided then.
    pub http: Option<&'a HttpRequest>,
}

/// The verdict of policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed.
    Passes,
    /// Denied by a rule of this name.
    Denied(String),
    /// No ALLOW policy matches; the names of their rules.
    NotAllowed(Vec<String>),
    /// It depends on unknown properties.
    Unknown,
}

/// The rules of the RBAC filters of a chain: HTTP filters if the chain has a connection manager,
/// else network filters.
fn rules_of(chain: &FilterChain) -> Vec<Rbac> {
    let mut rules = Vec::new();

    for one in &chain.filters {
        let Some(filter::ConfigType::TypedConfig(config)) = &one.config_type else {
            continue;
        };

        if config.type_url.ends_with("network.rbac.v3.RBAC") {
            rules.extend(
                NetworkRbac::decode(config.value.as_slice())
                    .ok()
                    .and_then(|rbac| rbac.rules),
            );
        } else if config.type_url.ends_with(".HttpConnectionManager")
            && let Ok(manager) = HttpConnectionManager::decode(config.value.as_slice())
        {
            for one in manager.http_filters {
                let Some(http_filter::ConfigType::TypedConfig(config)) = one.config_type else {
                    continue;
                };
                if config.type_url.ends_with("http.rbac.v3.RBAC") {
                    rules.extend(
                        HttpRbac::decode(config.value.as_slice())
                            .ok()
                            .and_then(|rbac| rbac.rules),
                    );
                }
            }
        }
    }

    rules
}

/// The verdict of the policies of a chain.
#[must_use]
pub fn verdict(chain: &FilterChain, visitor: &Visitor<'_>) -> Verdict {
    let mut is_unknown = false;

    for rules in rules_of(chain) {
        let named = rules
            .policies
            .iter()
            .map(|(name, policy)| (name, fits(policy, visitor)));
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

    if is_unknown {
        Verdict::Unknown
    } else {
        Verdict::Passes
    }
}

/// Whether a policy matches; `None` if unknown.
fn fits(policy: &Policy, visitor: &Visitor<'_>) -> Option<bool> {
    let permits = any(policy.permissions.iter().map(|one| permits(one, visitor)));
    let is = any(policy.principals.iter().map(|one| is(one, visitor)));
    both(permits, is)
}

/// Three-valued OR.
pub(super) fn any(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
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

/// Three-valued AND of two.
pub(super) fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

/// Three-valued AND.
pub(super) fn all(all: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    any(all.map(|one| one.map(|holds| !holds))).map(|one_fails| !one_fails)
}

/// Whether a permission matches.
#[expect(deprecated, reason = "deprecated forms of matchers are still in use")]
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
            Some(pattern::text(
                matcher,
                path.split_once('?').map_or(path.as_str(), |(path, _)| path),
            ))
        }
        Rule::DestinationIp(range) => Some(chain::contains(range, visitor.destination.0)),
        Rule::DestinationPort(port) => Some(u32::from(visitor.destination.1) == *port),
        Rule::Metadata(matcher) => claimed(matcher, visitor),
        Rule::UriTemplate(_)
        | Rule::DestinationPortRange(_)
        | Rule::RequestedServerName(_)
        | Rule::Matcher(_)
        | Rule::SourcedMetadata(_) => None,
    }
}

/// Whether a principal matches.
#[expect(deprecated, reason = "deprecated forms of matchers are still in use")]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "anything that is not evaluated is unknown"
)]
fn is(principal: &Principal, visitor: &Visitor<'_>) -> Option<bool> {
    match principal.identifier.as_ref()? {
        Identifier::AndIds(set) => all(set.ids.iter().map(|id| is(id, visitor))),
        Identifier::OrIds(set) => any(set.ids.iter().map(|id| is(id, visitor))),
        Identifier::NotId(id) => is(id, visitor).map(|fits| !fits),
        Identifier::Any(any) => Some(*any),

        Identifier::Authenticated(peer) => match (&peer.principal_name, visitor.peer) {
            (Some(matcher), Peer::Proven(identity)) => Some(pattern::text(matcher, identity)),
            (None, Peer::Proven(_)) => Some(true),
            (_, Peer::Nobody) => Some(false),
            (None, Peer::Somebody) => Some(true),
            (Some(matcher), Peer::Somebody) => is_anybody(matcher),
        },

        // Behind the end of a tunnel the peer's identity is in filter state.
        Identifier::FilterState(matcher) if matcher.key == PEER_PRINCIPAL => {
            match (&matcher.matcher, visitor.peer) {
                (
                    Some(filter_state_matcher::Matcher::StringMatch(matcher)),
                    Peer::Proven(identity),
                ) => Some(pattern::text(matcher, identity)),
                (_, Peer::Nobody) => Some(false),
                (_, Peer::Proven(_) | Peer::Somebody) => None,
            }
        }

        Identifier::DirectRemoteIp(range) | Identifier::SourceIp(range) => {
            visitor.source.map(|source| chain::contains(range, source))
        }
        Identifier::RemoteIp(range) => visitor.remote.map(|remote| chain::contains(range, remote)),

        Identifier::Metadata(matcher) => claimed(matcher, visitor),
        Identifier::Header(matcher) => Some(pattern::header(matcher, &headers(visitor)?)),
        _ => None,
    }
}

/// Whether every identity matches; `None` if it depends on the identity.
fn is_anybody(matcher: &StringMatcher) -> Option<bool> {
    let fits_all = match &matcher.match_pattern {
        Some(MatchPattern::SafeRegex(wanted)) => wanted.regex == ".+",
        Some(MatchPattern::Prefix(wanted)) => wanted == "spiffe://",
        Some(
            MatchPattern::Exact(_)
            | MatchPattern::Suffix(_)
            | MatchPattern::Contains(_)
            | MatchPattern::Custom(_),
        )
        | None => false,
    };
    fits_all.then_some(true)
}

/// Whether the claims of the token match.
fn claimed(matcher: &MetadataMatcher, visitor: &Visitor<'_>) -> Option<bool> {
    match visitor.claims {
        TokenClaims::Absent => token::fits(matcher, None),
        TokenClaims::Believed(claims) => token::fits(matcher, Some(claims)),
        TokenClaims::Unknown => None,
    }
}

/// The headers of the request.
fn headers(visitor: &Visitor<'_>) -> Option<BTreeMap<String, String>> {
    let request = visitor.http?;
    let mut headers = request.headers.clone();
    for (name, value) in [
        (":authority", &request.host),
        (":method", &request.method),
        (":path", &request.path),
    ] {
        headers.insert(name.to_owned(), value.clone());
    }
    Some(headers)
}
