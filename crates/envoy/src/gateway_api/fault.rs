//! Faults of user input, as reported in conditions.

/// A fault: the reason of a condition and its message (istiod's `ConfigError`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fault {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A reference is invalid.
pub(super) const INVALID_DESTINATION: &str = "InvalidDestination";
/// No ReferenceGrant allows a reference.
pub(super) const REF_NOT_PERMITTED: &str = "RefNotPermitted";
/// The kind of a reference is not supported.
pub(super) const INVALID_KIND: &str = "InvalidKind";
/// The backend does not exist.
pub(super) const BACKEND_NOT_FOUND: &str = "BackendNotFound";
pub(super) const INVALID_FILTER: &str = "InvalidFilter";
/// Another part is invalid.
pub(super) const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
pub(super) const INVALID_CERTIFICATE_REF: &str = "InvalidCertificateRef";
pub(super) const INVALID_CA_CERTIFICATE_REF: &str = "InvalidCACertificateRef";
/// The kind of a CA certificate reference is not supported.
pub(super) const INVALID_CA_CERTIFICATE_KIND: &str = "InvalidCACertificateKind";
/// The client certificate for backends is invalid.
pub(super) const INVALID_CLIENT_CERTIFICATE_REF: &str = "InvalidClientCertificateRef";

impl Fault {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Joins two faults: the reason is that of the first.
    pub(super) fn joined(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => Some(Self {
                message: format!("{}; {}", first.message, second.message),
                ..first
            }),
            (first, second) => first.or(second),
        }
    }
}
