//! RequestAuthentications as Envoy's validation of tokens.
//!
//! A present token must be valid; a missing one is an error only for rules whose `presence` is
//! `REQUIRED`, since AuthorizationPolicies decide about requests without one. Fetched keys come from
//! the snapshot; while there are none, every token of their issuer is rejected: the key set that is
//! sent then has a key without a private key. (istiod sends one whose private key it claims to have
//! discarded.) Agrees with Istio's `pilot/pkg/security/authn/policy_applier.go` otherwise.

mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use navarch_proto::envoy::config::route::v3::{RouteMatch, route_match};
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::NormalizePayload;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use navarch_proto::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement,
    JwtRequirementAndList, JwtRequirementOrList, RequirementRule,
};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::filters::http::filter;
use super::policy::{self, PolicyService};
use navarch_api::istio::{JwtPresence, JwtRule, RequestAuthentication};
use navarch_api::object::Object;
use navarch_api::settings::KeyFetching;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The filter that validates tokens.
const FILTER: &str = "envoy.filters.http.jwt_authn";

/// The metadata key of the claims that the filter writes.
const PAYLOAD: &str = "payload";

/// Claims that are always space-separated lists.
const LISTS: [&str; 2] = ["permission", "scope"];

/// The filter of all policies that apply to the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthenticationOf {
    /// The service whose own policies apply as well, at its waypoint.
    pub service: Option<PolicyService>,
}

impl AuthenticationOf {
    /// Policies for the proxy, regardless of the service.
    pub const PROXY: Self = Self { service: None };
}

impl Query for AuthenticationOf {
    type Value = Option<HttpFilter>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let policies = policies(view, self.service.as_ref());
        let mut rules: Vec<&JwtRule> = policies
            .iter()
            .flat_map(|policy| &policy.spec.jwt_rules)
            .collect();
        if rules.is_empty() {
            return None;
        }
        rules.sort_by(|a, b| a.issuer.cmp(&b.issuer));
        Some(filter(FILTER, &authentication(view, &rules)))
    }
}

/// The policies that apply to the proxy.
fn policies(
    view: &View<'_>,
    service: Option<&PolicyService>,
) -> Vec<Arc<Object<RequestAuthentication>>> {
    let mut namespaces = policy::namespaces::<RequestAuthentication>(view);
    namespaces.reverse();
    policy::attached_in::<RequestAuthentication>(view, &namespaces, service)
}

/// The hosts that the proxy may fetch keys from; empty if it fetches none itself.
pub(super) fn key_hosts(view: &View<'_>) -> Vec<String> {
    if view.mesh().settings.key_fetching == KeyFetching::ControlPlane {
        return Vec::new();
    }
    let policies = policies(view, None);
    let rules = policies.iter().flat_map(|policy| &policy.spec.jwt_rules);
    rules
        .filter_map(|rule| keys::host(&rule.jwks_uri))
        .collect()
}

/// The filter configuration.
fn authentication(view: &View<'_>, rules: &[&JwtRule]) -> JwtAuthentication {
    // Routes of gateways may match claims, so they are selected again once claims are available.
    let clears_route = view.proxy().kind() != ProxyKind::Sidecar;
    let names: Vec<String> = (0..rules.len())
        .map(|index| format!("origins-{index}"))
        .collect();
    let providers: BTreeMap<String, JwtProvider> = names
        .iter()
        .zip(rules)
        .map(|(name, rule)| (name.clone(), provider(view, rule, clears_route)))
        .collect();

    let everything = RouteMatch {
        path_specifier: Some(route_match::PathSpecifier::Prefix("/".to_owned())),
        ..RouteMatch::default()
    };
    let rule = RequirementRule {
        r#match: Some(everything),
        requirement_type: Some(RequirementType::Requires(requirement(&names, rules))),
    };

    JwtAuthentication {
        providers,
        rules: vec![rule],
        bypass_cors_preflight: true,
        ..JwtAuthentication::default()
    }
}

/// The requirement of all rules, given the names of their providers: a token of each rule that
/// demands one, and what is required of the others.
fn requirement(names: &[String], rules: &[&JwtRule]) -> JwtRequirement {
    let mut all = Vec::new();
    let mut optional = Vec::new();
    for (name, rule) in names.iter().zip(rules) {
        match rule.presence {
            JwtPresence::Required => all.push(of(name)),
            JwtPresence::Optional => optional.push(name.as_str()),
        }
    }

    if !optional.is_empty() {
        all.push(optional_requirement(&optional));
    }
    all_of(all)
}

/// Of each issuer a valid token or none. Issuers may share a token location, where a token of one
/// is invalid for the other: so a valid token of any issuer is enough.
fn optional_requirement(names: &[&str]) -> JwtRequirement {
    let each: Vec<JwtRequirement> = names
        .iter()
        .map(|name| {
            any_of(vec![
                of(name),
                JwtRequirement {
                    requires_type: Some(RequiresType::AllowMissing(())),
                },
            ])
        })
        .collect();

    if let [only] = each.as_slice() {
        return only.clone();
    }

    let mut alternatives: Vec<JwtRequirement> = names.iter().map(|name| of(name)).collect();
    alternatives.push(all_of(each));

    any_of(alternatives)
}

/// Requires a valid token of a provider.
fn of(provider: &str) -> JwtRequirement {
    JwtRequirement {
        requires_type: Some(RequiresType::ProviderName(provider.to_owned())),
    }
}

/// Requires all of a list, which is not empty.
fn all_of(mut requirements: Vec<JwtRequirement>) -> JwtRequirement {
    if requirements.len() == 1 {
        return requirements.remove(0);
    }
    JwtRequirement {
        requires_type: Some(RequiresType::RequiresAll(JwtRequirementAndList {
            requirements,
        })),
    }
}

/// Requires one of several.
fn any_of(requirements: Vec<JwtRequirement>) -> JwtRequirement {
    JwtRequirement {
        requires_type: Some(RequiresType::RequiresAny(JwtRequirementOrList {
            requirements,
        })),
    }
}

/// The tokens of one issuer.
fn provider(view: &View<'_>, rule: &JwtRule, clear_route_cache: bool) -> JwtProvider {
    let mut lists: BTreeSet<&str> = rule
        .space_delimited_claims
        .iter()
        .map(String::as_str)
        .collect();
    lists.extend(LISTS);
    let header = |header: &navarch_api::istio::JwtHeader| JwtHeader {
        name: header.name.clone(),
        value_prefix: header.prefix.clone(),
    };

    let claim = |output: &navarch_api::istio::ClaimToHeader| JwtClaimToHeader {
        header_name: output.header.clone(),
        claim_name: output.claim.clone(),
        ..JwtClaimToHeader::default()
    };

    JwtProvider {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        forward: rule.forward_original_token,
        from_headers: rule.from_headers.iter().map(header).collect(),
        from_params: rule.from_params.clone(),
        from_cookies: rule.from_cookies.clone(),
        forward_payload_header: rule.output_payload_to_header.clone(),
        payload_in_metadata: PAYLOAD.to_owned(),
        normalize_payload_in_metadata: Some(NormalizePayload {
            space_delimited_claims: lists.into_iter().map(str::to_owned).collect(),
        }),
        claim_to_headers: rule.output_claim_to_headers.iter().map(claim).collect(),
        clear_route_cache,
        jwks_source_specifier: Some(keys::source(view, rule)),
        ..JwtProvider::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requirement of rules with this presence of their tokens, in short.
    fn required(presences: &[JwtPresence]) -> String {
        let rules: Vec<JwtRule> = presences
            .iter()
            .map(|&presence| JwtRule {
                presence,
                ..JwtRule::default()
            })
            .collect();
        let names: Vec<String> = (0..rules.len()).map(|index| index.to_string()).collect();
        short(&requirement(&names, &rules.iter().collect::<Vec<_>>()))
    }

    fn short(requirement: &JwtRequirement) -> String {
        let list = |name: &str, requirements: &[JwtRequirement]| {
            let all: Vec<String> = requirements.iter().map(short).collect();
            format!("{name}({})", all.join(" "))
        };
        match &requirement.requires_type {
            Some(RequiresType::ProviderName(name)) => name.clone(),
            Some(RequiresType::AllowMissing(())) => "missing".to_owned(),
            Some(RequiresType::RequiresAny(any)) => list("any", &any.requirements),
            Some(RequiresType::RequiresAll(all)) => list("all", &all.requirements),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tokens_are_required_of_the_rules_that_demand_one() {
        use JwtPresence::{Optional, Required};

        for (presences, expected) in [
            (vec![Optional], "any(0 missing)"),
            (
                vec![Optional, Optional],
                "any(0 1 all(any(0 missing) any(1 missing)))",
            ),
            (vec![Required], "0"),
            (vec![Required, Required], "all(0 1)"),
            (vec![Optional, Required], "all(1 any(0 missing))"),
        ] {
            assert_eq!(required(&presences), expected);
        }
    }
}
