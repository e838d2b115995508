//! The other form of a key set: PEM certificates by key ID, as of Google's `/oauth2/v1/certs`.

use serde_json::Value;
use x509_parser::pem::parse_x509_pem;
use x509_parser::public_key::PublicKey;

use super::KeySetError;

/// What Envoy requires around a certificate.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----\n";
const END: &str = "\n-----END CERTIFICATE-----\n";

/// The longest line of PEM that BoringSSL surely reads.
const MAX_LINE: usize = 76;

/// Checks that all members are certificates with RSA keys: one that is not makes Envoy reject all.
pub(super) fn check(set: &Value) -> Result<(), KeySetError> {
    let members = set.as_object().ok_or(KeySetError::NoKeys)?;
    if members.is_empty() {
        return Err(KeySetError::NoKeys);
    }

    for (name, value) in members {
        let text = value.as_str().ok_or(KeySetError::NoKeys)?;
        let is_enclosed = text.starts_with(BEGIN) && text.ends_with(END);
        if name.is_empty() || !is_enclosed {
            return Err(KeySetError::NoKeys);
        }
        if !has_rsa_key(text) {
            return Err(KeySetError::Certificate(name.clone()));
        }
    }
    Ok(())
}

/// Whether a PEM text begins with a certificate of an RSA key.
fn has_rsa_key(text: &str) -> bool {
    if text.lines().any(|line| line.len() > MAX_LINE) {
        return false;
    }
    let Ok((_, block)) = parse_x509_pem(text.as_bytes()) else {
        return false;
    };
    let Ok(certificate) = block.parse_x509() else {
        return false;
    };
    matches!(certificate.public_key().parsed(), Ok(PublicKey::RSA(_)))
}
