//! Rules for the conditions of AuthorizationPolicies.

use super::Verdict;
use super::authorization_values::{
    address, each, edge_wildcard, not_empty, port, service_accounts,
};
use super::path::Path;
use crate::istio::AuthorizationCondition;

/// The type of a condition's values, which depends on its key.
enum Attribute {
    /// Any text that is not empty.
    Text,
    Addresses,
    Ports,
    ServiceAccounts,
    /// Texts with a wildcard at the start or the end.
    EdgeWildcards,
}

/// Validates a condition.
pub(super) fn condition(verdict: &mut Verdict, at: &Path<'_>, condition: &AuthorizationCondition) {
    let AuthorizationCondition {
        key,
        values,
        not_values,
    } = condition;
    let key_at = &at.field("key");

    if key.is_empty() {
        verdict.error(key_at, "is missing; write an attribute, such as source.ip");
        return;
    }

    if values.is_empty() && not_values.is_empty() {
        verdict.error(
            &at.field("values"),
            "is empty, and so is notValues; write what the attribute must be",
        );
        return;
    }

    match attribute(key) {
        Err(message) => verdict.error(key_at, message),
        Ok(attribute) => {
            for (field, values) in [("values", values), ("notValues", not_values)] {
                list(verdict, &at.field(field), &attribute, values);
            }
        }
    }
}

/// Validates the values of an attribute.
fn list(verdict: &mut Verdict, at: &Path<'_>, attribute: &Attribute, values: &[String]) {
    match attribute {
        Attribute::Text => each(verdict, at, values, not_empty),
        Attribute::Addresses => each(verdict, at, values, address),
        Attribute::Ports => each(verdict, at, values, port),
        Attribute::ServiceAccounts => service_accounts(verdict, at, values),
        Attribute::EdgeWildcards => each(verdict, at, values, edge_wildcard),
    }
}

fn attribute(key: &str) -> Result<Attribute, String> {
    match key {
        "source.ip" | "remote.ip" | "destination.ip" => Ok(Attribute::Addresses),
        "destination.port" => Ok(Attribute::Ports),
        "source.serviceAccount" => Ok(Attribute::ServiceAccounts),
        "source.trustDomain" => Ok(Attribute::EdgeWildcards),
        "source.namespace"
        | "source.principal"
        | "request.auth.principal"
        | "request.auth.audiences"
        | "request.auth.presenter"
        | "connection.sni" => Ok(Attribute::Text),

        "destination.namespace" => {
            Err("is not an attribute; a policy applies to its own namespace".to_owned())
        }
        "destination.name" | "destination.user" => {
            Err("is no longer an attribute; select workloads instead".to_owned())
        }
        _ if key.starts_with("destination.labels") => {
            Err("is not an attribute; use spec.selector instead".to_owned())
        }

        _ if [
            "request.headers",
            "request.auth.claims",
            "experimental.envoy.filters.",
        ]
        .iter()
        .any(|prefix| key.starts_with(prefix)) =>
        {
            names_member(key).then_some(Attribute::Text).ok_or_else(|| {
                format!(
                    "{key:?} lacks a name; write it in brackets, as in request.headers[x-token]"
                )
            })
        }

        _ => Err(format!("{key:?} is not an attribute")),
    }
}

/// Whether a key has the form `a[b]`.
fn names_member(key: &str) -> bool {
    key.ends_with(']')
        && key
            .find('[')
            .is_some_and(|open| open > 0 && open + 2 < key.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_in_brackets() {
        assert!(names_member("request.headers[a]") && names_member("request.auth.claims[a][b]"));
        assert!(
            !names_member("request.headers")
                && !names_member("request.headers[]")
                && !names_member("[a]")
        );
    }
}
