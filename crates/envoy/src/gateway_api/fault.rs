//! Faults of user input, as reported in conditions.

/// Why something does not work: the reason of a condition and its message (istiod's `ConfigError`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fault {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A reference is not good in itself.
pub(super) const INVALID_DESTINATION: &str = "InvalidDestination";
/// No ReferenceGrant allows a reference.
pub(super) const REF_NOT_PERMITTED: &str = "RefNotPermitted";
/// A reference is to a kind that cannot be referred to.
pub(super) const INVALID_KIND: &str = "InvalidKind";
/// The backend is not there.
pub(super) const BACKEND_NOT_FOUND: &str = "BackendNotFound";
/// A filter is not good.
pub(super) const INVALID_FILTER: &str = "InvalidFilter";
/// Something else is not good.
pub(super) const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
/// A certificate is not good.
pub(super) const INVALID_CERTIFICATE_REF: &str = "InvalidCertificateRef";
/// A CA certificate is not good.
pub(super) const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
/// A CA certificate is of a kind that has none.
pub(super) const INVALID_CA_CERTIFICATE_KIND: &str = "InvalidCACertificateKind";
/// The certificate for backends is not good.
pub(super) const INVALID_CLIENT_CERTIFICATE_REF: &str = "InvalidClientCertificateRef";

impl Fault {
    /// From a reason and a message.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Both, as one: the reason is that of the first.
    pub(super) fn joined(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => {
                Some(Self { message: format!("{}; {}", first.message, second.message), ..first })
            }
            (first, second) => first.or(second),
        }
    }
}
