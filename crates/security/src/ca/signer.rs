//! The seam between the registration authority and whoever signs: Kubernetes, a plugin, SPIRE or
//! cert-manager.
//!
//! A signer copies the content of a CSR, so, unlike in Navarch's own CA, all of it is checked
//! before. What the signer returns is checked again: neither side is trusted to name identities.

mod check;
mod grpc;
mod kubernetes;
mod pinned;
#[cfg(test)]
pub(super) mod tests;

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use super::bundle::BundleError;
use navarch_api::identity::Identity;
use navarch_api::names::Namespace;
use navarch_base::error_chain::chain;
use navarch_base::printable::{Layout, bounded};

pub use grpc::call_error;
pub use kubernetes::{api_error, is_rejection};
pub use pinned::{PinnedRootsError, pinned};

/// Maximum length of a signer's text in errors, logs and pages, in bytes.
const MAX_REASON_BYTES: usize = 300;
/// Maximum length of a caller's name of a signer in errors, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Signs checked requests. Implementations call another program or server, and hold no key.
#[tonic::async_trait]
pub trait Signer: Send + Sync {
    /// The name in logs, metrics and pages, such as `spire`.
    fn name(&self) -> &'static str;

    /// Has a request signed. Cancelled by dropping, after the limit of the registration authority.
    ///
    /// # Errors
    /// [`SignerError::Unreachable`] if the signer is unreachable, which breaks the circuit to it for
    /// a time; [`SignerError::Unavailable`] if it was reached and is unavailable, which does so for
    /// the namespace of the request; others for this request only.
    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError>;

    /// The roots in which chains may end, in PEM, empty until they are known; `None` if users
    /// configure them elsewhere, and distribute them before they are used.
    fn roots(&self) -> Option<watch::Receiver<Arc<str>>>;

    /// The time that a request may take whatever is configured, because the signer waits for others
    /// that have limits of their own.
    fn min_timeout(&self) -> Duration {
        Duration::ZERO
    }
}

/// Where a signer's roots come from.
#[derive(Clone, Debug)]
pub enum RootsSource {
    /// From a file: the signer is not asked for its own.
    Pinned(watch::Receiver<Arc<str>>),
    /// From the signer.
    Signer,
}

impl RootsSource {
    /// The watch of the roots in PEM, and who sends those of the signer; `None` if they are pinned.
    pub(super) fn channel(self) -> (Option<watch::Sender<Arc<str>>>, watch::Receiver<Arc<str>>) {
        match self {
            Self::Pinned(roots) => (None, roots),
            Self::Signer => {
                let (sender, roots) = watch::channel(Arc::default());
                (Some(sender), roots)
            }
        }
    }
}

/// A CSR that requests an identity and nothing else.
#[derive(Clone, Debug)]
pub struct CheckedRequest {
    /// In DER.
    der: Vec<u8>,
    /// In PEM.
    pem: Arc<str>,
    /// The public key, as in certificates (SubjectPublicKeyInfo in DER).
    key: Vec<u8>,
    identity: Identity,
    lifetime: Duration,
    /// The signer that the caller names; empty for the default one.
    named_signer: String,
}

/// A signer's answer, not checked.
#[derive(Clone, Debug)]
pub struct SignedChain {
    /// The leaf, then its issuers; roots may be among them.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The roots that must verify it, in PEM.
    pub roots: Arc<str>,
    /// Those of them that stay trusted, but in which no new certificate may end.
    pub tainted: Arc<[CertificateDer<'static>]>,
}

/// A checked certificate.
#[derive(Clone, Debug)]
pub struct IssuedChain {
    /// The leaf, then its issuers, without roots.
    pub chain: Vec<CertificateDer<'static>>,
    /// The root that verifies it.
    pub root: CertificateDer<'static>,
    /// All roots of the signer, in PEM.
    pub roots: Arc<str>,
    /// The serial number, as in `openssl x509 -serial`, for logs.
    pub serial: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The CSR requests more than the caller's identity.
    #[error("the CSR requests {0}; only the caller's identity is allowed")]
    Beyond(String),
    /// The request names a signer that cannot be used.
    #[error("{0}")]
    Request(String),
    /// Too many requests of one namespace.
    #[error("too many certificate requests for namespace {0}; try again later")]
    Rate(Namespace),
    /// Too many requests wait.
    #[error("too many certificate requests wait for the signer; try again later")]
    QueueFull,
    /// The signer is unreachable, for whomever.
    #[error("the signer is unreachable: {0}")]
    Unreachable(Arc<str>),
    /// The signer, or a service that it needs for this request, reports to be unavailable.
    #[error("the signer is unavailable for this namespace: {0}")]
    Unavailable(Arc<str>),
    /// The signer cannot sign this request now.
    #[error("the signer is busy: {0}")]
    Busy(String),
    /// The signer did not answer in time.
    #[error("the signer did not respond within {0:?}")]
    TimedOut(Duration),
    /// The signer's policy denies the request.
    #[error("the signer denied the request: {0}")]
    Denied(String),
    /// The signer has answered with a failure of its own.
    #[error("the signer failed: {0}")]
    Failed(String),
    /// The certificate differs from the request.
    #[error("the signer's certificate is {0}")]
    Mismatch(&'static str),
    /// The certificate is unreadable, or no root verifies it.
    #[error("the signer returned an unusable certificate")]
    Chain(#[from] BundleError),
    /// The roots of the signer are not known.
    #[error("the signer's roots are not known yet")]
    NoRoots,
    /// The certificate ends in a root that proxies do not trust yet; its subject.
    #[error("the signer's new root {0} is still being distributed to proxies")]
    Undistributed(String),
}

impl CheckedRequest {
    /// Checks that a CSR (PEM) requests this identity and nothing else.
    ///
    /// # Errors
    /// [`SignerError::Beyond`] if it requests more, or is encoded in an unusual way.
    pub fn new(
        pem: &str,
        identity: Identity,
        lifetime: Duration,
        named_signer: &str,
    ) -> Result<Self, SignerError> {
        let (der, key) = check::request(pem, &identity)?;
        Ok(Self {
            der,
            pem: Arc::from(pem),
            key,
            identity,
            lifetime,
            named_signer: named_signer.to_owned(),
        })
    }

    /// The CSR as it was checked, in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The CSR as the caller sent it, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The identity of the certificate.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The lifetime to ask for.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// The signer that the caller names (`CertSigner`); empty for the default one.
    #[must_use]
    pub fn named_signer(&self) -> &str {
        &self.named_signer
    }

    /// For a signer that signs alone, described by `only`: rejects a request that names one.
    ///
    /// # Errors
    /// If the caller names a signer.
    pub(super) fn names_no_signer(&self, only: impl Display) -> Result<(), SignerError> {
        if self.named_signer.is_empty() {
            return Ok(());
        }
        let named = bounded(&self.named_signer, MAX_NAME_BYTES, Layout::Quoted);
        Err(SignerError::Request(format!(
            "the signer \"{named}\" cannot be used: {only} signs for all"
        )))
    }

    /// Checks a signer's answer: the key, the identity as only name, no CA, usages, an end at most
    /// `max_lifetime` from now, and a chain to one of the roots.
    ///
    /// # Errors
    /// If the certificate may not be handed out.
    pub fn accept(
        &self,
        signed: SignedChain,
        max_lifetime: Duration,
        now: SystemTime,
    ) -> Result<IssuedChain, SignerError> {
        check::chain(self, signed, max_lifetime, now)
    }
}

impl SignerError {
    /// An unreachable signer, with the reason of a failed connection.
    #[must_use]
    pub fn unreachable(error: &(dyn Error + 'static)) -> Self {
        Self::Unreachable(reason(&chain(error)).into())
    }

    /// An unavailable signer, with the reason of a failed call.
    #[must_use]
    pub fn unavailable(error: &(dyn Error + 'static)) -> Self {
        Self::Unavailable(reason(&chain(error)).into())
    }

    /// A temporary failure in the signer's words, cut and escaped.
    #[must_use]
    pub fn busy(text: &str) -> Self {
        Self::Busy(reason(text))
    }

    /// A denial in the signer's words, cut and escaped.
    #[must_use]
    pub fn denied(text: &str) -> Self {
        Self::Denied(reason(text))
    }

    /// A failure in the signer's words, cut and escaped.
    #[must_use]
    pub fn failed(text: &str) -> Self {
        Self::Failed(reason(text))
    }

    /// Whether the signer has answered, and so was reached.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Beyond(_)
            | Self::Request(_)
            | Self::Rate(_)
            | Self::QueueFull
            | Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::NoRoots => false,
            Self::Unavailable(_)
            | Self::Busy(_)
            | Self::Denied(_)
            | Self::Failed(_)
            | Self::Mismatch(_)
            | Self::Chain(_)
            | Self::Undistributed(_) => true,
        }
    }

    /// The value of the label `result` in metrics.
    #[must_use]
    pub fn result(&self) -> &'static str {
        match self {
            Self::Beyond(_) | Self::Request(_) => "rejected",
            Self::Rate(_) | Self::QueueFull => "limited",
            Self::Unreachable(_) | Self::NoRoots => "unreachable",
            Self::Unavailable(_) => "unavailable",
            Self::Busy(_) => "busy",
            Self::TimedOut(_) => "timed_out",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::Mismatch(_) | Self::Chain(_) => "unusable",
            Self::Undistributed(_) => "undistributed",
        }
    }
}

/// A signer's text in one line, cut and escaped.
fn reason(text: &str) -> String {
    bounded(text, MAX_REASON_BYTES, Layout::Quoted)
}
