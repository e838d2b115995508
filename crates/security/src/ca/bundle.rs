//! The parts of an authority as text: certificate, key, chain and roots.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_api::kubernetes::SecretBytes;
use navarch_pki::KeyType;
use navarch_pki::pem::{self, PemError};

/// How long before now the validity of new certificates begins, because clocks may be late.
pub(super) const BACKDATE: Duration = Duration::from_secs(120);

/// The name of the signing certificate in errors.
const SIGNING: &str = "the CA's certificate";

/// The parts of an authority in PEM, not validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The signing certificate.
    pub certificate: String,
    /// The key of the signing certificate.
    pub key: SecretBytes,
    /// The chain from the signing certificate up to its root, without the root; empty if the
    /// certificate is a root itself.
    pub chain: String,
    /// The root certificates that the mesh trusts. One of them verifies the chain.
    pub roots: String,
    /// CRLs; empty if there are none.
    pub revocations: String,
}

/// Why a bundle is not a valid authority.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A certificate or the key is invalid.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The key has an unknown type.
    #[error("the CA's key is unsupported")]
    Key,
    /// The key does not match the certificate.
    #[error("the CA's key does not match its certificate")]
    Mismatch,
    /// The certificate may not sign others.
    #[error("the CA's certificate is not a CA certificate")]
    NoCa,
    /// The certificate has expired, or is not valid yet.
    #[error("the CA's certificate has expired or is not valid yet")]
    Expired,
    /// No root verifies the certificate.
    #[error("no root verifies the CA's certificate through its chain")]
    Unrooted,
    /// Generating a certificate failed.
    #[error("failed to generate a certificate")]
    Make(#[from] rcgen::Error),
}

/// Parses a list of certificates, which may be empty; `what` names it in errors.
///
/// # Errors
/// If a certificate is invalid.
pub(super) fn certificates(
    pem: &str,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    match pem::certificates(pem.as_bytes(), what) {
        Err(PemError::NoCertificate(_)) => Ok(Vec::new()),
        read => Ok(read?),
    }
}

/// The signing certificate: the first one, if the text contains several.
///
/// # Errors
/// If there is none, or one is invalid.
pub(super) fn signing_certificate(pem: &str) -> Result<CertificateDer<'static>, BundleError> {
    let first = pem::certificates(pem.as_bytes(), SIGNING)?
        .into_iter()
        .next();
    Ok(first.ok_or_else(|| PemError::NoCertificate(SIGNING.to_owned()))?)
}

/// Parses the signing certificate.
///
/// # Errors
/// If it is invalid.
pub(super) fn parse_signing<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, BundleError> {
    let parsed = X509Certificate::from_der(certificate);
    Ok(parsed
        .map_err(|_| PemError::Unreadable(SIGNING.to_owned()))?
        .1)
}

/// The validity period of the first certificate in a text.
///
/// # Errors
/// If there is no valid certificate.
pub(super) fn validity(pem: &str) -> Result<(SystemTime, SystemTime), BundleError> {
    let first = signing_certificate(pem)?;
    let validity = parse_signing(&first)?.validity().clone();
    Ok((
        at(validity.not_before.timestamp()),
        at(validity.not_after.timestamp()),
    ))
}

/// Converts an X.509 time.
pub(super) fn at(seconds: i64) -> SystemTime {
    match u64::try_from(seconds) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        Err(_) => SystemTime::UNIX_EPOCH,
    }
}

impl Bundle {
    /// Generates a new self-signed root.
    ///
    /// # Errors
    /// If the system has no randomness.
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
