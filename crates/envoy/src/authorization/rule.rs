//! One rule of a policy as a policy of Envoy's RBAC: permissions for operations, principals for
//! sources.

use std::borrow::Cow;

use navarch_proto::envoy::config::rbac::v3::Policy;

use super::attribute::{Attribute, OperationAttribute, SourceAttribute};
use super::expression::Expression;
use super::translation::{Translation, Unsupported};
use super::{operation, source};
use navarch_api::istio::{AuthorizationOperation, AuthorizationRule, AuthorizationSource};

/// A clause of a rule: one of the values, and none of the negated ones.
#[derive(Clone, Debug)]
struct Clause<'a, A> {
    /// Its attribute; `None` if unknown.
    attribute: Option<A>,
    /// Allowed values; empty means any.
    values: Cow<'a, [String]>,
    /// Excluded values.
    not_values: Cow<'a, [String]>,
}

/// Conditions by the kind of attribute.
#[derive(Default)]
struct Conditions<'a> {
    /// Clauses about the operation.
    operation: Vec<Clause<'a, OperationAttribute<'a>>>,
    /// Clauses about the source.
    source: Vec<Clause<'a, SourceAttribute<'a>>>,
}

impl Translation<'_> {
    /// Translates a rule; `None` if it is removed.
    pub(super) fn rule(&self, rule: &AuthorizationRule) -> Option<Policy> {
        let conditions = self.conditions(rule);
        let mut permissions = Vec::with_capacity(rule.to.len().max(1));

        for to in &rule.to {
            let mut clauses = to
                .operation
                .as_ref()
                .map(operation_clauses)
                .unwrap_or_default();
            clauses.extend(conditions.operation.iter().cloned());
            permissions.push(self.conjunction(&clauses, |of, values| {
                operation::permission(self, of, values)
            })?);
        }

        if rule.to.is_empty() {
            let clauses = &conditions.operation;
            permissions.push(self.conjunction(clauses, |of, values| {
                operation::permission(self, of, values)
            })?);
        }

        let mut principals = Vec::with_capacity(rule.from.len().max(1));

        for from in &rule.from {
            let mut clauses = from
                .source
                .as_ref()
                .map(|source| self.source_clauses(source))
                .unwrap_or_default();
            clauses.extend(conditions.source.iter().cloned());
            principals.push(
                self.conjunction(&clauses, |of, values| source::principal(self, of, values))?,
            );
        }

        if rule.from.is_empty() {
            let clauses = &conditions.source;
            principals
                .push(self.conjunction(clauses, |of, values| source::principal(self, of, values))?);
        }

        Some(Policy {
            permissions,
            principals,
            ..Policy::default()
        })
    }

    fn conditions<'a>(&self, rule: &'a AuthorizationRule) -> Conditions<'a> {
        let mut conditions = Conditions::default();

        for when in &rule.when {
            if when.values.is_empty() && when.not_values.is_empty() {
                continue;
            }

            let values = Cow::from(&when.values);
            let not_values = Cow::from(&when.not_values);

            match Attribute::of_condition(&when.key) {
                Some(Attribute::Operation(attribute)) => {
                    conditions.operation.push(Clause {
                        attribute: Some(attribute),
                        values,
                        not_values,
                    });
                }
                Some(Attribute::Source(attribute)) => {
                    conditions
                        .source
                        .push(self.in_all_domains(attribute, values, not_values));
                }
                None => conditions.source.push(Clause {
                    attribute: None,
                    values,
                    not_values,
                }),
            }
        }

        conditions
    }

    fn source_clauses<'a>(
        &self,
        source: &'a AuthorizationSource,
    ) -> Vec<Clause<'a, SourceAttribute<'a>>> {
        let AuthorizationSource {
            principals,
            not_principals,
            request_principals,
            not_request_principals,
            namespaces,
            not_namespaces,
            service_accounts,
            not_service_accounts,
            ip_blocks,
            not_ip_blocks,
            remote_ip_blocks,
            not_remote_ip_blocks,
            trust_domains,
            not_trust_domains,
        } = source;

        let clauses = [
            (SourceAttribute::Principal, principals, not_principals),
            (
                SourceAttribute::TokenPrincipal,
                request_principals,
                not_request_principals,
            ),
            (
                SourceAttribute::ServiceAccount,
                service_accounts,
                not_service_accounts,
            ),
            (
                SourceAttribute::TrustDomain,
                trust_domains,
                not_trust_domains,
            ),
            (SourceAttribute::Namespace, namespaces, not_namespaces),
            (
                SourceAttribute::RemoteAddress,
                remote_ip_blocks,
                not_remote_ip_blocks,
            ),
            (SourceAttribute::Address, ip_blocks, not_ip_blocks),
        ];

        let given = clauses
            .into_iter()
            .filter(|(_, values, not_values)| !(values.is_empty() && not_values.is_empty()));
        given
            .map(|(attribute, values, others)| {
                self.in_all_domains(attribute, values.into(), others.into())
            })
            .collect()
    }

    /// A clause about the source, with trust domain aliases.
    fn in_all_domains<'a>(
        &self,
        attribute: SourceAttribute<'a>,
        values: Cow<'a, [String]>,
        not_values: Cow<'a, [String]>,
    ) -> Clause<'a, SourceAttribute<'a>> {
        let (values, not_values) = match attribute {
            SourceAttribute::Principal => (
                self.domains.principals(&values).into(),
                self.domains.principals(&not_values).into(),
            ),
            SourceAttribute::TrustDomain => (
                self.domains.domains(&values).into(),
                self.domains.domains(&not_values).into(),
            ),
            SourceAttribute::Namespace
            | SourceAttribute::ServiceAccount
            | SourceAttribute::Address
            | SourceAttribute::RemoteAddress
            | SourceAttribute::Header(_)
            | SourceAttribute::TokenPrincipal
            | SourceAttribute::Claim(_) => (values, not_values),
        };

        Clause {
            attribute: Some(attribute),
            values,
            not_values,
        }
    }

    /// One of the values. `None` if none of them is supported and the clause is removed.
    pub(super) fn one_of<E: Expression>(
        &self,
        values: &[String],
        say: impl Fn(&str) -> Result<E, Unsupported>,
    ) -> Result<Option<E>, Unsupported> {
        let mut parts = Vec::with_capacity(values.len());
        for value in values {
            match say(value) {
                Ok(part) => parts.push(part),
                Err(Unsupported) if self.narrows => return Err(Unsupported),
                Err(Unsupported) => {}
            }
        }
        Ok((!parts.is_empty()).then(|| E::either(parts)))
    }

    /// The conjunction of all clauses; `None` if the rule is removed.
    fn conjunction<A, E: Expression>(
        &self,
        clauses: &[Clause<'_, A>],
        say: impl Fn(&A, &[String]) -> Result<Option<E>, Unsupported>,
    ) -> Option<E> {
        let say = |clause: &Clause<'_, A>, values: &[String]| match &clause.attribute {
            _ if values.is_empty() => Ok(None),
            Some(attribute) => say(attribute, values),
            None => Err(Unsupported),
        };
        let heed = |result: Result<Option<E>, Unsupported>| match result {
            Ok(part) => Some(part),
            Err(Unsupported) => (!self.narrows).then_some(None),
        };

        let mut parts = Vec::with_capacity(clauses.len());

        for clause in clauses {
            parts.extend(heed(say(clause, &clause.values))?);
            parts.extend(heed(say(clause, &clause.not_values))?.map(E::not));
        }

        if parts.is_empty() {
            parts.push(E::any());
        }

        Some(E::all(parts))
    }
}

fn operation_clauses(
    operation: &AuthorizationOperation,
) -> Vec<Clause<'_, OperationAttribute<'_>>> {
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

    let clauses = [
        (OperationAttribute::Host, hosts, not_hosts),
        (OperationAttribute::Method, methods, not_methods),
        (OperationAttribute::Path, paths, not_paths),
        (OperationAttribute::Port, ports, not_ports),
    ];

    let given = clauses
        .into_iter()
        .filter(|(_, values, not_values)| !(values.is_empty() && not_values.is_empty()));
    given
        .map(|(attribute, values, others)| Clause {
            attribute: Some(attribute),
            values: values.into(),
            not_values: others.into(),
        })
        .collect()
}
