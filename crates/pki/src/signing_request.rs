//! Certificate signing requests: only their key is used.

use rcgen::SubjectPublicKeyInfo;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

/// Maximum size of a CSR. One with an RSA key of 16384 bits has about 8 KiB.
const MAX_BYTES: usize = 16 << 10;
/// Minimum size of an RSA key.
const MIN_RSA_BITS: usize = 2048;
/// Maximum size of an RSA key: verifying larger ones costs too much.
const MAX_RSA_BITS: usize = 8192;

/// A CSR with a valid signature and a strong key. Its names are not read: the identity comes from
/// the caller only.
#[derive(Debug)]
pub struct SigningRequest {
    key: SubjectPublicKeyInfo,
}

/// Errors of checking a CSR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// The PEM text has more than 16 KiB; it is not parsed.
    #[error("the CSR exceeds {MAX_BYTES} bytes")]
    TooLong,
    /// It cannot be parsed.
    #[error("the CSR is not valid PEM")]
    Unreadable,
    /// The signature does not match the key.
    #[error("the CSR's signature is invalid")]
    Signature,
    /// The key is weak, or of an unknown type.
    #[error(
        "the key is {0}; use ECDSA over P-256, P-384 or P-521, Ed25519, or RSA of 2048 to 8192 bits"
    )]
    Key(String),
}

impl SigningRequest {
    /// Reads and checks a request in PEM.
    ///
    /// # Errors
    /// If it cannot be parsed, is not signed by its own key, or has a weak key.
    pub fn parse(pem: &str) -> Result<Self, CsrError> {
        if pem.len() > MAX_BYTES {
            return Err(CsrError::TooLong);
        }

        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| CsrError::Unreadable)?;
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|_| CsrError::Unreadable)?;
        if !rest.is_empty() {
            return Err(CsrError::Unreadable);
        }

        let key = &request.certification_request_info.subject_pki;

        // The strength is checked first: it is cheap, whereas verifying a signature with a huge key
        // is expensive.
        check_strength(&key.parsed().map_err(|_| CsrError::Unreadable)?)?;
        request
            .verify_signature()
            .map_err(|_| CsrError::Signature)?;
        let key = SubjectPublicKeyInfo::from_der(key.raw)
            .map_err(|_| CsrError::Key("of an unknown kind".to_owned()))?;

        Ok(Self { key })
    }

    /// The key to certify.
    #[must_use]
    pub fn public_key(&self) -> &SubjectPublicKeyInfo {
        &self.key
    }
}

fn check_strength(key: &PublicKey<'_>) -> Result<(), CsrError> {
    match key {
        PublicKey::RSA(rsa) => {
            let bits = rsa.key_size();
            if (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
                Ok(())
            } else {
                Err(CsrError::Key(format!("RSA of {bits} bits")))
            }
        }
        PublicKey::EC(point) => match point.key_size() {
            256.. => Ok(()),
            bits => Err(CsrError::Key(format!("ECDSA of {bits} bits"))),
        },
        PublicKey::Unknown(bytes) if bytes.len() == 32 => Ok(()),
        PublicKey::DSA(_) => Err(CsrError::Key("DSA".to_owned())),
        PublicKey::GostR3410(_) | PublicKey::GostR3410_2012(_) => {
            Err(CsrError::Key("GOST".to_owned()))
        }
        PublicKey::Unknown(_) => Err(CsrError::Key("of an unknown kind".to_owned())),
    }
}
