//! The common interface of permissions and principals of Envoy's RBAC: expressions of and, or, not.

use navarch_proto::envoy::config::rbac::v3::{Permission, Principal, permission, principal};

/// An expression over a request or a connection.
pub(super) trait Expression: Sized {
    /// Always true.
    fn any() -> Self;

    /// True if all parts are.
    fn all(parts: Vec<Self>) -> Self;

    /// True if any part is.
    fn either(parts: Vec<Self>) -> Self;

    /// True if the part is not.
    fn not(part: Self) -> Self;
}

impl Expression for Permission {
    fn any() -> Self {
        Self {
            rule: Some(permission::Rule::Any(true)),
        }
    }

    fn all(rules: Vec<Self>) -> Self {
        Self {
            rule: Some(permission::Rule::AndRules(permission::Set { rules })),
        }
    }

    fn either(rules: Vec<Self>) -> Self {
        Self {
            rule: Some(permission::Rule::OrRules(permission::Set { rules })),
        }
    }

    fn not(part: Self) -> Self {
        Self {
            rule: Some(permission::Rule::NotRule(Box::new(part))),
        }
    }
}

impl Expression for Principal {
    fn any() -> Self {
        Self {
            identifier: Some(principal::Identifier::Any(true)),
        }
    }

    fn all(ids: Vec<Self>) -> Self {
        Self {
            identifier: Some(principal::Identifier::AndIds(principal::Set { ids })),
        }
    }

    fn either(ids: Vec<Self>) -> Self {
        Self {
            identifier: Some(principal::Identifier::OrIds(principal::Set { ids })),
        }
    }

    fn not(part: Self) -> Self {
        Self {
            identifier: Some(principal::Identifier::NotId(Box::new(part))),
        }
    }
}
