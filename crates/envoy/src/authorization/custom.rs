//! CUSTOM: external authorization.
//!
//! An RBAC filter with shadow rules checks whether a rule matches, and writes the rule's name as
//! metadata; the external authorization filter after it is only enabled if that name is one of its
//! provider's. If a provider is invalid, all matches of its rules are denied.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::config::rbac::v3::Rbac;
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use navarch_proto::envoy::r#type::matcher::v3::MetadataMatcher;

use super::provider::{ExternalAuthorizer, decider};
use super::trust_domains::TrustDomains;
use super::{
    HTTP_RBAC, MatchContext, NETWORK_RBAC, Peers, TCP_PREFIX, Transport, bytes_match, empty_rules,
    is_dry_run, metadata_match, rules_of,
};
use crate::filters::http::filter;
use crate::filters::network::network_filter;
use navarch_api::istio::{AuthorizationAction, AuthorizationPolicy};
use navarch_api::object::Object;
use navarch_push::view::View;

/// Prefix of the names of rules.
const MATCH_PREFIX: &str = "istio-ext-authz";

/// Prefix of the metadata keys for shadow rules.
const METADATA_PREFIX: &str = "istio_ext_authz_";

/// Suffix of the names of rules whose provider is invalid.
const INVALID_PROVIDER_SUFFIX: &str = "-deny-due-to-bad-CUSTOM-action";

struct ProviderRules {
    enforced: Rbac,
    /// Dry-run rules. The provider is called for them, too, as by istiod.
    tried: Rbac,
    /// The provider; `None` if invalid.
    decider: Option<ExternalAuthorizer>,
}

/// The filters for requests.
pub(super) fn http_filters(
    view: &View<'_>,
    policies: &[&Object<AuthorizationPolicy>],
    peers: Peers,
    domains: &TrustDomains,
) -> Vec<HttpFilter> {
    let mut filters = Vec::new();

    for (name, rules) in by_provider(
        view,
        policies,
        MatchContext {
            transport: Transport::Http,
            peers,
        },
        domains,
    ) {
        let Some(mut decider) = rules.decider else {
            let rbac = HttpRbac {
                rules: Some(denying(rules.enforced)),
                ..HttpRbac::default()
            };
            filters.push(filter(HTTP_RBAC, &rbac));
            continue;
        };

        decider.http.filter_enabled_metadata = Some(matched_rule_of(HTTP_RBAC, &name));
        let rbac = HttpRbac {
            rules: Some(rules.tried).filter(|tried| !tried.policies.is_empty()),
            shadow_rules: Some(rules.enforced),
            shadow_rules_stat_prefix: METADATA_PREFIX.to_owned(),
            ..HttpRbac::default()
        };
        filters.push(filter(HTTP_RBAC, &rbac));
        filters.push(filter("envoy.filters.http.ext_authz", &decider.http));
    }

    filters
}

/// The network filters. HTTP providers do not apply to connections.
pub(super) fn tcp_filters(
    view: &View<'_>,
    policies: &[&Object<AuthorizationPolicy>],
    peers: Peers,
    domains: &TrustDomains,
) -> Vec<Filter> {
    let mut filters = Vec::new();

    for (name, rules) in by_provider(
        view,
        policies,
        MatchContext {
            transport: Transport::Tcp,
            peers,
        },
        domains,
    ) {
        let stat_prefix = TCP_PREFIX.to_owned();
        let Some(decider) = rules.decider else {
            let rbac = NetworkRbac {
                rules: Some(denying(rules.enforced)),
                stat_prefix,
                ..NetworkRbac::default()
            };
            filters.push(network_filter(NETWORK_RBAC, &rbac));
            continue;
        };

        let Some(mut ext_authz) = decider.tcp else {
            continue;
        };
        ext_authz.filter_enabled_metadata = Some(matched_rule_of(NETWORK_RBAC, &name));
        let rbac = NetworkRbac {
            rules: Some(rules.tried).filter(|tried| !tried.policies.is_empty()),
            shadow_rules: Some(rules.enforced),
            shadow_rules_stat_prefix: METADATA_PREFIX.to_owned(),
            stat_prefix,
            ..NetworkRbac::default()
        };
        filters.push(network_filter(NETWORK_RBAC, &rbac));
        filters.push(network_filter(
            "envoy.filters.network.ext_authz",
            &ext_authz,
        ));
    }

    filters
}

/// The rules of each provider. Only one provider is allowed; if there are several, all are invalid.
fn by_provider(
    view: &View<'_>,
    policies: &[&Object<AuthorizationPolicy>],
    known: MatchContext,
    domains: &TrustDomains,
) -> BTreeMap<String, ProviderRules> {
    let mut found: BTreeMap<String, ProviderRules> = BTreeMap::new();

    for policy in policies {
        let name = policy
            .spec
            .provider
            .as_ref()
            .map_or("", |provider| provider.name.as_str());

        let rules = found
            .entry(name.to_owned())
            .or_insert_with(|| ProviderRules {
                enforced: empty_rules(AuthorizationAction::Custom),
                tried: empty_rules(AuthorizationAction::Custom),
                decider: None,
            });

        let prefix = if name.is_empty() {
            format!("{MATCH_PREFIX}-")
        } else {
            format!("{MATCH_PREFIX}-{name}-")
        };

        let set = if is_dry_run(policy) {
            &mut rules.tried
        } else {
            &mut rules.enforced
        };

        set.policies
            .extend(rules_of(policy, &prefix, known, domains));
    }

    if found.len() <= 1 || view.mesh().settings.multiple_custom_authorization_providers {
        for (name, rules) in &mut found {
            rules.decider = decider(view, name);
        }
    }

    found
}

/// Rules that deny their matches.
fn denying(rules: Rbac) -> Rbac {
    let policies = rules
        .policies
        .into_iter()
        .map(|(name, policy)| (format!("{name}{INVALID_PROVIDER_SUFFIX}"), policy))
        .collect();
    Rbac { policies, ..rules }
}

/// Matches if the rule that the RBAC filter found is one of the provider's.
fn matched_rule_of(filter: &str, provider: &str) -> MetadataMatcher {
    let key = format!("{METADATA_PREFIX}shadow_effective_policy_id");
    let name = bytes_match::prefix(&format!("{MATCH_PREFIX}-{provider}"));
    metadata_match::at(filter, [key.as_str()], metadata_match::string(name))
}
