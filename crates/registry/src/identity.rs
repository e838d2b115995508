//! SPIFFE ids of workloads (Istio's `pkg/spiffe`).

use std::sync::Arc;

use navarch_api::names::TrustDomain;

/// The id of a ServiceAccount: `spiffe://<trust domain>/ns/<namespace>/sa/<account>`.
#[must_use]
pub fn spiffe_id(trust_domain: &str, namespace: &str, service_account: &str) -> Arc<str> {
    let trust_domain = TrustDomain::in_ids(trust_domain);
    let parts = [
        "spiffe://",
        trust_domain.as_str(),
        "/ns/",
        namespace,
        "/sa/",
        service_account,
    ];
    Arc::from(parts.concat())
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
