//! Certificate signing requests: only their key is used.

use rcgen::SubjectPublicKeyInfo;
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo as ParsedKeyInfo;

use super::KeyType;

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
    key_type: Option<KeyType>,
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
        let key_type = key_type(key);
        let key = SubjectPublicKeyInfo::from_der(key.raw)
            .map_err(|_| CsrError::Key("of an unknown kind".to_owned()))?;

        Ok(Self { key, key_type })
    }

    /// The type of the key; `None` for a strong key of another type, such as Ed25519.
    #[must_use]
    pub fn key_type(&self) -> Option<KeyType> {
        self.key_type
    }

    /// The key to certify.
    #[must_use]
    pub fn public_key(&self) -> &SubjectPublicKeyInfo {
        &self.key
    }
}

/// The type of a key, if it is one of [`KeyType`].
fn key_type(key: &ParsedKeyInfo<'_>) -> Option<KeyType> {
    match key.parsed().ok()? {
        PublicKey::RSA(rsa) => match rsa.key_size() {
            2048 => Some(KeyType::Rsa2048),
            3072 => Some(KeyType::Rsa3072),
            4096 => Some(KeyType::Rsa4096),
            _ => None,
        },
        PublicKey::EC(_) => {
            let curve = key.algorithm.parameters.as_ref()?.as_oid().ok()?;
            if curve == OID_EC_P256 {
                Some(KeyType::P256)
            } else if curve == OID_NIST_EC_P384 {
                Some(KeyType::P384)
            } else {
                None
            }
        }
        PublicKey::Unknown(_)
        | PublicKey::DSA(_)
        | PublicKey::GostR3410(_)
        | PublicKey::GostR3410_2012(_) => None,
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};

    use super::*;

    #[test]
    fn the_type_of_a_key_is_that_of_its_request() {
        for key_type in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let key = key_type.generate().unwrap();
            let csr = CertificateParams::default().serialize_request(&key);
            let request = SigningRequest::parse(&csr.unwrap().pem().unwrap()).unwrap();
            assert_eq!(request.key_type(), Some(key_type));
            assert_eq!(key_type.to_string().parse(), Ok(key_type));
        }

        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let csr = CertificateParams::default().serialize_request(&key);
        let request = SigningRequest::parse(&csr.unwrap().pem().unwrap()).unwrap();
        assert_eq!(request.key_type(), None);
    }
}
