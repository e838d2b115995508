//! CSRs and certificates that ask for more than they may.

use rcgen::{
    Attribute, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

use super::*;
use navarch_pki::pem;

const OWN: &str = "spiffe://cluster.local/ns/shop/sa/web";

fn identity() -> Identity {
    Identity::parse(OWN).unwrap()
}

/// What asks for these names and a subject.
fn params(names: &[&str], subject: &[(DnType, &str)]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let uri = |name: &&str| match name.contains("://") {
        true => SanType::URI((*name).try_into().unwrap()),
        false => SanType::DnsName((*name).try_into().unwrap()),
    };
    params.subject_alt_names = names.iter().map(uri).collect();
    params
}

fn checked(params: &CertificateParams, more: Vec<Attribute>) -> Result<Vec<u8>, String> {
    let key = KeyPair::generate().unwrap();
    let made = params
        .serialize_request_with_attributes(&key, more)
        .unwrap()
        .pem()
        .unwrap();
    let checked = request(&made, &identity()).map_err(|error| error.to_string())?;
    Ok(checked.1)
}

#[test]
fn a_request_has_its_senders_identity_only() {
    for (names, subject) in [
        (&[OWN][..], &[][..]),
        (&[OWN], &[(DnType::OrganizationName, "")]),
        (&[], &[]),
    ] {
        checked(&params(names, subject), Vec::new()).unwrap();
    }

    for (names, subject, part) in [
        (
            &["spiffe://cluster.local/ns/shop/sa/admin"][..],
            &[][..],
            "sa/admin",
        ),
        (&[OWN, "admin.example"], &[], "admin.example"),
        (&[OWN, OWN], &[], "more than one name"),
        (
            &[OWN],
            &[(DnType::CommonName, "system:masters")],
            "the subject",
        ),
        (&[OWN], &[(DnType::CommonName, "")], "the subject"),
        (
            &[OWN],
            &[(DnType::OrganizationName, "system:masters")],
            "the subject O=system:masters",
        ),
    ] {
        let error = checked(&params(names, subject), Vec::new()).unwrap_err();
        assert!(error.contains(part), "{names:?} {subject:?}: {error}");
    }

    let mut ca = params(&[OWN], &[]);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    assert!(
        checked(&ca, Vec::new())
            .unwrap_err()
            .contains("extensions besides names")
    );
}

#[test]
fn ambiguous_certificate_requests_are_rejected() {
    let names = |name: &str| {
        let names = der(
            tag::OCTETS,
            &[&der(tag::SEQUENCE, &[&der(tag::URI, &[name.as_bytes()])])],
        );
        der(
            tag::SEQUENCE,
            &[&der(tag::SEQUENCE, &[&der(tag::OID, &[&NAMES]), &names])],
        )
    };

    let admin = names("spiffe://cluster.local/ns/bank/sa/admin");

    // A second request for extensions, a second value of the first, and an attribute of another
    // kind.
    let extensions: &'static [u64] = &[1, 2, 840, 113_549, 1, 9, 14];
    let second = Attribute {
        oid: extensions,
        values: der(tag::SET, &[&admin]),
    };
    let twice = Attribute {
        oid: extensions,
        values: der(tag::SET, &[&names(OWN), &admin]),
    };

    let password = Attribute {
        oid: &[1, 2, 840, 113_549, 1, 9, 7],
        values: der(tag::SET, &[&der(tag::UTF8, &[b"secret"])]),
    };
    for (names, more) in [(&[OWN][..], second), (&[], twice), (&[OWN], password)] {
        let error = checked(&params(names, &[]), vec![more]);
        assert!(error.is_err(), "{names:?}");
    }
}

#[test]
fn a_certificate_is_for_the_sender_and_its_key() {
    let key = KeyPair::generate().unwrap();
    let check = |params: CertificateParams| {
        let made = params.self_signed(&key).unwrap();
        leaf(
            made.der(),
            &identity(),
            rcgen::PublicKeyData::subject_public_key_info(&key).as_slice(),
        )
        .map_err(|error| error.to_string())
    };

    check(params(&[OWN], &[])).unwrap();
    check(params(
        &[OWN],
        &[(DnType::OrganizationName, "Example Inc.")],
    ))
    .unwrap();
    let both = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];

    let usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    let own = || params(&[OWN], &[]);
    let mut whole = own();
    whole.extended_key_usages = both;
    whole.key_usages = usages;
    check(whole).unwrap();

    let mut ca = own();
    let mut server = own();
    let mut encipherment = own();
    ca.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    encipherment.key_usages = vec![KeyUsagePurpose::KeyEncipherment];

    for (made, part) in [
        (
            params(&["spiffe://cluster.local/ns/shop/sa/admin"], &[]),
            "another identity",
        ),
        (params(&[OWN, "web.example"], &[]), "another identity"),
        (
            params(&[OWN], &[(DnType::OrganizationName, "system:masters")]),
            "a Kubernetes user or group",
        ),
        (
            params(&[OWN], &[(DnType::CommonName, "system:admin")]),
            "a Kubernetes user or group",
        ),
        (ca, "a CA's"),
        (server, "client and server authentication"),
        (encipherment, "digital signatures"),
    ] {
        let error = check(made).unwrap_err();
        assert!(error.contains(part), "{error}");
    }

    let other = KeyPair::generate().unwrap();
    let stolen = params(&[OWN], &[]).self_signed(&other).unwrap();
    let own = rcgen::PublicKeyData::subject_public_key_info(&key);
    assert!(
        leaf(stolen.der(), &identity(), &own)
            .unwrap_err()
            .to_string()
            .contains("another key")
    );

    // A long name has a length of more than one byte.
    let long = Identity::parse(&format!("spiffe://td/ns/shop/sa/{}", "a".repeat(300))).unwrap();
    let csr = params(&[&long.to_string()], &[])
        .serialize_request(&key)
        .unwrap();
    assert_eq!(
        request(
            &pem::encode(csr.der()).replace("CERTIFICATE", "CERTIFICATE REQUEST"),
            &long
        )
        .unwrap()
        .1,
        own
    );
}
