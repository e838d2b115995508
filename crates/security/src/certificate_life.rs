//! The validity period of a certificate, for diagnostics.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The subject and the validity period of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateLife {
    /// The subject; if it is empty, the first SAN.
    pub subject: String,
    /// The start of validity.
    pub not_before: Timestamp,
    /// The end of validity.
    pub not_after: Timestamp,
}

impl CertificateLife {
    /// Parses a certificate; `None` if it is invalid.
    #[must_use]
    pub fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let first = names.and_then(|names| {
            names.value.general_names.iter().find_map(|name| {
                if let GeneralName::DNSName(name) | GeneralName::URI(name) = name {
                    return Some((*name).to_owned());
                }
                None
            })
        });

        let subject = Some(certificate.subject().to_string()).filter(|subject| !subject.is_empty());

        // Certificates that do not expire end with the year 9999 (RFC 5280), which exceeds the
        // range of `Timestamp`.
        let moment = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        Some(Self {
            subject: subject.or(first).unwrap_or_default(),
            not_before: moment(certificate.validity().not_before.timestamp()),
            not_after: moment(certificate.validity().not_after.timestamp()),
        })
    }
}
