//! Whether PEM texts hold what Envoy will take. Says it early and in words; Envoy would say it late and in OpenSSL's.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_api::kubernetes::SecretBytes;

/// Errors of parsing PEM. Never contains any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PemFault {
    #[error("it contains no PEM certificate")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("it contains a malformed certificate")]
    Certificate,
    /// No key can be read.
    #[error("its private key is not in PEM format")]
    Key,
}

/// Checks a list of certificates.
///
/// # Errors
/// When there is none, or one cannot be read.
pub(super) fn check_certificates(pem: &[u8]) -> Result<(), PemFault> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| PemFault::Certificate)?;
        X509Certificate::from_der(&certificate).map_err(|_| PemFault::Certificate)?;
        count += 1;
    }
    if count == 0 { Err(PemFault::NoCertificate) } else { Ok(()) }
}

/// Checks certificates and a key.
///
/// # Errors
/// When one of them cannot be read.
pub(super) fn check_pair(certificates: &[u8], key: &SecretBytes) -> Result<(), PemFault> {
    check_certificates(certificates)?;
    PrivateKeyDer::from_pem_slice(key.expose()).map(|_| ()).map_err(|_| PemFault::Key)
}
