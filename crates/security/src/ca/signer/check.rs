//! Checks the content of CSRs, and whether the signed certificates match.
//!
//! A signer copies the content of a CSR, and may parse it differently than Navarch: a second
//! attribute, a second value, or an encoding that only one of the libraries accepts. So a CSR must
//! equal, byte for byte, one of the few possible CSRs for its key and identity. Nothing in it is
//! left to interpretation.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use super::super::bundle::{BACKDATE, at, certificates};
use super::super::sign::verifying_root;
use super::{CheckedRequest, IssuedChain, SignedChain, SignerError};
use navarch_api::identity::Identity;

/// DER tags.
mod tag {
    pub(super) const INTEGER: u8 = 0x02;
    /// `OCTET STRING`
    pub(super) const OCTETS: u8 = 0x04;
    /// `OBJECT IDENTIFIER`
    pub(super) const OID: u8 = 0x06;
    /// `UTF8String`
    pub(super) const UTF8: u8 = 0x0c;
    /// `PrintableString`
    pub(super) const PRINTABLE: u8 = 0x13;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    /// `uniformResourceIdentifier [6]` of a `GeneralName`.
    pub(super) const URI: u8 = 0x86;
    /// `attributes [0]` of a CSR.
    pub(super) const ATTRIBUTES: u8 = 0xa0;
}

/// `id-at-organizationName`
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
/// `id-ce-subjectAltName`
const NAMES: [u8; 3] = [0x55, 0x1d, 0x11];
/// `pkcs-9-at-extensionRequest`
const EXTENSIONS: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// `critical TRUE`
const CRITICAL: [u8; 3] = [0x01, 0x01, 0xff];
/// Prefix of the names of Kubernetes' own users and groups.
const KUBERNETES: &str = "system:";
/// Maximum number of certificates in a chain.
const MAX_CHAIN: usize = 10;
/// Maximum length of a serial number in bytes (RFC 5280), with one for the sign.
const MAX_SERIAL_BYTES: usize = 21;
/// How much longer than requested a certificate may live: signers round lifetimes, and have
/// minimum ones, such as Kubernetes' ten minutes.
const SLACK: Duration = Duration::from_secs(15 * 60);

/// Encodes a DER element.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length) if length < 0x80 => out.push(length),
        Ok(_) | Err(_) => {
            let length: Vec<u8> = content
                .len()
                .to_be_bytes()
                .into_iter()
                .skip_while(|byte| *byte == 0)
                .collect();
            out.push(0x80 | u8::try_from(length.len()).unwrap_or(0x7f));
            out.extend(length);
        }
    }
    out.extend(content);
    out
}

/// The allowed subjects: empty, or an organization with an empty name, as agents write it.
fn subjects() -> [Vec<u8>; 3] {
    let organization = |kind| {
        let attribute = der(
            tag::SEQUENCE,
            &[&der(tag::OID, &[&ORGANIZATION]), &der(kind, &[])],
        );
        der(tag::SEQUENCE, &[&der(tag::SET, &[&attribute])])
    };
    [
        der(tag::SEQUENCE, &[]),
        organization(tag::PRINTABLE),
        organization(tag::UTF8),
    ]
}

/// The allowed attributes: none, or the identity as the only SAN, critical or not.
fn attributes(identity: &Identity) -> [Vec<u8>; 4] {
    let uri = identity.to_string();
    let names = der(
        tag::OCTETS,
        &[&der(tag::SEQUENCE, &[&der(tag::URI, &[uri.as_bytes()])])],
    );
    let named = |critical: &[u8]| {
        let extension = der(
            tag::SEQUENCE,
            &[&der(tag::OID, &[&NAMES]), critical, &names],
        );
        let values = der(tag::SET, &[&der(tag::SEQUENCE, &[&extension])]);
        der(
            tag::ATTRIBUTES,
            &[&der(
                tag::SEQUENCE,
                &[&der(tag::OID, &[&EXTENSIONS]), &values],
            )],
        )
    };

    [
        Vec::new(),
        der(tag::ATTRIBUTES, &[]),
        named(&[]),
        named(&CRITICAL),
    ]
}

/// Checks that a CSR is for an identity and nothing else. Returns the CSR in DER and its public
/// key, in the encoding of certificates.
pub(super) fn request(pem: &str, identity: &Identity) -> Result<(Vec<u8>, Vec<u8>), SignerError> {
    let beyond = |what: String| SignerError::Beyond(what);
    let unreadable = || beyond("nothing readable".to_owned());
    let bytes =
        CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).map_err(|_| unreadable())?;
    let (rest, request) = X509CertificationRequest::from_der(&bytes).map_err(|_| unreadable())?;
    let info = &request.certification_request_info;

    // Common deviations have their own messages.
    if has_subject(&info.subject) {
        return Err(beyond(format!("the subject {}", info.subject)));
    }

    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            return Err(beyond("extensions besides names".to_owned()));
        };
        for name in &names.general_names {
            if !matches!(name, GeneralName::URI(uri) if *uri == identity.to_string()) {
                return Err(beyond(format!("the name {name}")));
            }
        }
    }

    let subject = info.subject.as_raw();
    let key = info.subject_pki.raw;
    let version = der(tag::INTEGER, &[&[0]]);
    let is_exact = subjects().iter().any(|one| one == subject)
        && attributes(identity).iter().any(|attributes| {
            der(tag::SEQUENCE, &[&version, subject, key, attributes]) == info.raw
        });

    if !is_exact || !rest.is_empty() {
        return Err(beyond(
            "more than one name, or in an unusual encoding".to_owned(),
        ));
    }

    Ok((bytes.to_vec(), key.to_vec()))
}

/// Checks what a signer returned for a request.
pub(super) fn chain(
    request: &CheckedRequest,
    signed: SignedChain,
    max_lifetime: Duration,
    now: SystemTime,
) -> Result<IssuedChain, SignerError> {
    let SignedChain {
        certificates: chain,
        roots,
        tainted,
    } = signed;
    let first = chain.first().ok_or(SignerError::Mismatch("missing"))?;
    if chain.len() > MAX_CHAIN {
        return Err(SignerError::Mismatch("followed by too many others"));
    }

    leaf(first, &request.identity, &request.key)?;
    let serial = life(first, request.lifetime.max(max_lifetime), now)?;
    for issuer in chain.iter().skip(1) {
        is_valid_ca(issuer, now)?;
    }

    let root_certificates = certificates(&roots, "the signer's roots")?;
    if root_certificates.is_empty() {
        return Err(SignerError::NoRoots);
    }

    let root = verifying_root(first, &chain, &root_certificates)?;
    is_valid_ca(&root, now)?;
    if tainted.contains(&root) {
        return Err(SignerError::Mismatch(
            "of a root that the signer has tainted",
        ));
    }

    Ok(IssuedChain {
        chain: chain
            .into_iter()
            .filter(|one| !root_certificates.contains(one))
            .collect(),
        root,
        roots,
        serial,
    })
}

/// Checks that a certificate is valid now, and not for too long. Returns its serial number.
fn life(
    leaf: &CertificateDer<'_>,
    max_lifetime: Duration,
    now: SystemTime,
) -> Result<String, SignerError> {
    let (_, leaf) =
        X509Certificate::from_der(leaf).map_err(|_| SignerError::Mismatch("malformed"))?;
    let begins = at(leaf.validity().not_before.timestamp());
    let ends = at(leaf.validity().not_after.timestamp());

    if begins > now + BACKDATE || ends <= now {
        return Err(SignerError::Mismatch("not valid now"));
    }
    if ends > now + max_lifetime + SLACK {
        return Err(SignerError::Mismatch(
            "valid for longer than MAX_WORKLOAD_CERT_TTL",
        ));
    }

    let serial = leaf.raw_serial();
    let is_positive = serial.first().is_some_and(|first| first & 0x80 == 0)
        && serial.iter().any(|byte| *byte != 0);
    if serial.len() > MAX_SERIAL_BYTES || !is_positive {
        return Err(SignerError::Mismatch("without a valid serial number"));
    }

    Ok(leaf.raw_serial_as_string())
}

/// Checks that a certificate of the chain may sign, and is valid now.
fn is_valid_ca(certificate: &CertificateDer<'_>, now: SystemTime) -> Result<(), SignerError> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|_| SignerError::Mismatch("followed by a malformed one"))?;
    if !certificate.is_ca() {
        return Err(SignerError::Mismatch("followed by one that is not a CA's"));
    }

    let begins = at(certificate.validity().not_before.timestamp());
    let ends = at(certificate.validity().not_after.timestamp());
    if begins > now + BACKDATE || ends <= now {
        return Err(SignerError::Mismatch(
            "signed by a CA that is not valid now",
        ));
    }

    Ok(())
}

/// Whether a subject has a name.
fn has_subject(subject: &X509Name<'_>) -> bool {
    subject.iter_attributes().any(|attribute| {
        *attribute.attr_type() != OID_X509_ORGANIZATION_NAME
            || !attribute.attr_value().data.is_empty()
    })
}

/// Checks that a certificate is for an identity and a key only.
fn leaf(leaf: &CertificateDer<'_>, identity: &Identity, key: &[u8]) -> Result<(), SignerError> {
    let wrong = SignerError::Mismatch;
    let unreadable = || wrong("malformed");
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
    if leaf.public_key().raw != key {
        return Err(wrong("for another key"));
    }

    if leaf.is_ca() {
        return Err(wrong("a CA's"));
    }

    let names = leaf.subject_alternative_name().map_err(|_| unreadable())?;
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    if !matches!(names, [GeneralName::URI(uri)] if *uri == identity.to_string()) {
        return Err(wrong("for another identity"));
    }

    // Signers may add subject attributes, but not names that an API server would accept as user or
    // group of Kubernetes.
    let names_user = leaf.subject().iter_attributes().any(|attribute| {
        let is_name =
            [OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME].contains(attribute.attr_type());
        is_name
            && attribute
                .as_str()
                .map_or(true, |text| text.starts_with(KUBERNETES))
    });

    if names_user {
        return Err(wrong("also for a Kubernetes user or group"));
    }

    let usage = leaf.key_usage().map_err(|_| unreadable())?;
    if usage.is_some_and(|usage| !usage.value.digital_signature() || usage.value.key_cert_sign()) {
        return Err(wrong(
            "not usable for digital signatures, or a CA certificate",
        ));
    }

    let extended = leaf.extended_key_usage().map_err(|_| unreadable())?;
    let is_for_both = |usage: &x509_parser::extensions::ExtendedKeyUsage<'_>| {
        usage.any || usage.client_auth && usage.server_auth
    };
    if extended.is_some_and(|usage| !is_for_both(usage.value)) {
        return Err(wrong(
            "not usable for both client and server authentication",
        ));
    }

    Ok(())
}
