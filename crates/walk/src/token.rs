//! Evaluation of the token (JWT) of a request: Envoy's filter `jwt_authn`, as documented. Tokens
//! are assumed to be where providers look for them, correctly signed and not expired; the rest
//! depends on the claims.

use navarch_proto::envoy::config::listener::v3::FilterChain;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtProvider, JwtRequirement,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_filter,
};
use navarch_proto::envoy::r#type::matcher::v3::metadata_matcher::path_segment;
use navarch_proto::envoy::r#type::matcher::v3::value_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{MetadataMatcher, ValueMatcher, list_matcher};
use prost::Message;
use serde_json::{Map, Value};

use super::{HttpRequest, http, manager_of, pattern};

/// The filter that validates tokens; its name is the metadata namespace of the claims.
const FILTER: &str = "envoy.filters.http.jwt_authn";
/// Maximum nesting of requirements.
const MAX_DEPTH: u32 = 8;

/// The claims of a token, as its payload has them.
pub type Claims = Map<String, Value>;

/// The result of token validation at a proxy.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// Tokens are not validated.
    Unchecked,
    /// There is no token, and none is required.
    Missing {
        /// The accepted issuers.
        issuers: Vec<String>,
    },
    /// The token is accepted.
    Believed {
        /// The token's claim `iss`.
        issuer: String,
        /// The claims that the filter passes to policies and routes.
        claims: Claims,
        /// Whether the token is forwarded to the next proxy.
        is_forwarded: bool,
    },
    /// The filter answers the request itself.
    Rejected {
        /// 401, or 403 if the token has another audience.
        status: u32,
        /// Why, in Envoy's words.
        reason: &'static str,
        /// The accepted issuers.
        issuers: Vec<String>,
    },
}

/// Why a requirement is not met, in order of increasing precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unmet {
    Missing,
    UnknownIssuer,
    WrongAudience,
}

/// The provider that accepts the token; `None` if the request has no token and needs none.
type Checked<'a> = Result<Option<&'a JwtProvider>, Unmet>;

/// The filter's configuration and the token to check.
struct Check<'a> {
    filter: &'a JwtAuthentication,
    claims: Option<&'a Claims>,
}

/// The result of validating the token of a request at a filter chain.
#[must_use]
pub fn admission(chain: &FilterChain, request: &HttpRequest) -> Admission {
    manager_of(chain).map_or(Admission::Unchecked, |manager| {
        of_manager(&manager, request)
    })
}

/// The claims that policies and routes behind a connection manager see of a request.
pub(super) fn claims_at(manager: &HttpConnectionManager, request: &HttpRequest) -> Option<Claims> {
    match of_manager(manager, request) {
        Admission::Believed { claims, .. } => Some(claims),
        Admission::Unchecked | Admission::Missing { .. } | Admission::Rejected { .. } => None,
    }
}

/// The result of validating a token at a connection manager: its first `jwt_authn` filter decides.
fn of_manager(manager: &HttpConnectionManager, request: &HttpRequest) -> Admission {
    for one in &manager.http_filters {
        let Some(http_filter::ConfigType::TypedConfig(config)) = &one.config_type else {
            continue;
        };

        if !config.type_url.ends_with("jwt_authn.v3.JwtAuthentication") {
            continue;
        }

        let Ok(filter) = JwtAuthentication::decode(config.value.as_slice()) else {
            continue;
        };

        match of_filter(&filter, request) {
            Admission::Unchecked => {}
            admission @ (Admission::Missing { .. }
            | Admission::Believed { .. }
            | Admission::Rejected { .. }) => {
                return admission;
            }
        }
    }

    Admission::Unchecked
}

/// The result of one `jwt_authn` filter.
fn of_filter(filter: &JwtAuthentication, request: &HttpRequest) -> Admission {
    let rule = filter.rules.iter().find(|rule| {
        rule.r#match
            .as_ref()
            .is_some_and(|wanted| http::matches_rule(wanted, request))
    });

    let requirement = match rule.and_then(|rule| rule.requirement_type.as_ref()) {
        Some(RequirementType::Requires(requirement)) => Some(requirement),
        Some(RequirementType::RequirementName(name)) => filter.requirement_map.get(name),
        None => None,
    };
    let Some(requirement) = requirement else {
        return Admission::Unchecked;
    };

    let check = Check {
        filter,
        claims: request.claims.as_ref(),
    };
    let issuers = || {
        filter
            .providers
            .values()
            .map(|provider| provider.issuer.clone())
            .collect()
    };

    match (check.requirement(requirement, MAX_DEPTH), &request.claims) {
        (Ok(Some(provider)), Some(claims)) => Admission::Believed {
            issuer: text_of(claims, "iss").unwrap_or_default().to_owned(),
            claims: normalized(claims, provider),
            is_forwarded: provider.forward,
        },
        (Ok(_), None) => Admission::Missing { issuers: issuers() },
        // With `allow_missing_or_failed`, a request with an invalid token passes as if it had none.
        (Ok(None), Some(_)) => Admission::Unchecked,
        (Err(unmet), _) => {
            let (status, reason) = match unmet {
                Unmet::Missing => (401, "Jwt is missing"),
                Unmet::UnknownIssuer => (401, "Jwt issuer is not configured"),
                Unmet::WrongAudience => (403, "Audiences in Jwt are not allowed"),
            };
            Admission::Rejected {
                status,
                reason,
                issuers: issuers(),
            }
        }
    }
}

impl<'a> Check<'a> {
    /// Whether a requirement is met.
    fn requirement(&self, requirement: &JwtRequirement, depth: u32) -> Checked<'a> {
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(None);
        };

        match &requirement.requires_type {
            Some(RequiresType::ProviderName(name)) => self.provider(name, None),
            Some(RequiresType::ProviderAndAudiences(wanted)) => {
                self.provider(&wanted.provider_name, Some(&wanted.audiences))
            }
            Some(RequiresType::RequiresAny(list)) => {
                let mut worst = Unmet::Missing;
                for one in &list.requirements {
                    match self.requirement(one, depth) {
                        Ok(found) => return Ok(found),
                        Err(unmet) => worst = worst.max(unmet),
                    }
                }

                Err(worst)
            }
            Some(RequiresType::RequiresAll(list)) => {
                let mut accepted = None;
                for one in &list.requirements {
                    accepted = accepted.or(self.requirement(one, depth)?);
                }
                Ok(accepted)
            }
            Some(RequiresType::AllowMissing(())) => self.any_provider(),
            Some(
                RequiresType::AllowMissingOrFailed(())
                | RequiresType::ExtractOnlyWithoutValidation(_),
            ) => Ok(self.any_provider().unwrap_or_default()),
            None => Ok(None),
        }
    }

    /// Checks for a token of this provider, with one of the audiences if they are given.
    fn provider(&self, name: &str, audiences: Option<&[String]>) -> Checked<'a> {
        let Some(provider) = self.filter.providers.get(name) else {
            return Err(Unmet::UnknownIssuer);
        };
        let Some(claims) = self.claims else {
            return Err(Unmet::Missing);
        };
        if !is_issued_by(claims, provider) {
            return Err(Unmet::UnknownIssuer);
        }
        let audiences = audiences
            .filter(|audiences| !audiences.is_empty())
            .unwrap_or(&provider.audiences);
        if has_audience(claims, audiences) {
            Ok(Some(provider))
        } else {
            Err(Unmet::WrongAudience)
        }
    }

    /// Checks for a token of any provider, or none.
    fn any_provider(&self) -> Checked<'a> {
        let Some(claims) = self.claims else {
            return Ok(None);
        };
        let Some(provider) = self
            .filter
            .providers
            .values()
            .find(|provider| is_issued_by(claims, provider))
        else {
            return Err(Unmet::UnknownIssuer);
        };
        if has_audience(claims, &provider.audiences) {
            Ok(Some(provider))
        } else {
            Err(Unmet::WrongAudience)
        }
    }
}

/// Whether the provider's issuer issued a token; a provider without an issuer accepts all issuers.
fn is_issued_by(claims: &Claims, provider: &JwtProvider) -> bool {
    provider.issuer.is_empty() || text_of(claims, "iss") == Some(&provider.issuer)
}

/// Whether the token has one of these audiences; an empty list accepts every token. A trailing
/// slash is ignored.
fn has_audience(claims: &Claims, audiences: &[String]) -> bool {
    let bare = |text: &str| text.trim_end_matches('/').to_owned();
    let is_wanted = |audience: &str| {
        audiences
            .iter()
            .any(|wanted| bare(wanted) == bare(audience))
    };
    audiences.is_empty()
        || match claims.get("aud") {
            Some(Value::String(audience)) => is_wanted(audience),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).any(is_wanted),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
                false
            }
        }
}

fn text_of<'a>(claims: &'a Claims, name: &str) -> Option<&'a str> {
    claims.get(name).and_then(Value::as_str)
}

/// The claims as a provider passes them on: it splits the values of claims listed in its
/// configuration at spaces.
fn normalized(claims: &Claims, provider: &JwtProvider) -> Claims {
    if provider.payload_in_metadata.is_empty() {
        return Claims::new();
    }
    let mut claims = claims.clone();
    for name in provider
        .normalize_payload_in_metadata
        .iter()
        .flat_map(|how| &how.space_delimited_claims)
    {
        if let Some(Value::String(text)) = claims.get(name) {
            let list = text.split(' ').map(Value::from).collect();
            claims.insert(name.clone(), Value::Array(list));
        }
    }
    claims
}

/// Whether the claims match a metadata matcher; `None` if it matches other metadata.
pub(super) fn fits(matcher: &MetadataMatcher, claims: Option<&Claims>) -> Option<bool> {
    if matcher.filter != FILTER {
        return None;
    }

    let keys: Option<Vec<&str>> = matcher
        .path
        .iter()
        .map(|segment| {
            segment
                .segment
                .as_ref()
                .map(|path_segment::Segment::Key(key)| key.as_str())
        })
        .collect();

    let keys = keys?;

    // The first key is the one under which providers store the payload.
    let (_, path) = keys.split_first()?;
    let mut found: Option<&Value> = None;

    for (at, key) in path.iter().enumerate() {
        found = if at == 0 {
            claims.and_then(|claims| claims.get(*key))
        } else {
            found.and_then(|value| value.get(*key))
        };
    }

    if path.is_empty() {
        return None;
    }

    Some(value_fits(matcher.value.as_ref()?, found)? != matcher.invert)
}

/// Whether a value, or its absence, matches; `None` for matchers that are not evaluated here.
fn value_fits(matcher: &ValueMatcher, value: Option<&Value>) -> Option<bool> {
    Some(match matcher.match_pattern.as_ref()? {
        MatchPattern::NullMatch(_) => value == Some(&Value::Null),
        MatchPattern::StringMatch(wanted) => value
            .and_then(Value::as_str)
            .is_some_and(|text| pattern::text(wanted, text)),
        MatchPattern::BoolMatch(wanted) => value.and_then(Value::as_bool) == Some(*wanted),
        MatchPattern::PresentMatch(wanted) => value.is_some() == *wanted,

        MatchPattern::ListMatch(list) => {
            let Some(list_matcher::MatchPattern::OneOf(wanted)) = &list.match_pattern else {
                return None;
            };
            let Some(Value::Array(all)) = value else {
                return Some(false);
            };

            let mut fits = false;
            for one in all {
                fits |= value_fits(wanted, Some(one))?;
            }
            fits
        }

        MatchPattern::OrMatch(either) => {
            let mut fits = false;
            for one in &either.value_matchers {
                fits |= value_fits(one, value)?;
            }
            fits
        }

        MatchPattern::DoubleMatch(_) => return None,
    })
}
