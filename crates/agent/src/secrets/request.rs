//! A new key and its certificate signing request.

use rcgen::{CertificateParams, DistinguishedName, KeyPair, SanType};

use super::key_format::KeyFormat;
use navarch_api::kubernetes::SecretBytes;
use navarch_pki::KeyType;

/// The type of a workload's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA over P-256.
    #[default]
    P256,
    /// ECDSA over P-384.
    P384,
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
}

/// A key and its certificate signing request.
#[derive(Debug)]
pub(super) struct Request {
    /// The key in PEM.
    pub(super) key: SecretBytes,
    /// The request in PEM.
    pub(super) csr: String,
}

impl KeyKind {
    /// The key type for pilot-agent's variables `ECC_SIGNATURE_ALGORITHM`, `ECC_CURVE`, and
    /// `WORKLOAD_RSA_KEY_SIZE`, if set. Istio's default is RSA; here it is P-256, which every Envoy
    /// supports and which costs a hundredth.
    #[must_use]
    pub fn from_settings(algorithm: &str, curve: &str, rsa_bits: Option<u32>) -> Self {
        match (algorithm, rsa_bits) {
            ("", Some(..=2048)) => Self::Rsa2048,
            ("", Some(..=3072)) => Self::Rsa3072,
            ("", Some(_)) => Self::Rsa4096,
            _ if curve.eq_ignore_ascii_case("P384") => Self::P384,
            _ => Self::P256,
        }
    }

    fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::P256 => KeyType::P256.generate(),
            Self::P384 => KeyType::P384.generate(),
            Self::Rsa2048 => KeyType::Rsa2048.generate(),
            Self::Rsa3072 => KeyType::Rsa3072.generate(),
            Self::Rsa4096 => KeyType::Rsa4096.generate(),
        }
    }
}

impl Request {
    /// Generates a key and a request for this identity. RSA takes up to some seconds of CPU.
    pub(super) fn new(
        kind: KeyKind,
        format: KeyFormat,
        identity: &str,
    ) -> Result<Self, rcgen::Error> {
        let key = kind.generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
        let csr = params.serialize_request(&key)?.pem()?;
        let key = format
            .encode(key.serialized_der())
            .ok_or(rcgen::Error::CouldNotParseKeyPair)?;
        Ok(Self {
            key: SecretBytes::new(key),
            csr,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_pki::SigningRequest;

    #[test]
    fn signing_requests_are_valid_and_debug_output_hides_keys() {
        for kind in [KeyKind::P256, KeyKind::P384, KeyKind::Rsa2048] {
            let identity = "spiffe://cluster.local/ns/shop/sa/web";
            let request = Request::new(kind, KeyFormat::Pkcs8, identity).unwrap();
            SigningRequest::parse(&request.csr).unwrap();
            assert!(
                request
                    .key
                    .expose()
                    .starts_with(b"-----BEGIN PRIVATE KEY-----")
            );
            assert!(!format!("{request:?}").contains("PRIVATE"));
        }
    }
}
