//! Checks whether Envoy will accept PEM texts, so that errors are reported early and in plain words
//! rather than by OpenSSL.

use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_api::kubernetes::SecretBytes;
use navarch_pki::pem::{PemError, certificates, private_key};

/// Checks a list of certificates; `what` names it in errors.
///
/// # Errors
/// If it is empty, or a certificate cannot be parsed.
pub(super) fn check_certificates(pem: &[u8], what: &str) -> Result<(), PemError> {
    let is_readable = certificates(pem, what)?
        .iter()
        .all(|one| X509Certificate::from_der(one).is_ok());
    if is_readable {
        Ok(())
    } else {
        Err(PemError::Unreadable(what.to_owned()))
    }
}

/// Checks certificates and a key.
///
/// # Errors
/// If one of them cannot be parsed.
pub(super) fn check_pair(certificates: &[u8], key: &SecretBytes) -> Result<(), PemError> {
    check_certificates(certificates, "the certificate chain")?;
    private_key(key.expose(), "the key").map(drop)
}
