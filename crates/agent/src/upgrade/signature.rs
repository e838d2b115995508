//! Signatures of artefacts in the form of cosign: ECDSA P-256 over SHA-256 of a payload ("simple
//! signing") that names the digest of a manifest.
//!
//! Only the operator's keys are trusted; certificates, time stamps and transparency logs are not
//! looked at.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, alg_id};
use serde::Deserialize;
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::FromDer as _;

use navarch_net::cryptography;

/// The type in the payload of a signature of an artefact.
const PAYLOAD_TYPE: &str = "cosign container image signature";
/// Maximum length of a signature in base64. One of P-256 has less than 100 bytes.
const MAX_SIGNATURE_LENGTH: usize = 512;

/// Public keys, one of which must have signed an artefact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(Vec<Vec<u8>>);

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("NAVARCH_PROXY_UPGRADE_KEY: failed to read {path}: {source}")]
    File {
        /// The path of `NAVARCH_PROXY_UPGRADE_KEY`.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// There is no public key in PEM.
    #[error("NAVARCH_PROXY_UPGRADE_KEY has no public key in PEM")]
    None,
    /// A block is damaged.
    #[error("NAVARCH_PROXY_UPGRADE_KEY has a public key that cannot be read")]
    Unreadable,
    /// The key is of another kind.
    #[error("NAVARCH_PROXY_UPGRADE_KEY has a key that is not ECDSA P-256")]
    OtherKind,
}

/// Why a signature is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// It is not base64, or too long.
    #[error("the signature is not base64")]
    Encoding,
    /// Another key has signed it, or the payload was changed.
    #[error("the signature is not of a key of the operator")]
    Key,
    /// The payload is not of cosign.
    #[error("the signed payload is invalid: {0}")]
    Payload(String),
    /// The signature is of another artefact.
    #[error("the signature is of {found}, not of sha256:{wanted}")]
    OtherDigest {
        /// In the payload.
        found: String,
        /// In hexadecimal.
        wanted: String,
    },
    /// This build has no verification of ECDSA P-256.
    #[error("this build cannot verify ECDSA P-256")]
    Unsupported,
}

/// A payload of "simple signing".
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

impl Keys {
    /// Reads the public keys of a PEM text; several, so that a key can be replaced.
    ///
    /// # Errors
    /// If there is none, or one is not of ECDSA P-256.
    pub fn parse(pem: &[u8]) -> Result<Self, KeyError> {
        let keys: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(pem)
            .map(|key| point(&key.map_err(|_| KeyError::Unreadable)?))
            .collect();
        let keys = keys?;
        if keys.is_empty() {
            return Err(KeyError::None);
        }
        Ok(Self(keys))
    }

    /// Verifies that one of the keys has signed the payload, and that it is for the manifest with
    /// this sha256 in hexadecimal.
    ///
    /// # Errors
    /// If it is not.
    pub fn verify(
        &self,
        payload: &[u8],
        signature: &str,
        digest: &str,
    ) -> Result<(), SignatureError> {
        if signature.len() > MAX_SIGNATURE_LENGTH {
            return Err(SignatureError::Encoding);
        }
        let signature = STANDARD
            .decode(signature.trim())
            .map_err(|_| SignatureError::Encoding)?;

        let algorithm = ecdsa_p256()?;
        let is_signed = self
            .0
            .iter()
            .any(|key| algorithm.verify_signature(key, payload, &signature).is_ok());
        if !is_signed {
            return Err(SignatureError::Key);
        }

        // Only now is the payload worth reading.
        let payload: Payload = serde_json::from_slice(payload)
            .map_err(|error| SignatureError::Payload(error.to_string()))?;
        let Critical { image, r#type } = payload.critical;
        if r#type != PAYLOAD_TYPE {
            return Err(SignatureError::Payload(format!("its type is {type:?}")));
        }
        if image.digest.strip_prefix("sha256:") == Some(digest) {
            Ok(())
        } else {
            Err(SignatureError::OtherDigest {
                found: image.digest,
                wanted: digest.to_owned(),
            })
        }
    }
}

/// The point of a public key.
fn point(key: &SubjectPublicKeyInfoDer<'_>) -> Result<Vec<u8>, KeyError> {
    let (_, info) =
        x509_parser::x509::SubjectPublicKeyInfo::from_der(key).map_err(|_| KeyError::Unreadable)?;
    let curve = info
        .algorithm
        .parameters
        .as_ref()
        .and_then(|parameters| parameters.as_oid().ok());
    let is_p256 =
        info.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_EC_P256);
    if is_p256 {
        Ok(info.subject_public_key.data.to_vec())
    } else {
        Err(KeyError::OtherKind)
    }
}

/// The verification of ECDSA P-256 over SHA-256.
fn ecdsa_p256() -> Result<&'static dyn SignatureVerificationAlgorithm, SignatureError> {
    let provider = cryptography::provider();
    let all = provider.signature_verification_algorithms.all;
    all.iter()
        .find(|algorithm| {
            algorithm.public_key_alg_id() == alg_id::ECDSA_P256
                && algorithm.signature_alg_id() == alg_id::ECDSA_SHA256
        })
        .copied()
        .ok_or(SignatureError::Unsupported)
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SigningKey as _};
    use serde_json::json;

    use super::*;

    /// A key of the operator.
    pub(crate) fn key() -> KeyPair {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
    }

    /// What cosign signs of the manifest with this digest.
    pub(crate) fn payload(digest: &str) -> Vec<u8> {
        json!({
            "critical": {
                "identity": {"docker-reference": "ghcr.io/me/envoy"},
                "image": {"docker-manifest-digest": format!("sha256:{digest}")},
                "type": PAYLOAD_TYPE,
            },
            "optional": null,
        })
        .to_string()
        .into_bytes()
    }

    /// The signature of bytes, as in the annotation of cosign.
    pub(crate) fn sign(key: &KeyPair, payload: &[u8]) -> String {
        STANDARD.encode(key.sign(payload).unwrap())
    }

    #[test]
    fn a_signature_of_any_key_of_the_operator_is_accepted() {
        let [old, new] = [key(), key()];
        let pem = format!("{}\n{}", old.public_key_pem(), new.public_key_pem());
        let keys = Keys::parse(pem.as_bytes()).unwrap();
        let digest = "a".repeat(64);
        let payload = payload(&digest);
        for key in [old, new] {
            let signature = sign(&key, &payload);
            assert_eq!(keys.verify(&payload, &signature, &digest), Ok(()));
        }
    }

    #[test]
    fn other_keys_changed_payloads_and_other_digests_are_refused() {
        let own = key();
        let keys = Keys::parse(own.public_key_pem().as_bytes()).unwrap();
        let digest = "a".repeat(64);
        let good = payload(&digest);
        let verify = |payload: &[u8], signature: &str| keys.verify(payload, signature, &digest);

        assert_eq!(
            verify(&good, &sign(&key(), &good)),
            Err(SignatureError::Key)
        );
        let mut changed = good.clone();
        changed.push(b' ');
        assert_eq!(
            verify(&changed, &sign(&own, &good)),
            Err(SignatureError::Key)
        );

        let other = payload(&"b".repeat(64));
        let refused = verify(&other, &sign(&own, &other)).unwrap_err();
        assert!(matches!(refused, SignatureError::OtherDigest { .. }));

        let long = "A".repeat(1000);
        for bad in ["no base64!", &long] {
            assert_eq!(verify(&good, bad), Err(SignatureError::Encoding));
        }

        // An attestation, for instance, which the same key may sign.
        let statement = json!({"critical": {"image": {"docker-manifest-digest": format!("sha256:{digest}")}, "type": "other"}});
        let statement = statement.to_string().into_bytes();
        let refused = verify(&statement, &sign(&own, &statement)).unwrap_err();
        assert!(matches!(refused, SignatureError::Payload(_)));
    }

    #[test]
    fn only_public_keys_of_p256_are_read() {
        let other = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let refused = Keys::parse(other.public_key_pem().as_bytes()).unwrap_err();
        assert!(matches!(refused, KeyError::OtherKind), "{refused}");
        let refused = Keys::parse(b"no key").unwrap_err();
        assert!(matches!(refused, KeyError::None), "{refused}");
        // A private key by mistake is not accepted, and not shown.
        let private = other.serialize_pem();
        let refused = Keys::parse(private.as_bytes()).unwrap_err();
        assert!(matches!(refused, KeyError::None), "{refused}");
    }
}
