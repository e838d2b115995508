//! Signs certificates.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::RootBundle;
use super::bundle::{
    BACKDATE, Bundle, BundleError, at, certificates, parse_signing, signing_certificate,
};
use navarch_api::identity::Identity;
use navarch_net::cryptography;
use navarch_pki::{KeyType, SigningRequest, pem};

/// Random bytes of a serial number: enough to avoid collisions, and positive in DER without an
/// additional byte.
const SERIAL_BYTES: usize = 16;

/// An authority that can sign.
pub struct Authority {
    /// The signing certificate and key.
    issuer: Issuer<'static, KeyPair>,
    /// The type of new keys: RSA or ECDSA, like the signing key.
    key_type: KeyType,
    /// The chain from the signing certificate up, without roots; sent with every certificate. Empty
    /// for a root.
    chain: Vec<CertificateDer<'static>>,
    roots: RootBundle,
    root_certificates: Vec<CertificateDer<'static>>,
    /// CRLs in PEM.
    revocations: Arc<str>,
    /// The expiry of the signing certificate.
    not_after: SystemTime,
}

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A workload: the certificate has its SPIFFE ID as a URI SAN.
    Workload(Identity),
    /// A server with these DNS names.
    Server(Vec<String>),
}

/// Lifetimes of workload certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// `DEFAULT_WORKLOAD_CERT_TTL`: the lifetime if none is requested. Default 24 h.
    pub default: Duration,
    /// `MAX_WORKLOAD_CERT_TTL`: the maximum lifetime that may be requested. Default 90 days.
    pub max: Duration,
}

/// Why the CA does not issue a certificate.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The requested lifetime is too long.
    #[error("the requested lifetime of {requested:?} exceeds the maximum of {max:?}")]
    TooLong {
        /// The requested lifetime.
        requested: Duration,
        /// The maximum lifetime.
        max: Duration,
    },
    /// The CA's own certificate has expired.
    #[error("the CA certificate has expired")]
    Expired,
    /// A name cannot be encoded in a certificate.
    #[error("invalid name for a certificate")]
    Name,
    /// Signing failed.
    #[error("signing failed")]
    Sign(#[from] rcgen::Error),
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            default: Duration::from_secs(24 * 3600),
            max: Duration::from_secs(90 * 24 * 3600),
        }
    }
}

impl Lifetimes {
    /// The lifetime for a request in seconds; the default for zero and negative numbers.
    ///
    /// # Errors
    /// If the requested lifetime exceeds the maximum.
    pub fn grant(self, seconds: i64) -> Result<Duration, SignError> {
        match u64::try_from(seconds) {
            Err(_) | Ok(0) => Ok(self.default.min(self.max)),
            Ok(seconds) => {
                let requested = Duration::from_secs(seconds);
                if requested > self.max {
                    return Err(SignError::TooLong {
                        requested,
                        max: self.max,
                    });
                }
                Ok(requested)
            }
        }
    }
}

impl Authority {
    /// Creates an authority from a bundle.
    ///
    /// # Errors
    /// If a part is invalid, the parts do not match, or the certificate may not sign.
    pub fn new(bundle: &Bundle, now: SystemTime) -> Result<Self, BundleError> {
        let signing = signing_certificate(&bundle.certificate)?;
        let parsed = parse_signing(&signing)?;
        if !parsed.is_ca() {
            return Err(BundleError::NoCa);
        }

        let not_after = at(parsed.validity().not_after.timestamp());
        if not_after <= now || at(parsed.validity().not_before.timestamp()) > now + BACKDATE {
            return Err(BundleError::Expired);
        }

        let key = pem::private_key(bundle.key.expose(), "the CA's key")?;
        let key = KeyPair::try_from(&key).map_err(|_| BundleError::Key)?;
        if key.subject_public_key_info() != parsed.public_key().raw {
            return Err(BundleError::Mismatch);
        }

        let root_certificates = certificates(&bundle.roots, "the roots")?;
        let mut chain = certificates(&bundle.chain, "the chain")?;
        chain.retain(|certificate| !root_certificates.contains(certificate));
        if !root_certificates.contains(&signing) && !chain.contains(&signing) {
            chain.insert(0, signing.clone());
        }

        verifying_root(&signing, &chain, &root_certificates)?;
        let key_type = if key.is_compatible(&rcgen::PKCS_RSA_SHA256) {
            KeyType::Rsa2048
        } else {
            KeyType::P256
        };

        let issuer = Issuer::from_ca_cert_der(&signing, key)?;
        let roots = RootBundle::new(&bundle.roots);
        let revocations = Arc::from(bundle.revocations.as_str());
        Ok(Self {
            issuer,
            key_type,
            chain,
            roots,
            root_certificates,
            revocations,
            not_after,
        })
    }

    /// Signs a certificate for the key of a CSR. It expires at the latest with the CA's own.
    /// Returns the chain, leaf first, without roots.
    ///
    /// # Errors
    /// If the CA's own certificate has expired, or a name cannot be encoded.
    pub fn sign(
        &self,
        request: &SigningRequest,
        subject: &Subject,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Vec<CertificateDer<'static>>, SignError> {
        self.certify(request.public_key(), subject, lifetime, now)
    }

    /// Generates a key of the CA's type, and signs its certificate.
    ///
    /// # Errors
    /// See [`Authority::sign`].
    pub fn issue(
        &self,
        subject: &Subject,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivatePkcs8KeyDer<'static>), SignError> {
        let key = self.key_type.generate()?;
        let chain = self.certify(&key, subject, lifetime, now)?;
        Ok((chain, PrivatePkcs8KeyDer::from(key.serialize_der())))
    }

    /// Signs a certificate for a key.
    fn certify(
        &self,
        key: &impl PublicKeyData,
        subject: &Subject,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Vec<CertificateDer<'static>>, SignError> {
        if self.not_after <= now {
            return Err(SignError::Expired);
        }

        let mut params = CertificateParams::default();

        // Without a subject, the SAN is the only name, and therefore critical.
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = names(subject)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];

        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial()?);
        params.not_before = (now - BACKDATE).into();
        params.not_after = (now + lifetime).min(self.not_after).into();

        let leaf = params.signed_by(key, &self.issuer)?;
        let mut chain = vec![leaf.der().clone()];
        chain.extend(self.chain.iter().cloned());
        Ok(chain)
    }

    /// The trusted roots in PEM, the form in which they are published.
    #[must_use]
    pub fn roots(&self) -> &RootBundle {
        &self.roots
    }

    /// The trusted roots in DER, for the verification of client certificates.
    #[must_use]
    pub fn root_certificates(&self) -> &[CertificateDer<'static>] {
        &self.root_certificates
    }

    /// CRLs in PEM; empty if there are none.
    #[must_use]
    pub fn revocations(&self) -> &Arc<str> {
        &self.revocations
    }

    /// The chain from the signing certificate up, without roots.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The earliest expiry of a root.
    #[must_use]
    pub fn first_root_ends(&self) -> Option<SystemTime> {
        let (_, root) = X509Certificate::from_der(self.root_certificates.first()?).ok()?;
        Some(at(root.validity().not_after.timestamp()))
    }

    /// The expiry of the signing certificate.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// The root of a bundle that verifies its signing certificate.
///
/// # Errors
/// If a certificate is invalid, or no root verifies the signing one.
pub(super) fn root_of(bundle: &Bundle) -> Result<CertificateDer<'static>, BundleError> {
    let signing = signing_certificate(&bundle.certificate)?;
    let chain = certificates(&bundle.chain, "the chain")?;
    let roots = certificates(&bundle.roots, "the roots")?;
    verifying_root(&signing, &chain, &roots)
}

/// The root that verifies the signing certificate.
pub(super) fn verifying_root(
    signing: &CertificateDer<'static>,
    chain: &[CertificateDer<'static>],
    roots: &[CertificateDer<'static>],
) -> Result<CertificateDer<'static>, BundleError> {
    if roots.contains(signing) {
        return Ok(signing.clone());
    }

    // The chain is followed by names and signatures: common verifiers do not accept a CA
    // certificate as end entity.
    let mut current = signing;
    for _ in 0..=chain.len() {
        if let Some(root) = issuer_among(current, roots) {
            return Ok(root.clone());
        }
        match issuer_among(current, chain) {
            Some(issuer) if issuer != current => current = issuer,
            Some(_) | None => break,
        }
    }
    Err(BundleError::Unrooted)
}

/// The certificate among `candidates` that signed `certificate`.
fn issuer_among<'a>(
    certificate: &CertificateDer<'_>,
    candidates: &'a [CertificateDer<'static>],
) -> Option<&'a CertificateDer<'static>> {
    let (_, subject) = X509Certificate::from_der(certificate).ok()?;
    candidates.iter().find(|candidate| {
        X509Certificate::from_der(candidate).is_ok_and(|(_, issuer)| {
            issuer.subject() == subject.issuer()
                && subject.verify_signature(Some(issuer.public_key())).is_ok()
        })
    })
}

/// The names in a certificate.
fn names(subject: &Subject) -> Result<Vec<SanType>, SignError> {
    match subject {
        Subject::Workload(identity) => Ok(vec![SanType::URI(
            identity
                .to_string()
                .try_into()
                .map_err(|_| SignError::Name)?,
        )]),
        Subject::Server(hosts) => hosts
            .iter()
            .map(|host| {
                Ok(SanType::DnsName(
                    host.clone().try_into().map_err(|_| SignError::Name)?,
                ))
            })
            .collect(),
    }
}

/// A random serial number.
fn serial() -> Result<SerialNumber, SignError> {
    let mut bytes = [0_u8; SERIAL_BYTES];
    cryptography::provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| SignError::Sign(rcgen::Error::RingUnspecified))?;
    if let Some(first) = bytes.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    Ok(SerialNumber::from_slice(&bytes))
}
