//! Certificates in PEM: joined, sorted, read for when they end.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_security::pem;

/// Errors of parsing PEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PemError {
    /// There is no certificate in it.
    #[error("no certificate in PEM that can be read")]
    Certificate,
    /// There is no key in it.
    #[error("no key in PEM that can be used")]
    Key,
    /// The key is another certificate's.
    #[error("the key is not that of the certificate")]
    Mismatch,
}

/// The elements of a chain as one text, each ended by a line break.
pub(super) fn join(elements: &[String]) -> Bytes {
    let mut text = String::with_capacity(elements.iter().map(|element| element.len() + 1).sum());
    for element in elements {
        text.push_str(element);
        if !element.ends_with('\n') {
            text.push('\n');
        }
    }
    Bytes::from(text)
}

/// When the first certificate, which is the leaf, ends.
pub(super) fn not_after(chain: &[u8]) -> Result<SystemTime, PemError> {
    let leaf = CertificateDer::from_pem_slice(chain).map_err(|_| PemError::Certificate)?;
    let (_, leaf) = X509Certificate::from_der(&leaf).map_err(|_| PemError::Certificate)?;
    let seconds = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or_default();
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Checks that a chain can be read and the key is the leaf's.
pub(super) fn check_pair(chain: &[u8], key: &[u8]) -> Result<(), PemError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(PemError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PemError::Key)?;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(|_| PemError::Key)?;
    match CertifiedKey::new(chain, key).keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => Err(PemError::Mismatch),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Every certificate in these texts once, in an order of their own, so that equal sets are equal bytes. What cannot be read is
/// left out.
pub(super) fn merge<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Result<Bytes, PemError> {
    let mut all = BTreeSet::new();
    for text in texts {
        let certificates = CertificateDer::pem_slice_iter(text).filter_map(Result::ok);
        all.extend(certificates.filter(|der| X509Certificate::from_der(der).is_ok()).map(|der| pem::encode(&der)));
    }
    if all.is_empty() {
        return Err(PemError::Certificate);
    }
    Ok(Bytes::from(all.into_iter().collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_key_must_be_its_certificates() {
        let ((one, one_key), (_, other_key)) = (certificate("a"), certificate("b"));
        assert_eq!(check_pair(one.as_bytes(), one_key.as_bytes()), Ok(()));
        assert_eq!(check_pair(one.as_bytes(), other_key.as_bytes()), Err(PemError::Mismatch));
        assert_eq!(check_pair(b"", one_key.as_bytes()), Err(PemError::Certificate));
        assert_eq!(check_pair(one.as_bytes(), b"nonsense"), Err(PemError::Key));
    }

    #[test]
    fn merged_roots_do_not_depend_on_order_or_repetition() {
        let ((one, _), (other, _)) = (certificate("a"), certificate("b"));
        let both = format!("{one}{other}");
        let merged = merge([both.as_bytes()]).unwrap();
        assert_eq!(merged, merge([other.as_bytes(), one.as_bytes(), other.as_bytes()]).unwrap());
        assert_eq!(CertificateDer::pem_slice_iter(&merged).count(), 2);
        assert_eq!(merge([&b"none"[..]]), Err(PemError::Certificate));
    }
}
