//! Rules for AuthorizationPolicy.

use super::authorization_condition::condition;
use super::authorization_values::{
    address, each, not_empty, path, port, service_accounts, trust_domain,
};
use super::path::Path;
use super::target_ref::attachment;
use super::{Validate, Verdict};
use crate::istio::{
    AuthorizationAction, AuthorizationOperation, AuthorizationPolicy, AuthorizationRule,
    AuthorizationSource,
};
use crate::object::ObjectMeta;
use navarch_base::go_text::parse_bool;

/// The warning for a rule that would deny every TCP connection.
const DENIES_TCP: &str = "has only HTTP fields, so it denies all traffic on TCP ports; set the ports to which it applies";

impl Validate for AuthorizationPolicy {
    fn validate(&self, _: &ObjectMeta) -> Verdict {
        let mut verdict = Verdict::default();
        let Self {
            selector,
            target_ref,
            target_refs,
            rules,
            action,
            provider,
        } = self;

        let spec = Path::root("spec");
        attachment(
            &mut verdict,
            &spec,
            selector.as_ref(),
            target_ref.as_ref(),
            target_refs,
        );

        let at = spec.field("rules");

        match action {
            AuthorizationAction::Custom | AuthorizationAction::Deny if rules.is_empty() => verdict.error(
                &at,
                format!("is empty, so {action} never applies; add an empty rule {{}} to apply it to all requests"),
            ),
            AuthorizationAction::Custom => {
                if provider.as_ref().is_none_or(|provider| provider.name.is_empty()) {
                    let provider = spec.field("provider");
                    verdict.error(&provider.field("name"), "is missing, but CUSTOM requires a provider");
                }
            }
            AuthorizationAction::Allow | AuthorizationAction::Deny | AuthorizationAction::Audit => {}
        }

        if provider.is_some() && *action != AuthorizationAction::Custom {
            verdict.error(
                &spec.field("provider"),
                format!("is set, but {action} uses no provider; use CUSTOM or remove it"),
            );
        }

        for (index, one) in rules.iter().enumerate() {
            let at = &at.item(index);
            rule(&mut verdict, at, one);
            match action {
                AuthorizationAction::Custom => custom_rule(&mut verdict, at, one),
                AuthorizationAction::Deny if denies_tcp(one) => verdict.warn(at, DENIES_TCP),
                AuthorizationAction::Allow
                | AuthorizationAction::Deny
                | AuthorizationAction::Audit => {}
            }
        }

        verdict
    }

    fn validate_dry_run(&self, value: &str) -> Result<(), String> {
        match self.action {
            AuthorizationAction::Allow | AuthorizationAction::Deny => parse_bool(value)
                .map(|_| ())
                .ok_or_else(|| format!("{value:?} is neither \"true\" nor \"false\"")),
            action @ (AuthorizationAction::Audit | AuthorizationAction::Custom) => Err(format!(
                "only ALLOW and DENY can be tried in a dry run, not {action}"
            )),
        }
    }
}

/// Validates a rule.
fn rule(verdict: &mut Verdict, at: &Path<'_>, rule: &AuthorizationRule) {
    let AuthorizationRule { from, to, when } = rule;
    let from_at = at.field("from");
    let to_at = at.field("to");
    let when_at = at.field("when");

    for (index, from) in from.iter().enumerate() {
        let at = from_at.item(index);
        match &from.source {
            None => verdict.error(&at.field("source"), "is missing"),
            Some(found) => source(verdict, &at.field("source"), found),
        }
    }

    for (index, to) in to.iter().enumerate() {
        let at = to_at.item(index);
        match &to.operation {
            None => verdict.error(&at.field("operation"), "is missing"),
            Some(found) => operation(verdict, &at.field("operation"), found),
        }
    }

    for (index, when) in when.iter().enumerate() {
        condition(verdict, &when_at.item(index), when);
    }
}

/// Validates a source.
fn source(verdict: &mut Verdict, at: &Path<'_>, source: &AuthorizationSource) {
    let AuthorizationSource {
        principals,
        not_principals,
        request_principals,
        not_request_principals,
        namespaces,
        not_namespaces,
        service_accounts: accounts,
        not_service_accounts: not_accounts,
        ip_blocks,
        not_ip_blocks,
        remote_ip_blocks,
        not_remote_ip_blocks,
        trust_domains,
        not_trust_domains,
    } = source;

    if *source == AuthorizationSource::default() {
        verdict.error(
            at,
            "is empty; set at least one field, or leave from out to match any source",
        );
        return;
    }

    let other_identities = [principals, not_principals, namespaces, not_namespaces];
    if other_identities.iter().any(|list| !list.is_empty())
        && !(accounts.is_empty() && not_accounts.is_empty())
    {
        verdict.error(
            &at.field("serviceAccounts"),
            "is set together with principals or namespaces; write one of them",
        );
    }

    for (field, values) in [
        ("principals", principals),
        ("notPrincipals", not_principals),
        ("requestPrincipals", request_principals),
        ("notRequestPrincipals", not_request_principals),
        ("namespaces", namespaces),
        ("notNamespaces", not_namespaces),
    ] {
        each(verdict, &at.field(field), values, not_empty);
    }

    for (field, values) in [
        ("ipBlocks", ip_blocks),
        ("notIpBlocks", not_ip_blocks),
        ("remoteIpBlocks", remote_ip_blocks),
        ("notRemoteIpBlocks", not_remote_ip_blocks),
    ] {
        each(verdict, &at.field(field), values, address);
    }

    service_accounts(verdict, &at.field("serviceAccounts"), accounts);
    service_accounts(verdict, &at.field("notServiceAccounts"), not_accounts);
    each(
        verdict,
        &at.field("trustDomains"),
        trust_domains,
        trust_domain,
    );

    each(
        verdict,
        &at.field("notTrustDomains"),
        not_trust_domains,
        trust_domain,
    );
}

/// Validates an operation.
fn operation(verdict: &mut Verdict, at: &Path<'_>, operation: &AuthorizationOperation) {
    let AuthorizationOperation {
        hosts,
        not_hosts,
        ports,
        not_ports,
        methods,
        not_methods,
        paths,
        not_paths,
    } = operation;

    if *operation == AuthorizationOperation::default() {
        verdict.error(
            at,
            "is empty; set at least one field, or leave to out to match any operation",
        );
        return;
    }

    for (field, values) in [
        ("hosts", hosts),
        ("notHosts", not_hosts),
        ("methods", methods),
        ("notMethods", not_methods),
    ] {
        each(verdict, &at.field(field), values, not_empty);
    }

    each(verdict, &at.field("ports"), ports, port);
    each(verdict, &at.field("notPorts"), not_ports, port);
    each(verdict, &at.field("paths"), paths, path);
    each(verdict, &at.field("notPaths"), not_paths, path);
}

/// Validates a rule of a CUSTOM policy: an extension provider decides, and identities are not
/// available by then.
fn custom_rule(verdict: &mut Verdict, at: &Path<'_>, rule: &AuthorizationRule) {
    const MESSAGE: &str = "is not available when CUSTOM is evaluated; remove it";
    let from = at.field("from");
    for (index, source) in rule.from.iter().enumerate() {
        let Some(source) = &source.source else {
            continue;
        };

        let at = from.item(index);
        let at = at.field("source");

        for (field, values) in [
            ("namespaces", &source.namespaces),
            ("notNamespaces", &source.not_namespaces),
            ("serviceAccounts", &source.service_accounts),
            ("notServiceAccounts", &source.not_service_accounts),
            ("trustDomains", &source.trust_domains),
            ("notTrustDomains", &source.not_trust_domains),
            ("principals", &source.principals),
            ("notPrincipals", &source.not_principals),
            ("requestPrincipals", &source.request_principals),
            ("notRequestPrincipals", &source.not_request_principals),
        ] {
            if !values.is_empty() {
                verdict.error(&at.field(field), MESSAGE);
            }
        }
    }

    let when = at.field("when");
    for (index, condition) in rule.when.iter().enumerate() {
        let key = condition.key.as_str();
        let by_peer = [
            "source.namespace",
            "source.serviceAccount",
            "source.trustDomain",
            "source.principal",
        ];
        if by_peer.contains(&key) || key.starts_with("request.auth.") {
            verdict.error(&when.item(index).field("key"), MESSAGE);
        }
    }
}

/// Whether a rule of a DENY policy has no condition on attributes of TCP connections, so that it
/// denies all of them.
fn denies_tcp(rule: &AuthorizationRule) -> bool {
    let mut sources = rule
        .from
        .iter()
        .filter_map(|from| from.source.as_ref())
        .peekable();

    let mut operations = rule
        .to
        .iter()
        .filter_map(|to| to.operation.as_ref())
        .peekable();
    let has_from = sources.peek().is_some();
    let has_to = operations.peek().is_some();
    let names_ports =
        operations.any(|operation| !(operation.ports.is_empty() && operation.not_ports.is_empty()));

    if has_to {
        !names_ports
    } else {
        has_from && !sources.any(has_connection_condition)
    }
}

/// Whether a source has a condition on attributes of connections. Trust domains do not count, as in
/// istiod.
fn has_connection_condition(source: &AuthorizationSource) -> bool {
    let AuthorizationSource {
        principals,
        not_principals,
        namespaces,
        not_namespaces,
        service_accounts,
        not_service_accounts,
        ip_blocks,
        not_ip_blocks,
        remote_ip_blocks,
        not_remote_ip_blocks,
        request_principals: _,
        not_request_principals: _,
        trust_domains: _,
        not_trust_domains: _,
    } = source;

    [
        principals,
        not_principals,
        namespaces,
        not_namespaces,
        service_accounts,
        not_service_accounts,
        ip_blocks,
        not_ip_blocks,
        remote_ip_blocks,
        not_remote_ip_blocks,
    ]
    .iter()
    .any(|list| !list.is_empty())
}
