//! Key types.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize};

/// Algorithm and size of a private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyType {
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

impl KeyType {
    /// Generates a key. RSA takes up to a few seconds.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Rsa3072 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_3072),
            Self::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        }
    }
}

impl std::str::FromStr for KeyType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "" | "ecdsa" | "p256" | "p-256" => Ok(Self::P256),
            "p384" | "p-384" => Ok(Self::P384),
            "rsa" | "rsa2048" => Ok(Self::Rsa2048),
            "rsa3072" => Ok(Self::Rsa3072),
            "rsa4096" => Ok(Self::Rsa4096),
            _ => Err(format!(
                "{text:?} is not a key type; use p256, p384, rsa2048, rsa3072 or rsa4096"
            )),
        }
    }
}

impl std::fmt::Display for KeyType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
        })
    }
}
