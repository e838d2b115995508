//! Certificates in PEM: joins and merges them, and reads their expiry.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_pki::pem;

/// The chain, in error messages.
const CHAIN: &str = "the certificate chain";
/// The key, in error messages.
const KEY: &str = "the key";
/// The roots, in error messages.
const ROOTS: &str = "the root certificates";

/// Errors of parsing certificates and keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PairError {
    /// Certificates are missing, or one cannot be parsed.
    #[error(transparent)]
    Certificate(pem::PemError),
    /// The key is missing.
    #[error(transparent)]
    NoKey(pem::PemError),
    /// The key is not that of the certificate.
    #[error(transparent)]
    Key(#[from] pem::MatchError),
}

/// The elements of a chain as one text, each with a trailing newline.
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

/// When the first certificate, the leaf, expires.
pub(super) fn not_after(chain: &[u8]) -> Result<SystemTime, PairError> {
    let chain = pem::certificates(chain, CHAIN).map_err(PairError::Certificate)?;
    let leaf = chain
        .first()
        .and_then(|leaf| X509Certificate::from_der(leaf).ok());
    let (_, leaf) =
        leaf.ok_or_else(|| PairError::Certificate(pem::PemError::Unreadable(CHAIN.to_owned())))?;
    let seconds = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or_default();
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Checks that a chain can be parsed and that the key matches the leaf.
pub(super) fn check_pair(chain: &[u8], key: &[u8]) -> Result<(), PairError> {
    let chain = pem::certificates(chain, CHAIN).map_err(PairError::Certificate)?;
    let key = pem::private_key(key, KEY).map_err(PairError::NoKey)?;
    Ok(pem::check_match(chain, &key)?)
}

/// All distinct certificates of these texts, sorted, so that equal sets are equal bytes. Invalid
/// certificates are skipped.
pub(super) fn merge<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Result<Bytes, PairError> {
    let mut all = BTreeSet::new();
    for text in texts {
        let certificates = pem::readable_certificates(text, ROOTS).unwrap_or_default();
        let certificates = certificates
            .iter()
            .filter(|der| X509Certificate::from_der(der).is_ok());
        all.extend(certificates.map(|der| pem::encode(der)));
    }
    if all.is_empty() {
        return Err(PairError::Certificate(pem::PemError::NoCertificate(
            ROOTS.to_owned(),
        )));
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
        let (one, one_key) = certificate("a");
        let (_, other_key) = certificate("b");
        assert_eq!(check_pair(one.as_bytes(), one_key.as_bytes()), Ok(()));
        assert_eq!(
            check_pair(one.as_bytes(), other_key.as_bytes()),
            Err(PairError::Key(pem::MatchError::Mismatch))
        );
        assert!(matches!(
            check_pair(b"", one_key.as_bytes()),
            Err(PairError::Certificate(_))
        ));
        assert!(matches!(
            check_pair(one.as_bytes(), b"nonsense"),
            Err(PairError::NoKey(_))
        ));
    }

    #[test]
    fn merged_roots_do_not_depend_on_order_or_repetition() {
        let (one, _) = certificate("a");
        let (other, _) = certificate("b");
        let both = format!("{one}{other}");
        let merged = merge([both.as_bytes()]).unwrap();
        assert_eq!(
            merged,
            merge([other.as_bytes(), one.as_bytes(), other.as_bytes()]).unwrap()
        );
        assert_eq!(pem::certificates(&merged, ROOTS).unwrap().len(), 2);
        assert_eq!(
            merge([&b"none"[..]]).unwrap_err().to_string(),
            "no PEM certificate in the root certificates"
        );
    }
}
