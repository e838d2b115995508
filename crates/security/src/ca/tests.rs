//! Signing, rejected requests, and loading of CAs.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::*;
use navarch_api::identity::Identity;
use navarch_pki::{CsrError, KeyType, SigningRequest};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time of day.
fn clock() -> SystemTime {
    jiff::Timestamp::now().into()
}

/// A new root.
fn bundle(key_type: KeyType) -> Bundle {
    Bundle::self_signed("cluster.local", key_type, 10 * DAY, clock()).unwrap()
}

/// A request for other names than its caller has.
fn request(key: &KeyPair) -> String {
    CertificateParams::new(vec!["admin.example".to_owned()])
        .unwrap()
        .serialize_request(key)
        .unwrap()
        .pem()
        .unwrap()
}

/// The identity of a test.
fn web() -> Subject {
    Subject::Workload(Identity::parse("spiffe://cluster.local/ns/shop/sa/web").unwrap())
}

/// The URIs in a certificate's names, and the number of names.
fn names(certificate: &[u8]) -> (Vec<String>, usize) {
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert!(names.critical, "the subject is empty");
    let all = &names.value.general_names;
    let uris = all.iter().filter_map(|name| {
        if let GeneralName::URI(uri) = name {
            Some((*uri).to_owned())
        } else {
            None
        }
    });
    (uris.collect(), all.len())
}

#[test]
fn certificates_have_the_callers_identity_regardless_of_the_csr() {
    let now = clock();

    for key_type in [KeyType::P256, KeyType::Rsa2048] {
        let authority = Authority::new(&bundle(key_type), now).unwrap();
        let key = KeyPair::generate().unwrap();
        let csr = SigningRequest::parse(&request(&key)).unwrap();
        let chain = authority.sign(&csr, &web(), DAY, now).unwrap();
        assert_eq!(chain.len(), 1, "the root is not part of the chain");
        assert_eq!(
            names(&chain[0]),
            (vec!["spiffe://cluster.local/ns/shop/sa/web".to_owned()], 1)
        );

        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        let (_, root) = X509Certificate::from_der(&authority.root_certificates()[0]).unwrap();
        leaf.verify_signature(Some(root.public_key())).unwrap();
        assert!(!leaf.is_ca());
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && usage.server_auth);
        let lives = leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp();
        assert_eq!(lives, 24 * 3600 + 120);
    }
}

#[test]
fn no_certificate_expires_after_its_ca() {
    let now = clock();
    let authority = Authority::new(&bundle(KeyType::P256), now).unwrap();
    let csr = SigningRequest::parse(&request(&KeyPair::generate().unwrap())).unwrap();
    let chain = authority.sign(&csr, &web(), 90 * DAY, now).unwrap();
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    let (_, root) = X509Certificate::from_der(&authority.root_certificates()[0]).unwrap();
    assert_eq!(leaf.validity().not_after, root.validity().not_after);
    assert!(matches!(
        authority.sign(&csr, &web(), DAY, now + 11 * DAY),
        Err(SignError::Expired)
    ));
}

#[test]
fn lifetimes_are_bounded() {
    let lifetimes = Lifetimes {
        default: DAY,
        max: 2 * DAY,
    };
    assert_eq!(lifetimes.grant(0).unwrap(), DAY);
    assert_eq!(lifetimes.grant(-5).unwrap(), DAY);
    assert_eq!(lifetimes.grant(60).unwrap(), Duration::from_secs(60));
    assert!(lifetimes.grant(3 * 24 * 3600).is_err());
    assert!(lifetimes.grant(i64::MAX).is_err());
}

#[test]
fn invalid_certificate_requests_are_rejected() {
    let good = request(&KeyPair::generate().unwrap());
    assert!(SigningRequest::parse(&good).is_ok());
    assert_eq!(SigningRequest::parse("").unwrap_err(), CsrError::Unreadable);
    assert_eq!(
        SigningRequest::parse(&"x".repeat(1 << 20)).unwrap_err(),
        CsrError::TooLong
    );
    let other = Bundle::self_signed("x", KeyType::P256, DAY, clock())
        .unwrap()
        .certificate;

    assert_eq!(
        SigningRequest::parse(&other).unwrap_err(),
        CsrError::Unreadable
    );

    // One bit of the signature is flipped.
    use base64::Engine as _;

    let base64 = base64::engine::general_purpose::STANDARD;
    let body: String = good
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let mut der = base64.decode(body).unwrap();
    let last = der.len() - 1;
    der[last] ^= 1;

    let forged = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        base64.encode(der)
    );
    assert_eq!(
        SigningRequest::parse(&forged).unwrap_err(),
        CsrError::Signature
    );
}

#[test]
fn parts_that_do_not_belong_together_make_no_authority() {
    let now = clock();
    let one = bundle(KeyType::P256);
    let other = bundle(KeyType::P256);
    let fault = |bundle: &Bundle| Authority::new(bundle, now).unwrap_err().to_string();
    assert!(
        fault(&Bundle {
            key: other.key.clone(),
            ..one.clone()
        })
        .contains("does not match its certificate")
    );

    assert!(
        fault(&Bundle {
            roots: other.roots.clone(),
            ..one.clone()
        })
        .contains("no root verifies")
    );

    assert!(
        fault(&Bundle {
            certificate: "x".to_owned(),
            ..one.clone()
        })
        .contains("no PEM certificate in the CA's certificate")
    );

    assert!(
        Authority::new(&one, now + 11 * DAY)
            .unwrap_err()
            .to_string()
            .contains("expired")
    );

    let authority = Authority::new(&one, now).unwrap();
    let (chain, key) = authority.issue(&web(), DAY, now).unwrap();
    let leaf = Bundle {
        certificate: navarch_pki::pem::encode(&chain[0]),
        key: navarch_api::kubernetes::SecretBytes::new(
            KeyPair::try_from(&key).unwrap().serialize_pem(),
        ),
        ..one
    };

    assert!(fault(&leaf).contains("not a CA certificate"));
    assert!(
        !format!("{leaf:?}").contains("PRIVATE"),
        "keys are not printed"
    );
}

#[tokio::test]
async fn a_plugged_in_ca_is_read_in_both_layouts() {
    let folder = tempfile::tempdir().unwrap();
    let plugged_in = PluggedIn {
        folder: folder.path().to_owned(),
        secrets: None,
    };
    assert!(plugged_in.read().await.unwrap().is_none());
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let root = bundle(KeyType::P256);
    write("ca-cert.pem", &root.certificate);

    assert!(
        plugged_in
            .read()
            .await
            .unwrap_err()
            .to_string()
            .contains("ca-key.pem is missing")
    );

    write(
        "ca-key.pem",
        std::str::from_utf8(root.key.expose()).unwrap(),
    );
    write("root-cert.pem", &root.roots);
    assert_eq!(plugged_in.read().await.unwrap(), Some(root));
    let next = bundle(KeyType::P256);
    write("tls.key", std::str::from_utf8(next.key.expose()).unwrap());

    write("ca.crt", &next.roots);
    write("tls.crt", &next.certificate);
    assert_eq!(
        plugged_in.read().await.unwrap(),
        Some(Bundle {
            chain: next.certificate.clone(),
            ..next
        })
    );
}
