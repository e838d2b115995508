//! Sources as principals of Envoy's RBAC.

#![expect(
    deprecated,
    reason = "istiod sends metadata matchers in the deprecated form, which every Envoy supports"
)]

use navarch_proto::envoy::config::rbac::v3::Principal;
use navarch_proto::envoy::config::rbac::v3::principal::{Authenticated, Identifier};
use navarch_proto::envoy::r#type::matcher::v3::{
    FilterStateMatcher, StringMatcher, filter_state_matcher,
};

use super::attribute::SourceAttribute;
use super::bytes_match::{self, Case};
use super::expression::Expression;
use super::metadata_match;
use super::translation::{Translation, Unsupported};
use super::{Peers, Transport};
use crate::cidr;
use crate::hbone::PEER_PRINCIPAL;
use crate::quote_meta::quote_meta;
use navarch_base::cidr::Cidr;

/// Prefix of identities.
const SPIFFE: &str = "spiffe://";

/// The principal for one of the values of an attribute.
pub(super) fn principal(
    translation: &Translation<'_>,
    attribute: &SourceAttribute<'_>,
    values: &[String],
) -> Result<Option<Principal>, Unsupported> {
    let is_http = translation.transport == Transport::Http;
    let range = |value: &str| {
        Cidr::parse_range_or_address(value)
            .map(cidr::to_proto)
            .ok_or(Unsupported)
    };
    let say = |of: fn(&str) -> StringMatcher| {
        translation.one_of(values, |value| Ok(peer(translation.peers, of(value))))
    };

    match attribute {
        SourceAttribute::Principal => say(|value| bytes_match::text_after(SPIFFE, value)),
        SourceAttribute::Namespace => say(in_namespace),
        SourceAttribute::TrustDomain => say(in_trust_domain),
        SourceAttribute::ServiceAccount => translation.one_of(values, |value| {
            Ok(peer(
                translation.peers,
                service_account(translation.namespace, value),
            ))
        }),
        SourceAttribute::Address => translation.one_of(values, |value| {
            Ok(identified(Identifier::DirectRemoteIp(range(value)?)))
        }),
        SourceAttribute::RemoteAddress => translation.one_of(values, |value| {
            Ok(identified(Identifier::RemoteIp(range(value)?)))
        }),
        SourceAttribute::Header(_)
        | SourceAttribute::TokenPrincipal
        | SourceAttribute::Claim(_)
            if !is_http =>
        {
            Err(Unsupported)
        }
        SourceAttribute::Header(name) => translation.one_of(values, |value| {
            Ok(identified(Identifier::Header(bytes_match::header(
                name,
                value,
                Case::Sensitive,
            ))))
        }),
        SourceAttribute::TokenPrincipal => Ok(token_principals(values)),
        SourceAttribute::Claim(path) => Ok(Some(identified(Identifier::Metadata(
            metadata_match::claim(path, values),
        )))),
    }
}

fn identified(identifier: Identifier) -> Principal {
    Principal {
        identifier: Some(identifier),
    }
}

/// A peer whose identity by mutual TLS matches.
fn peer(peers: Peers, name: StringMatcher) -> Principal {
    identified(match peers {
        Peers::Tls => Identifier::Authenticated(Authenticated {
            principal_name: Some(name),
        }),
        Peers::Tunnel => Identifier::FilterState(FilterStateMatcher {
            key: PEER_PRINCIPAL.to_owned(),
            matcher: Some(filter_state_matcher::Matcher::StringMatch(name)),
        }),
    })
}

/// Identities in a namespace, which may contain wildcards. All other characters are literal.
fn in_namespace(namespace: &str) -> StringMatcher {
    let literals: Vec<String> = namespace.split('*').map(quote_meta).collect();
    bytes_match::regex(format!(".*/ns/{}/.*", literals.join(".*")))
}

/// Identities of a trust domain, which may contain one wildcard.
fn in_trust_domain(domain: &str) -> StringMatcher {
    match domain.split_once('*') {
        Some(("", "")) => bytes_match::prefix(SPIFFE),
        Some((start, end)) => bytes_match::regex(format!(
            "{SPIFFE}{}[^/]*{}/.*",
            quote_meta(start),
            quote_meta(end)
        )),
        None => bytes_match::prefix(&format!("{SPIFFE}{domain}/")),
    }
}

/// Identities of a service account, by default of the policy's namespace. Further keys and values
/// may precede or follow its parts, but the account name must be followed by a slash or the end.
fn service_account(own_namespace: &str, value: &str) -> StringMatcher {
    let (namespace, account) = value.split_once('/').unwrap_or((own_namespace, value));
    bytes_match::regex(format!(
        "{SPIFFE}.+/ns/{}/(.+/|)sa/{}(/.+)?",
        quote_meta(namespace),
        quote_meta(account)
    ))
}

/// Tokens of these `issuer/subject`; the issuer may contain slashes.
fn token_principals(values: &[String]) -> Option<Principal> {
    let mut all: Vec<Principal> = values.iter().map(|value| token_principal(value)).collect();
    match all.len() {
        0 | 1 => all.pop(),
        _ => Some(Principal::either(all)),
    }
}

/// Tokens of one `issuer/subject`, with a wildcard at the start of the issuer or the end of the
/// subject.
fn token_principal(value: &str) -> Principal {
    let parts = value.rsplit_once('/');
    let (issuer, subject) = match (value.strip_prefix('*'), value.strip_suffix('*'), parts) {
        (Some(""), _, _) => (bytes_match::anything(), bytes_match::anything()),
        (Some(_), _, Some(("*", subject))) => {
            (bytes_match::anything(), bytes_match::exact(subject))
        }
        (Some(_), _, Some((issuer, subject))) => (
            bytes_match::suffix(issuer.strip_prefix('*').unwrap_or(issuer)),
            bytes_match::exact(subject),
        ),
        (Some(ending), _, None) => (bytes_match::anything(), bytes_match::suffix(ending)),
        (None, Some(_), Some((issuer, "*"))) => {
            (bytes_match::exact(issuer), bytes_match::anything())
        }
        (None, Some(_), Some((issuer, subject))) => (
            bytes_match::exact(issuer),
            bytes_match::prefix(subject.strip_suffix('*').unwrap_or(subject)),
        ),
        (None, Some(beginning), None) => (bytes_match::prefix(beginning), bytes_match::anything()),
        (None, None, Some((issuer, subject))) => {
            (bytes_match::exact(issuer), bytes_match::exact(subject))
        }
        (None, None, None) => (bytes_match::exact(value), bytes_match::exact("")),
    };

    let claim =
        |name: &str, text| identified(Identifier::Metadata(metadata_match::claim_text(name, text)));
    Principal::all(vec![claim("iss", issuer), claim("sub", subject)])
}
