//! Reads certificates, keys and CRLs in PEM that come from users.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Characters in one line of PEM.
const LINE: usize = 64;

/// Errors of reading a PEM text. They contain the name of the text, and never its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum PemError {
    /// The text contains no certificate.
    #[error("no PEM certificate in {0}")]
    NoCertificate(String),
    /// The text contains no readable private key.
    #[error("no PEM private key in {0}")]
    NoPrivateKey(String),
    /// The text contains no readable CRL.
    #[error("no PEM certificate revocation list in {0}")]
    NoCrl(String),
    /// A block or its certificate is invalid.
    #[error("unreadable PEM block in {0}")]
    Unreadable(String),
}

/// Why a key is not that of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    /// No TLS library here signs with such a key.
    #[error("unsupported private key type")]
    Unsupported,
    /// The certificate is for another key.
    #[error("the private key does not match the certificate")]
    Mismatch,
}

/// Checks that a key is that of the first certificate of a chain, as Envoy and Go's
/// `tls.X509KeyPair` do.
///
/// # Errors
/// If it is not, or cannot be read.
pub fn check_match(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'_>,
) -> Result<(), MatchError> {
    let key = aws_lc_rs::sign::any_supported_type(key).map_err(|_| MatchError::Unsupported)?;
    match CertifiedKey::new(chain, key).keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(MatchError::Mismatch)
        }
        // Keys of some kinds cannot be compared.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// All certificates of a text; `what` names it in errors.
///
/// # Errors
/// If there is no certificate, or one is invalid.
pub fn certificates(
    pem: &[u8],
    what: impl Display,
) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(PemError::NoCertificate(what.to_string())),
        Ok(all) => Ok(all),
        Err(_) => Err(PemError::Unreadable(what.to_string())),
    }
}

/// The readable certificates of a text; invalid ones are skipped, as the others may suffice. `what`
/// names the text in errors.
///
/// # Errors
/// If there is none.
pub fn readable_certificates(
    pem: &[u8],
    what: impl Display,
) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect();
    if found.is_empty() {
        Err(PemError::NoCertificate(what.to_string()))
    } else {
        Ok(found)
    }
}

/// The first private key of a text; `what` names it in errors.
///
/// # Errors
/// If there is no readable private key.
pub fn private_key(pem: &[u8], what: impl Display) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| PemError::NoPrivateKey(what.to_string()))
}

/// The CRLs of a text, with an error for each invalid one; `what` names the text in errors.
pub fn crls<'a>(
    pem: &'a [u8],
    what: &'a str,
) -> impl Iterator<Item = Result<CertificateRevocationListDer<'static>, PemError>> + 'a {
    let lists = CertificateRevocationListDer::pem_slice_iter(pem);
    lists.map(move |list| list.map_err(|_| PemError::Unreadable(what.to_owned())))
}

/// Encodes a certificate (DER) as PEM, with a trailing newline.
#[must_use]
pub fn encode(der: &[u8]) -> String {
    encode_block("CERTIFICATE", der)
}

/// Encodes DER as a PEM block with this label, with a trailing newline.
#[must_use]
pub fn encode_block(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = String::with_capacity(encoded.len() + encoded.len() / LINE + 64);
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at_checked(LINE).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn encoded_pem_decodes_and_has_lines_of_64() {
        for length in [0, 1, 48, 49, 1000] {
            let der = vec![7; length];
            let text = encode(&der);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(
                certificates(text.as_bytes(), ""),
                Ok(vec![CertificateDer::from(der)])
            );
        }
    }

    #[test]
    fn missing_pem_blocks_are_named() {
        let (certificate, key) = certificate();
        let garbage = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n";
        let text = |error: PemError| error.to_string();
        assert_eq!(
            certificates(key.as_bytes(), "a.pem").map_err(text),
            Err("no PEM certificate in a.pem".to_owned())
        );
        let both = format!("{garbage}{certificate}");

        assert_eq!(
            certificates(both.as_bytes(), "a.pem"),
            Err(PemError::Unreadable("a.pem".to_owned()))
        );
        assert_eq!(
            readable_certificates(both.as_bytes(), "a.pem").map(|all| all.len()),
            Ok(1)
        );

        assert_eq!(
            readable_certificates(garbage.as_bytes(), "a"),
            Err(PemError::NoCertificate("a".to_owned()))
        );
        assert!(private_key(format!("{certificate}{key}").as_bytes(), "a.pem").is_ok());
        let none = private_key(certificate.as_bytes(), "a.pem").unwrap_err();
        assert_eq!(none.to_string(), "no PEM private key in a.pem");
        assert_eq!(crls(certificate.as_bytes(), "a.pem").count(), 0);
    }
}
