//! AuthorizationPolicies for connections and requests, as Envoy's RBAC and external authorization.
//!
//! ```text
//! AuthorizationPolicies ─▶ policy::attached ─▶ rules ─▶ RBAC filters, for HTTP and for TCP
//!                                                └─▶ extension providers ─▶ ext_authz filters (CUSTOM)
//! ```
//!
//! Agrees with Istio's `pilot/pkg/security/authz`. Clauses that cannot be evaluated for a
//! connection make ALLOW narrower (the rule is removed) and DENY and AUDIT wider (the clause is
//! removed). The same applies to invalid clauses; istiod removes the whole rule of a DENY policy
//! then, which would allow what the user meant to deny.

mod attribute;
mod bytes_match;
mod custom;
mod expression;
mod grpc;
mod metadata_match;
mod operation;
mod provider;
mod rule;
mod source;
#[cfg(test)]
mod tests;
mod translation;
mod trust_domains;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use grpc::grpc_filters;
use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::config::rbac::v3::rbac::Action;
use navarch_proto::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac, permission, principal,
};
use navarch_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use navarch_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;

use super::filters::http::filter;
use super::filters::network::network_filter;
use super::policy::{self, PolicyService};
use navarch_api::istio::{AuthorizationAction, AuthorizationPolicy};
use navarch_api::object::Object;
use navarch_push::query::Query;
use navarch_push::view::View;
use translation::Translation;
use trust_domains::TrustDomains;

const HTTP_RBAC: &str = "envoy.filters.http.rbac";

const NETWORK_RBAC: &str = "envoy.filters.network.rbac";

/// The stat prefix of network RBAC.
const TCP_PREFIX: &str = "tcp.";

/// The actions of RBAC filters, in this order; CUSTOM has its own filters.
const ACTIONS: [AuthorizationAction; 3] = [
    AuthorizationAction::Audit,
    AuthorizationAction::Deny,
    AuthorizationAction::Allow,
];

/// The annotation of dry-run policies.
const DRY_RUN: &str = "istio.io/dry-run";

/// The filters of all policies that apply to the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizationOf {
    /// The service whose own policies apply as well, at its waypoint.
    pub service: Option<PolicyService>,
    /// How peers are identified.
    pub peers: Peers,
}

/// The policies that select the pods of a waypoint, as far as they apply to connections: evaluated
/// at the start of its tunnels (`ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizationOfTunnels;

/// How peers are identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peers {
    /// By mutual TLS.
    Tls,
    /// By their identity in the filter state, which is set where the HBONE tunnel is terminated.
    Tunnel,
}

/// Filters of policies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthorizationFilters {
    /// CUSTOM, for requests; before authentication.
    pub custom_http: Vec<HttpFilter>,
    /// AUDIT, DENY and ALLOW, for requests; after authentication.
    pub http: Vec<HttpFilter>,
    /// CUSTOM, for connections.
    pub custom_tcp: Vec<Filter>,
    /// AUDIT, DENY and ALLOW, for connections.
    pub tcp: Vec<Filter>,
}

/// The traffic that rules are evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Http,
    Tcp,
}

/// What is known at translation time of the traffic that a policy is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MatchContext {
    transport: Transport,
    peers: Peers,
}

/// Enforced and dry-run rules of one action.
struct RuleSets {
    /// Enforced rules; `None` without such policies.
    enforced: Option<Rbac>,
    /// Dry-run rules; `None` without such policies.
    tried: Option<Rbac>,
}

impl AuthorizationOf {
    /// For connections from peers with mutual TLS.
    pub const PROXY: Self = Self {
        service: None,
        peers: Peers::Tls,
    };
}

impl Query for AuthorizationOf {
    type Value = AuthorizationFilters;

    fn compute(&self, view: &View<'_>) -> AuthorizationFilters {
        let namespaces = policy::namespaces::<AuthorizationPolicy>(view);
        let policies =
            policy::attached_in::<AuthorizationPolicy>(view, &namespaces, self.service.as_ref());
        if policies.is_empty() {
            return AuthorizationFilters::default();
        }

        let domains = TrustDomains::new(&view.mesh().config);
        let known = |transport| MatchContext {
            transport,
            peers: self.peers,
        };
        let mut filters = AuthorizationFilters::default();
        let custom = of_action(&policies, AuthorizationAction::Custom);
        filters.custom_http = custom::http_filters(view, &custom, self.peers, &domains);

        filters.custom_tcp = custom::tcp_filters(view, &custom, self.peers, &domains);

        for action in ACTIONS {
            let policies = of_action(&policies, action);
            if !policies.is_empty() {
                filters.http.push(http_rbac(rule_sets(
                    &policies,
                    action,
                    known(Transport::Http),
                    &domains,
                )));
                filters.tcp.push(tcp_rbac(rule_sets(
                    &policies,
                    action,
                    known(Transport::Tcp),
                    &domains,
                )));
            }
        }

        filters
    }
}

impl Query for AuthorizationOfTunnels {
    type Value = Vec<HttpFilter>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let known = MatchContext {
            transport: Transport::Tcp,
            peers: Peers::Tls,
        };
        let domains = TrustDomains::new(&view.mesh().config);
        let mut policies = Vec::new();

        for namespace in policy::namespaces::<AuthorizationPolicy>(view) {
            let objects = policy::oldest_first::<AuthorizationPolicy>(view, &namespace).into_iter();
            policies.extend(
                objects
                    .filter(|object| policy::selects(view, object))
                    .cloned(),
            );
        }

        let of_actions = ACTIONS.map(|action| (action, of_action(&policies, action)));
        let of_actions = of_actions
            .into_iter()
            .filter(|(_, policies)| !policies.is_empty());
        of_actions
            .map(|(action, policies)| http_rbac(rule_sets(&policies, action, known, &domains)))
            .collect()
    }
}

/// The policies of an action.
fn of_action(
    policies: &[Arc<Object<AuthorizationPolicy>>],
    action: AuthorizationAction,
) -> Vec<&Object<AuthorizationPolicy>> {
    policies
        .iter()
        .map(|policy| &**policy)
        .filter(|policy| policy.spec.action == action)
        .collect()
}

/// The rules of all policies of an action.
fn rule_sets(
    policies: &[&Object<AuthorizationPolicy>],
    action: AuthorizationAction,
    known: MatchContext,
    domains: &TrustDomains,
) -> RuleSets {
    let mut sets = RuleSets {
        enforced: None,
        tried: None,
    };
    for policy in policies {
        let set = if is_dry_run(policy) {
            &mut sets.tried
        } else {
            &mut sets.enforced
        };
        let set = set.get_or_insert_with(|| empty_rules(action));
        set.policies.extend(rules_of(policy, "", known, domains));
    }
    sets
}

fn empty_rules(action: AuthorizationAction) -> Rbac {
    let action = match action {
        AuthorizationAction::Allow => Action::Allow,
        AuthorizationAction::Audit => Action::Log,
        // CUSTOM: the provider is called for requests that this filter would deny.
        AuthorizationAction::Deny | AuthorizationAction::Custom => Action::Deny,
    };
    Rbac {
        action: action.into(),
        ..Rbac::default()
    }
}

/// Whether a policy is a dry run. An invalid value enforces it.
fn is_dry_run(policy: &Object<AuthorizationPolicy>) -> bool {
    let value = policy.meta.annotations.get(DRY_RUN);
    value.is_some_and(|value| matches!(&**value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// The rules of a policy, each with a name that identifies its origin.
fn rules_of(
    policy: &Object<AuthorizationPolicy>,
    prefix: &str,
    known: MatchContext,
    domains: &TrustDomains,
) -> BTreeMap<String, Policy> {
    let named = |index: usize| {
        format!(
            "{prefix}ns[{}]-policy[{}]-rule[{index}]",
            policy.meta.key.namespace, policy.meta.key.name
        )
    };

    if policy.spec.rules.is_empty() {
        // Without a rule the filter would be the same as one without policies.
        return BTreeMap::from([(named(0), never())]);
    }

    let translation = Translation {
        transport: known.transport,
        peers: known.peers,
        narrows: policy.spec.action == AuthorizationAction::Allow,
        namespace: policy.meta.key.namespace.as_str(),
        domains,
    };

    let rules = policy.spec.rules.iter().enumerate();
    rules
        .filter_map(|(index, rule)| Some((named(index), translation.rule(rule)?)))
        .collect()
}

/// A rule that matches nothing.
fn never() -> Policy {
    let anything = Permission {
        rule: Some(permission::Rule::Any(true)),
    };
    let anybody = Principal {
        identifier: Some(principal::Identifier::Any(true)),
    };
    Policy {
        permissions: vec![Permission {
            rule: Some(permission::Rule::NotRule(Box::new(anything))),
        }],
        principals: vec![Principal {
            identifier: Some(principal::Identifier::NotId(Box::new(anybody))),
        }],
        ..Policy::default()
    }
}

fn http_rbac(sets: RuleSets) -> HttpFilter {
    let prefix = tried_prefix(sets.tried.as_ref());
    let rbac = HttpRbac {
        rules: sets.enforced,
        shadow_rules: sets.tried,
        shadow_rules_stat_prefix: prefix,
        ..HttpRbac::default()
    };
    filter(HTTP_RBAC, &rbac)
}

/// The network RBAC filter.
fn tcp_rbac(sets: RuleSets) -> Filter {
    let prefix = tried_prefix(sets.tried.as_ref());
    let rbac = NetworkRbac {
        rules: sets.enforced,
        shadow_rules: sets.tried,
        shadow_rules_stat_prefix: prefix,
        stat_prefix: TCP_PREFIX.to_owned(),
        ..NetworkRbac::default()
    };
    network_filter(NETWORK_RBAC, &rbac)
}

/// The stat prefix of dry-run rules. Without such rules it is that of ALLOW, as in istiod.
fn tried_prefix(tried: Option<&Rbac>) -> String {
    let prefix = match tried.map_or(Action::Allow, Rbac::action) {
        Action::Allow => "istio_dry_run_allow_",
        Action::Deny => "istio_dry_run_deny_",
        Action::Log => "",
    };
    prefix.to_owned()
}
