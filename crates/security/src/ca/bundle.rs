//! What an authority is made of, as text: certificate, key, chain and roots.

use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_api::kubernetes::SecretBytes;
use navarch_pki::KeyType;
use navarch_pki::pem::{self, PemError};

/// How long before now new certificates begin to hold, for clocks that are late.
pub(super) const BACKDATE: Duration = Duration::from_secs(120);

/// What the certificate that signs is called in errors.
const SIGNING: &str = "the CA's certificate";

/// What an authority is made of, in PEM. Nothing is checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The certificate that signs.
    pub certificate: String,
    /// Its key.
    pub key: SecretBytes,
    /// From the signing certificate up, roots excepted; empty where it is a root itself.
    pub chain: String,
    /// The roots.
    pub roots: String,
    /// Lists of revoked certificates; empty is none.
    pub revocations: String,
}

/// Why a bundle makes no authority.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A certificate or the key cannot be read.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The key is of an unknown kind.
    #[error("the CA's key cannot be used")]
    Key,
    /// The key is another certificate's.
    #[error("the CA's key does not match its certificate")]
    Mismatch,
    /// The certificate must not sign others.
    #[error("the CA's certificate may not sign others: it is not a CA certificate")]
    NoCa,
    /// The certificate holds no longer, or not yet.
    #[error("the CA's certificate has expired or is not valid yet")]
    Expired,
    /// The roots do not vouch for the certificate.
    #[error("no root verifies the CA's certificate through its chain")]
    Unrooted,
    /// Making a certificate failed.
    #[error("failed to generate a certificate")]
    Make(#[from] rcgen::Error),
}

/// Reads a list of certificates, which may be empty; `what` names it in errors.
///
/// # Errors
/// When one cannot be read.
pub(super) fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    match pem::certificates(pem.as_bytes(), what) {
        Err(PemError::NoCertificate(_)) => Ok(Vec::new()),
        read => Ok(read?),
    }
}

/// The CA's certificate; the first, where the text holds several.
///
/// # Errors
/// When there is none, or one cannot be read.
pub(super) fn signing_certificate(pem: &str) -> Result<CertificateDer<'static>, BundleError> {
    let first = pem::certificates(pem.as_bytes(), SIGNING)?.into_iter().next();
    Ok(first.ok_or_else(|| PemError::NoCertificate(SIGNING.to_owned()))?)
}

/// A certificate of the CA, taken apart.
///
/// # Errors
/// When it cannot be read.
pub(super) fn parse_signing<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, BundleError> {
    let parsed = X509Certificate::from_der(certificate);
    Ok(parsed.map_err(|_| PemError::Unreadable(SIGNING.to_owned()))?.1)
}

/// When a certificate begins and ends to hold; the first, where the text holds several.
///
/// # Errors
/// When there is none that can be read.
pub(super) fn validity(pem: &str) -> Result<(SystemTime, SystemTime), BundleError> {
    let first = signing_certificate(pem)?;
    let validity = parse_signing(&first)?.validity().clone();
    Ok((at(validity.not_before.timestamp()), at(validity.not_after.timestamp())))
}

/// A moment of X.509.
pub(super) fn at(seconds: i64) -> SystemTime {
    match u64::try_from(seconds) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        Err(_) => SystemTime::UNIX_EPOCH,
    }
}

impl Bundle {
    /// A new root that signs itself.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn self_signed(
        organization: &str,
        key_type: KeyType,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Self, BundleError> {
        let key = key_type.generate()?;
        let mut name = DistinguishedName::new();
        name.push(DnType::OrganizationName, organization);
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = (now - BACKDATE).into();
        params.not_after = (now + lifetime).into();
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            key: SecretBytes::new(key.serialize_pem()),
            chain: String::new(),
            roots: certificate.clone(),
            certificate,
            revocations: String::new(),
        })
    }
}
