//! Whether a chain of certificates is an identity's, and ends in certain roots.

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Checks that a chain is for an identity, and that one of the roots has signed it, by name and key.
/// The chain is in PEM, the leaf first.
pub fn check_chain(chain: &[String], identity: &str, roots: &str) -> Result<()> {
    let ders: Vec<CertificateDer<'static>> = chain
        .iter()
        .flat_map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes()))
        .collect::<Result<_, _>>()?;
    let (_, leaf) = X509Certificate::from_der(ders.first().context("a leaf")?)?;
    let names = leaf.subject_alternative_name()?.context("names")?;
    let names: Vec<String> = names
        .value
        .general_names
        .iter()
        .map(ToString::to_string)
        .collect();
    ensure!(names == [format!("URI({identity})")], "{names:?}");

    let roots: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(roots.as_bytes()).collect::<Result<_, _>>()?;
    let mut subject = leaf;
    for _ in 0..ders.len() {
        let has_signed = |der: &&CertificateDer<'_>| {
            X509Certificate::from_der(der).is_ok_and(|(_, issuer)| {
                issuer.subject().as_raw() == subject.issuer().as_raw()
                    && subject.verify_signature(Some(issuer.public_key())).is_ok()
            })
        };
        if roots.iter().any(|root| has_signed(&root)) {
            return Ok(());
        }
        let next = ders.iter().skip(1).find(has_signed);
        let next = next.context("the chain has a gap, or a signature is not its issuer's")?;
        subject = X509Certificate::from_der(next)?.1;
    }
    anyhow::bail!("the chain does not end in the company's roots")
}
