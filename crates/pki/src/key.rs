//! Key types.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};

/// The type of a new key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA over P-256.
    #[default]
    P256,
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 4096 bits.
    Rsa4096,
}

impl KeyType {
    /// Generates a key. RSA takes up to a few seconds.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        }
    }
}

impl std::str::FromStr for KeyType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "" | "ecdsa" | "p256" | "p-256" => Ok(Self::P256),
            "rsa" | "rsa2048" => Ok(Self::Rsa2048),
            "rsa4096" => Ok(Self::Rsa4096),
            _ => Err(format!(
                "{text:?} is not a key type; use ecdsa, rsa or rsa4096"
            )),
        }
    }
}
