//! AuthorizationPolicies for gRPC servers, which only support RBAC over HTTP of Envoy's filters
//! (grpc/proposal A41).
//!
//! Agrees with `buildRBAC` of Istio's `pilot/pkg/networking/grpcgen`, also where it differs from
//! proxies: CUSTOM and AUDIT are ignored, dry-run policies (`istio.io/dry-run`) are enforced, a
//! policy without rules has no effect, even an ALLOW policy that should deny everything, and trust
//! domain aliases do not apply.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_proto::envoy::config::rbac::v3::{Policy, Rbac};
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;

use super::translation::Translation;
use super::trust_domains::TrustDomains;
use super::{HTTP_RBAC, Peers, Transport, empty_rules, of_action};
use crate::filters::http::filter;
use crate::policy;
use navarch_api::istio::{AuthorizationAction, AuthorizationPolicy};
use navarch_api::object::Object;
use navarch_push::view::View;

/// The name of the DENY filter: two filters of the same name would be rejected.
const DENY: &str = "envoy.filters.http.rbac.DENY";

/// The filters of the policies that apply to the view's server, DENY before ALLOW.
#[must_use]
pub fn grpc_filters(view: &View<'_>) -> Vec<HttpFilter> {
    let policies = policy::attached::<AuthorizationPolicy>(view);
    let actions = [
        (DENY, AuthorizationAction::Deny),
        (HTTP_RBAC, AuthorizationAction::Allow),
    ];
    actions
        .into_iter()
        .filter_map(|(name, action)| rbac(name, &policies, action))
        .collect()
}

/// The filter of one action; `None` if no policy has a rule.
fn rbac(
    name: &str,
    policies: &[Arc<Object<AuthorizationPolicy>>],
    action: AuthorizationAction,
) -> Option<HttpFilter> {
    let rules: BTreeMap<String, Policy> = of_action(policies, action)
        .into_iter()
        .flat_map(rules_of)
        .collect();
    if rules.is_empty() {
        return None;
    }

    let rules = Rbac {
        policies: rules,
        ..empty_rules(action)
    };

    Some(filter(
        name,
        &HttpRbac {
            rules: Some(rules),
            ..HttpRbac::default()
        },
    ))
}

/// The rules of a policy by name.
fn rules_of(policy: &Object<AuthorizationPolicy>) -> Vec<(String, Policy)> {
    let key = &policy.meta.key;
    let translation = Translation {
        transport: Transport::Http,
        peers: Peers::Tls,
        narrows: policy.spec.action == AuthorizationAction::Allow,
        namespace: key.namespace.as_str(),
        domains: &TrustDomains::none(),
    };

    let named = |(index, rule)| {
        Some((
            format!("{}-{}-{index}", key.namespace, key.name),
            translation.rule(rule)?,
        ))
    };

    policy
        .spec
        .rules
        .iter()
        .enumerate()
        .filter_map(named)
        .collect()
}
