//! How ztunnel enforces an AuthorizationPolicy, for its status.

use std::collections::BTreeSet;

use navarch_proto::istio::security::{Action, Authorization, Match};

use super::authorization::{ATTRIBUTES, convert, is_dry_run};
use crate::mesh::Mesh;
use navarch_api::istio::{
    AuthorizationAction, AuthorizationPolicy, AuthorizationRule, PolicyTargetReference,
};
use navarch_api::object::Object;

/// How ztunnel enforces a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// Completely.
    Whole,
    /// Without the parts about HTTP.
    InPart(String),
    /// Not at all.
    Rejected(String),
}

/// The target references of a policy; empty if it selects workloads.
pub(crate) fn targets(policy: &AuthorizationPolicy) -> &[PolicyTargetReference] {
    policy
        .target_ref
        .as_ref()
        .map_or(policy.target_refs.as_slice(), std::slice::from_ref)
}

/// How ztunnel enforces a policy; `None` if it is for waypoints.
pub(crate) fn acceptance(object: &Object<AuthorizationPolicy>, mesh: &Mesh) -> Option<Acceptance> {
    if is_dry_run(object) && !mesh.dry_run {
        return Some(Acceptance::Rejected(format!(
            "found policy \"{}\" using dry-run annotation, but support for ambient dry-run authorizationPolicies isn't \
             enabled",
            object.meta.key
        )));
    }

    if !targets(&object.spec).is_empty() {
        return None;
    }

    let Some(converted) = convert(object, mesh) else {
        let action = match object.spec.action {
            AuthorizationAction::Audit => "AUDIT",
            AuthorizationAction::Custom => "CUSTOM",
            AuthorizationAction::Allow | AuthorizationAction::Deny => "dry-run",
        };
        return Some(Acceptance::Rejected(format!(
            "ztunnel does not support the {action} action"
        )));
    };

    let unseen: BTreeSet<&str> = object.spec.rules.iter().flat_map(about_requests).collect();
    if unseen.is_empty() {
        return Some(Acceptance::Whole);
    }

    let effect = if converted.action() != Action::Deny {
        "Within an ALLOW policy, rules matching HTTP attributes are omitted. This will be more restrictive than requested."
    } else if matches_anything(&converted) {
        "DENY policy with HTTP attributes is enforced without the HTTP rules. This will be more restrictive than requested."
    } else {
        "After omitting unsupported HTTP attributes, this DENY policy has no enforceable rules at ztunnel and will have no \
         effect. Deploy a waypoint proxy and use a targetRef to enforce this policy."
    };

    let unseen: Vec<&str> = unseen.into_iter().collect();
    Some(Acceptance::InPart(format!(
        "ztunnel does not support HTTP attributes (found: {}). In ambient mode you must use a waypoint proxy to enforce HTTP \
         rules. {effect}",
        unseen.join(", ")
    )))
}

/// The fields of a rule that are about HTTP.
fn about_requests(rule: &AuthorizationRule) -> impl Iterator<Item = &str> {
    let operations = rule
        .to
        .iter()
        .filter_map(|to| to.operation.as_ref())
        .flat_map(|operation| {
            [
                ("hosts", &operation.hosts),
                ("notHosts", &operation.not_hosts),
                ("methods", &operation.methods),
                ("notMethods", &operation.not_methods),
                ("paths", &operation.paths),
                ("notPaths", &operation.not_paths),
            ]
        });

    let sources = rule
        .from
        .iter()
        .filter_map(|from| from.source.as_ref())
        .flat_map(|source| {
            [
                ("remoteIpBlocks", &source.remote_ip_blocks),
                ("notRemoteIpBlocks", &source.not_remote_ip_blocks),
                ("requestPrincipals", &source.request_principals),
                ("notRequestPrincipals", &source.not_request_principals),
            ]
        });

    let conditions = rule.when.iter().map(|condition| condition.key.as_str());
    let lists = operations
        .chain(sources)
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, _)| name);

    lists.chain(conditions.filter(|key| !ATTRIBUTES.contains(key)))
}

/// Whether any connection can match a policy: ztunnel ignores empty matches, and clauses with only
/// empty matches.
fn matches_anything(policy: &Authorization) -> bool {
    let says_something = |one: &Match| *one != Match::default();
    policy.groups.iter().any(|group| {
        group
            .rules
            .iter()
            .all(|clause| clause.matches.iter().any(says_something))
    })
}
