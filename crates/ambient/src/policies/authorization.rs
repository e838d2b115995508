//! AuthorizationPolicies for ztunnel (Istio's `serviceregistry/ambient/authorization.go`).
//!
//! ztunnel evaluates connections, not requests. Parts that it cannot evaluate are omitted such that
//! no more is allowed: ALLOW rules with such parts are omitted completely, DENY rules keep their
//! other parts.

use bytes::Bytes;
use navarch_proto::istio::security::{
    Action, Address, Authorization, Group, Match, Rules, Scope, ServiceAccountMatch, StringMatch,
    string_match::MatchType,
};

use crate::mesh::Mesh;
use crate::wire::ip_bytes;
use navarch_api::istio::{
    AuthorizationAction, AuthorizationCondition, AuthorizationOperation, AuthorizationPolicy,
    AuthorizationRule, AuthorizationSource,
};
use navarch_api::object::Object;
use navarch_base::cidr::Cidr;
use navarch_base::go_text::parse_bool;

/// The annotation of dry-run policies.
const DRY_RUN_ANNOTATION: &str = "istio.io/dry-run";
/// The attributes of connections that conditions can name.
pub(super) const ATTRIBUTES: [&str; 5] = [
    "source.ip",
    "source.namespace",
    "source.principal",
    "destination.ip",
    "destination.port",
];

/// The policy for ztunnel; `None` if it is for waypoints, a dry run, or has an unsupported action.
pub(super) fn convert(object: &Object<AuthorizationPolicy>, mesh: &Mesh) -> Option<Authorization> {
    let meta = &object.meta;
    let spec = &object.spec;
    let dry_run = is_dry_run(object);
    if dry_run && !mesh.dry_run || !spec.target_refs.is_empty() || spec.target_ref.is_some() {
        return None;
    }

    let action = match spec.action {
        AuthorizationAction::Allow => Action::Allow,
        AuthorizationAction::Deny => Action::Deny,
        AuthorizationAction::Audit | AuthorizationAction::Custom => return None,
    };
    let namespace = &meta.key.namespace;
    let scope = match &spec.selector {
        Some(_) => Scope::WorkloadSelector,
        None if *namespace == mesh.root_namespace => Scope::Global,
        None => Scope::Namespace,
    };

    let groups = spec
        .rules
        .iter()
        .filter_map(|rule| group(action, rule, namespace.as_str()));

    Some(Authorization {
        name: meta.key.name.to_string(),
        namespace: namespace.to_string(),
        scope: scope.into(),
        action: action.into(),
        groups: groups.collect(),
        dry_run,
        ..Authorization::default()
    })
}

pub(super) fn is_dry_run(object: &Object<AuthorizationPolicy>) -> bool {
    let value = object.meta.annotations.get(DRY_RUN_ANNOTATION);
    value.and_then(|text| parse_bool(text)).unwrap_or_default()
}

/// A rule; `None` if it is an ALLOW rule with HTTP attributes.
fn group(action: Action, rule: &AuthorizationRule, namespace: &str) -> Option<Group> {
    let operations = || rule.to.iter().map(|to| to.operation.as_ref());
    let sources = || rule.from.iter().map(|from| from.source.as_ref());
    let is_blind = operations().flatten().any(needs_requests)
        || sources().flatten().any(needs_request_source)
        || rule
            .when
            .iter()
            .any(|condition| !ATTRIBUTES.contains(&condition.key.as_str()));

    if is_blind && action == Action::Allow {
        return None;
    }

    let operations: Vec<Match> = operations()
        .map(|one| one.map(match_operation).unwrap_or_default())
        .collect();
    let sources: Vec<Match> = sources()
        .map(|one| {
            one.map(|source| match_source(source, namespace))
                .unwrap_or_default()
        })
        .collect();

    let conditions = rule
        .when
        .iter()
        .map(|condition| vec![match_condition(condition)]);
    let matches = [operations, sources]
        .into_iter()
        .filter(|matches| !matches.is_empty())
        .chain(conditions);

    Some(Group {
        rules: matches.map(|matches| Rules { matches }).collect(),
    })
}

/// Whether an operation is about HTTP.
fn needs_requests(operation: &AuthorizationOperation) -> bool {
    let AuthorizationOperation {
        hosts,
        not_hosts,
        ports: _,
        not_ports: _,
        methods,
        not_methods,
        paths,
        not_paths,
    } = operation;
    [hosts, not_hosts, methods, not_methods, paths, not_paths]
        .iter()
        .any(|list| !list.is_empty())
}

/// Whether a source is about HTTP.
fn needs_request_source(source: &AuthorizationSource) -> bool {
    let lists = [
        &source.remote_ip_blocks,
        &source.not_remote_ip_blocks,
        &source.request_principals,
        &source.not_request_principals,
    ];
    lists.iter().any(|list| !list.is_empty())
}

/// The part of an operation that is about connections.
fn match_operation(operation: &AuthorizationOperation) -> Match {
    Match {
        destination_ports: ports(&operation.ports),
        not_destination_ports: ports(&operation.not_ports),
        ..Match::default()
    }
}

/// The part of a source that is about connections.
fn match_source(source: &AuthorizationSource, namespace: &str) -> Match {
    Match {
        source_ips: addresses(&source.ip_blocks),
        not_source_ips: addresses(&source.not_ip_blocks),
        namespaces: texts(&source.namespaces),
        not_namespaces: texts(&source.not_namespaces),
        service_accounts: accounts(&source.service_accounts, namespace),
        not_service_accounts: accounts(&source.not_service_accounts, namespace),
        principals: texts(&source.principals),
        not_principals: texts(&source.not_principals),
        ..Match::default()
    }
}

/// A condition; one that is about HTTP matches nothing.
fn match_condition(condition: &AuthorizationCondition) -> Match {
    let values = &condition.values;
    let not_values = &condition.not_values;

    match condition.key.as_str() {
        "source.namespace" => Match {
            namespaces: texts(values),
            not_namespaces: texts(not_values),
            ..Match::default()
        },
        "source.principal" => Match {
            principals: texts(values),
            not_principals: texts(not_values),
            ..Match::default()
        },
        "source.ip" => Match {
            source_ips: addresses(values),
            not_source_ips: addresses(not_values),
            ..Match::default()
        },
        "destination.ip" => Match {
            destination_ips: addresses(values),
            not_destination_ips: addresses(not_values),
            ..Match::default()
        },
        "destination.port" => Match {
            destination_ports: ports(values),
            not_destination_ports: ports(not_values),
            ..Match::default()
        },
        _ => Match::default(),
    }
}

/// Matches of strings: `*` for presence, `*` at one end for a prefix or suffix.
fn texts(values: &[String]) -> Vec<StringMatch> {
    let one = |text: &String| {
        let kind = if text == "*" {
            MatchType::Presence(())
        } else if let Some(suffix) = text.strip_prefix('*') {
            MatchType::Suffix(suffix.to_owned())
        } else if let Some(prefix) = text.strip_suffix('*') {
            MatchType::Prefix(prefix.to_owned())
        } else {
            MatchType::Exact(text.clone())
        };
        StringMatch {
            match_type: Some(kind),
        }
    };
    values.iter().map(one).collect()
}

/// Service accounts, `namespace/account` or `account` in the namespace of the policy.
fn accounts(values: &[String], namespace: &str) -> Vec<ServiceAccountMatch> {
    let one = |text: &String| {
        let (namespace, account) = text.split_once('/').unwrap_or((namespace, text));
        ServiceAccountMatch {
            namespace: namespace.to_owned(),
            service_account: account.to_owned(),
        }
    };
    values.iter().map(one).collect()
}

/// Ports; invalid ones are skipped.
fn ports(values: &[String]) -> Vec<u32> {
    let is_plain = |text: &&String| text.bytes().all(|byte| byte.is_ascii_digit());
    values
        .iter()
        .filter(is_plain)
        .filter_map(|text| text.parse::<u32>().ok())
        .filter(|port| *port <= 65535)
        .collect()
}

/// CIDRs; invalid ones are skipped.
fn addresses(values: &[String]) -> Vec<Address> {
    let one = |range: Cidr| {
        let address: Bytes = ip_bytes(range.address);
        Address {
            address,
            length: u32::from(range.bits),
        }
    };
    values
        .iter()
        .filter_map(|text| Cidr::parse_range_or_address(text))
        .map(one)
        .collect()
}

#[cfg(test)]
mod tests;
