//! From when until when a certificate is good, for people to look at.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Whose a certificate is, and its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateLife {
    /// Its subject; where it has none the first of its names.
    pub subject: String,
    /// When it begins.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}

impl CertificateLife {
    /// Reads it off a certificate; `None` where that cannot be read.
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
        // RFC 5280 has the last second of the year 9999 for those that do not end, which is beyond what is known here.
        let moment = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        Some(Self {
            subject: subject.or(first).unwrap_or_default(),
            not_before: moment(certificate.validity().not_before.timestamp()),
            not_after: moment(certificate.validity().not_after.timestamp()),
        })
    }
}
