//! Authenticates callers by the SPIFFE IDs in their certificate. TLS verified the certificate when
//! the connection began, which may be long ago, so its validity period is checked again.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::MeshSnapshot;
use navarch_api::identity::Caller;

/// The caller of a certificate chain, leaf first.
///
/// # Errors
/// If the leaf has no identity of this mesh.
pub(super) fn caller(
    chain: &[CertificateDer<'static>],
    snapshot: &MeshSnapshot,
    now: jiff::Timestamp,
) -> Result<Caller, String> {
    let leaf = chain.first().ok_or("the client presented none")?;
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| "it cannot be parsed")?;
    let validity = leaf.validity();
    if now.as_second() > validity.not_after.timestamp() {
        return Err("it has expired".to_owned());
    }

    if now.as_second() < validity.not_before.timestamp() {
        return Err("it is not valid yet".to_owned());
    }

    let names = leaf
        .subject_alternative_name()
        .map_err(|_| "its subject alternative names cannot be parsed")?;
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    let uris = names.iter().filter_map(|name| {
        if let GeneralName::URI(uri) = name {
            Some(*uri)
        } else {
            None
        }
    });

    Ok(Caller {
        identities: snapshot.identities(uris)?,
        pod: None,
        expires: not_after(&leaf),
    })
}

/// The expiry of a certificate; `None` if it is invalid.
#[must_use]
pub fn certificate_expiry(certificate: &CertificateDer<'_>) -> Option<jiff::Timestamp> {
    X509Certificate::from_der(certificate)
        .ok()
        .and_then(|(_, certificate)| not_after(&certificate))
}

fn not_after(certificate: &X509Certificate<'_>) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}
