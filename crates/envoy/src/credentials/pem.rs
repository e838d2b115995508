//! Checks whether Envoy will accept PEM texts, so that errors are reported early and in plain words
//! rather than by OpenSSL.

use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

use navarch_api::kubernetes::SecretBytes;
use navarch_pki::pem::{MatchError, PemError, certificates, check_match, crls, private_key};

/// The chain, in error messages.
const CHAIN: &str = "the certificate chain";
/// The revocation lists, in error messages.
const REVOCATIONS: &str = "the certificate revocation lists";

/// Checks a list of certificates; `what` names it in errors.
///
/// # Errors
/// If it is empty, or a certificate cannot be parsed.
pub(crate) fn check_certificates(pem: &[u8], what: &str) -> Result<(), PemError> {
    let is_readable = certificates(pem, what)?
        .iter()
        .all(|certificate| X509Certificate::from_der(certificate).is_ok());
    if is_readable {
        Ok(())
    } else {
        Err(PemError::Unreadable(what.to_owned()))
    }
}

/// Why Envoy will reject a certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PairError {
    /// One of them cannot be parsed.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The key is not that of the certificate.
    #[error(transparent)]
    Key(#[from] MatchError),
}

/// Checks certificates and a key.
///
/// # Errors
/// If one of them cannot be parsed, or the key is not that of the first certificate.
pub(crate) fn check_pair(chain: &[u8], key: &SecretBytes) -> Result<(), PairError> {
    check_certificates(chain, CHAIN)?;
    let key = private_key(key.expose(), "the key")?;
    Ok(check_match(certificates(chain, CHAIN)?, &key)?)
}

/// Checks revocation lists.
///
/// # Errors
/// If there is none, or one cannot be parsed.
pub(crate) fn check_revocations(pem: &[u8]) -> Result<(), PemError> {
    let lists = crls(pem, REVOCATIONS).collect::<Result<Vec<_>, _>>()?;
    if lists.is_empty() {
        return Err(PemError::NoCrl(REVOCATIONS.to_owned()));
    }

    let are_readable = lists
        .iter()
        .all(|list| CertificateRevocationList::from_der(list).is_ok());
    if are_readable {
        Ok(())
    } else {
        Err(PemError::Unreadable(REVOCATIONS.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// A certificate and its key, in PEM.
    fn pair() -> (String, SecretBytes) {
        let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        (made.cert.pem(), SecretBytes::new(key.into_bytes()))
    }

    #[test]
    fn a_key_of_another_certificate_is_found() {
        let (chain, key) = pair();
        let (_, other) = pair();
        assert_eq!(check_pair(chain.as_bytes(), &key), Ok(()));
        assert_eq!(
            check_pair(chain.as_bytes(), &other),
            Err(PairError::Key(MatchError::Mismatch))
        );
    }

    #[test]
    fn revocation_lists_that_envoy_rejects_are_found() {
        let block = |bytes: &[u8]| {
            let text = STANDARD.encode(bytes);
            format!("-----BEGIN X509 CRL-----\n{text}\n-----END X509 CRL-----\n")
        };
        assert_eq!(
            check_revocations(b"none"),
            Err(PemError::NoCrl(REVOCATIONS.to_owned()))
        );
        assert_eq!(
            check_revocations(block(b"nonsense").as_bytes()),
            Err(PemError::Unreadable(REVOCATIONS.to_owned()))
        );

        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.key_usages = vec![rcgen::KeyUsagePurpose::CrlSign];
        let issuer = rcgen::Issuer::new(params, key);
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2036, 1, 1),
            crl_number: rcgen::SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).unwrap();
        assert_eq!(check_revocations(block(list.der()).as_bytes()), Ok(()));
    }
}
