//! SPIFFE ids of workloads (Istio's `pkg/spiffe`).

use std::sync::Arc;

/// The id of a ServiceAccount: `spiffe://<trust domain>/ns/<namespace>/sa/<account>`.
///
/// An `@` in the trust domain (a Google service account) is replaced, because an id cannot contain
/// it.
#[must_use]
pub fn spiffe_id(trust_domain: &str, namespace: &str, service_account: &str) -> Arc<str> {
    let trust_domain = trust_domain.replace('@', ".");
    Arc::from(format!(
        "spiffe://{trust_domain}/ns/{namespace}/sa/{service_account}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_at_sign_in_the_trust_domain_becomes_a_dot() {
        assert_eq!(
            &*spiffe_id("me@corp.example", "shop", "web"),
            "spiffe://me.corp.example/ns/shop/sa/web"
        );
    }
}
