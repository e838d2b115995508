//! The identity of a workload: trust domain, namespace and service account, as in a SPIFFE id.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::names::{ClusterId, Namespace, ServiceAccount, TrustDomain};
use super::object::NamespacedName;

/// The prefix of every SPIFFE id.
const SCHEME: &str = "spiffe://";
/// The longest SPIFFE id that the standard allows, in bytes.
const MAX_BYTES: usize = 2048;

/// The identity of a workload; prints as
/// `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The trust domain that issues the identity.
    pub trust_domain: TrustDomain,
    /// Follows `/ns/` in the SPIFFE id: where the pod and its service account are.
    pub namespace: Namespace,
    /// Follows `/sa/` in the SPIFFE id: `default` if the pod names no other.
    pub service_account: ServiceAccount,
}

/// The authenticated identity of a caller, which the authenticator adds to a request's extensions.
/// Absent without authentication, as on plaintext ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// All authenticated identities, in order.
    pub identities: Vec<Identity>,
    /// The pod that its token is bound to, if the token contains it.
    pub pod: Option<PodOfCaller>,
    /// When its token or certificate expires, if known. Its open streams end then.
    pub expires: Option<Timestamp>,
}

/// When a caller's credential expires: a request extension, set where the caller's identity itself
/// is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CredentialExpiry(pub Timestamp);

/// The pod that a caller runs in, as reported by the verifier of its token. Its namespace is that
/// of the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOfCaller {
    /// The pod's name.
    pub name: Arc<str>,
    /// Its UID, which no later pod of the same name has.
    pub uid: Arc<str>,
    /// The remote cluster whose API server reported the pod; `None` if none did, or if it was the
    /// cluster that configures the mesh.
    pub cluster: Option<ClusterId>,
}

/// Why a text is not a workload's identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an identity: it must be spiffe://<trust domain>/ns/<namespace>/sa/<service account>"
)]
pub struct IdentityError(String);

impl Identity {
    /// Parses a SPIFFE id as Istio writes it: no part is empty or contains a slash, and nothing
    /// follows.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let parts = || {
            let (trust_domain, path) = text.strip_prefix(SCHEME)?.split_once('/')?;
            let (namespace, service_account) = path.strip_prefix("ns/")?.split_once("/sa/")?;
            let parts = [trust_domain, namespace, service_account];
            let good = |part: &str| !part.is_empty() && part.bytes().all(is_allowed);
            // A trust domain may contain a port, or the `@` of an account.
            let domain = trust_domain.replace([':', '@'], ".");
            (good(&domain) && good(namespace) && good(service_account)).then_some(parts)
        };

        let shown = || text.chars().take(200).collect();
        let [trust_domain, namespace, service_account] = (text.len() <= MAX_BYTES)
            .then(parts)
            .flatten()
            .ok_or_else(|| IdentityError(shown()))?;

        Ok(Self {
            trust_domain: TrustDomain::new(trust_domain),
            namespace: Namespace::new(namespace),
            service_account: ServiceAccount::new(service_account),
        })
    }

    /// Namespace and name of its service account.
    #[must_use]
    pub fn account(&self) -> NamespacedName {
        NamespacedName::new(self.namespace.as_str(), self.service_account.as_str())
    }
}

/// Whether a part of a SPIFFE id may contain this byte.
fn is_allowed(sign: u8) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, b'.' | b'-' | b'_')
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trust_domain,
            namespace,
            service_account,
        } = self;
        write!(
            f,
            "{SCHEME}{trust_domain}/ns/{namespace}/sa/{service_account}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_prints_as_it_is_read() {
        let text = "spiffe://cluster.local/ns/shop/sa/web";
        let identity = Identity::parse(text).unwrap();
        assert_eq!(identity.to_string(), text);
        assert_eq!(identity.account(), NamespacedName::new("shop", "web"));
    }

    #[test]
    fn malformed_spiffe_ids_are_rejected() {
        for text in [
            "",
            "shop/web",
            "spiffe://cluster.local",
            "spiffe:///ns/shop/sa/web",
            "spiffe://td/ns//sa/web",
            "spiffe://td/ns/shop/sa/",
            "spiffe://td/ns/shop/sa/web/x",
            "spiffe://td/ns/shop/x/sa/web",
            "spiffe://td/ns/shop/sa/web\n",
            "spiffe://td/ns/shop/sa/web:x",
            "https://td/ns/shop/sa/web",
        ] {
            assert!(Identity::parse(text).is_err(), "{text:?}");
        }
    }
}
