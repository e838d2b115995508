//! All trusted roots of the mesh: those of the CA, of mesh config, and of the SPIFFE endpoints in
//! mesh config.
//!
//! Agrees with `pilot/pkg/trustbundle` in the trusted roots; differs in that an invalid root is
//! skipped and reported, and does not invalidate others.

mod endpoints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use navarch_api::mesh::CertificateData;
use navarch_base::base64_text;
use navarch_pki::pem::{self, PemError};

pub use endpoints::BundleEndpoints;

/// Why roots are skipped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum TrustError {
    /// A text has no certificates, or an invalid one.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A certificate may not sign others.
    #[error("{0} contains a certificate that is not a CA certificate")]
    NoCa(String),
    /// The response of an endpoint is not a SPIFFE bundle.
    #[error("the response is not a SPIFFE bundle with certificates")]
    NoBundle,
}

/// The roots of SPIFFE bundle endpoints, by address.
pub type Fetched = BTreeMap<String, Arc<[Arc<str>]>>;

/// The trusted roots of the mesh, and the errors of skipped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustBundle {
    /// The roots, one certificate in PEM each: the CA's own in their order, which says what root
    /// signs, then the others, sorted.
    pub roots: Arc<[Arc<str>]>,
    /// The errors of skipped roots.
    pub faults: BTreeSet<TrustError>,
}

/// The certificates of a text, each as separate PEM; `place` names the text in errors.
///
/// # Errors
/// If a certificate is invalid, or not of a CA.
pub fn split(text: &str, place: &str) -> Result<Vec<Arc<str>>, TrustError> {
    pem::certificates(text.as_bytes(), place)?
        .iter()
        .map(|one| check(one, place))
        .collect()
}

/// Encodes a CA certificate as PEM.
fn check(certificate: &CertificateDer<'_>, place: &str) -> Result<Arc<str>, TrustError> {
    let parsed = X509Certificate::from_der(certificate);
    let (_, parsed) = parsed.map_err(|_| PemError::Unreadable(place.to_owned()))?;
    if parsed.is_ca() {
        Ok(Arc::from(pem::encode(certificate)))
    } else {
        Err(TrustError::NoCa(place.to_owned()))
    }
}

/// The SPIFFE endpoints in mesh config.
#[must_use]
pub fn endpoints(mesh: &[CertificateData]) -> BTreeSet<String> {
    let without_pem = mesh
        .iter()
        .filter(|data| data.pem.as_deref().unwrap_or_default().is_empty());
    without_pem
        .filter_map(|data| data.spiffe_bundle_url.clone())
        .filter(|url| !url.is_empty())
        .collect()
}

/// Merges the trusted roots: the CA's own, those of the mesh config, those of its SPIFFE endpoints,
/// and those of trust domains that a SPIRE server federates with.
#[must_use]
pub fn assemble(
    own: &str,
    mesh: &[CertificateData],
    fetched: &Fetched,
    federated: &Fetched,
) -> TrustBundle {
    let mut faults = BTreeSet::new();
    let mut roots = Vec::new();
    if !own.is_empty() {
        match split(own, "the CA") {
            Ok(found) => roots = found,
            Err(fault) => _ = faults.insert(fault),
        }
    }

    let mut others: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut add = |found: Result<Vec<Arc<str>>, TrustError>| match found {
        Ok(found) => others.extend(found),
        Err(fault) => _ = faults.insert(fault),
    };

    for (index, data) in mesh.iter().enumerate() {
        if let Some(pem) = data.pem.as_deref().filter(|pem| !pem.is_empty()) {
            add(split(
                pem,
                &format!("caCertificates[{index}] of the mesh config"),
            ));
        }
    }

    for endpoint in endpoints(mesh) {
        if let Some(found) = fetched.get(&endpoint) {
            add(Ok(found.to_vec()));
        }
    }

    for found in federated.values() {
        add(Ok(found.to_vec()));
    }

    roots.extend(others);
    let mut seen = BTreeSet::new();
    roots.retain(|root| seen.insert(root.clone()));

    TrustBundle {
        roots: roots.into(),
        faults,
    }
}

/// The roots in a SPIFFE bundle: each key for `x509-svid` has one certificate.
///
/// # Errors
/// If there is none, or an invalid one.
pub fn from_spiffe(document: &str) -> Result<Arc<[Arc<str>]>, TrustError> {
    let document: Value = serde_json::from_str(document).map_err(|_| TrustError::NoBundle)?;
    let keys = document
        .get("keys")
        .and_then(Value::as_array)
        .ok_or(TrustError::NoBundle)?;
    let mut roots = Vec::new();
    for key in keys
        .iter()
        .filter(|key| key.get("use").and_then(Value::as_str) == Some("x509-svid"))
    {
        let certificates = key.get("x5c").and_then(Value::as_array).map(Vec::as_slice);
        let Some([Value::String(certificate)]) = certificates else {
            return Err(TrustError::NoBundle);
        };
        let certificate = base64_text::decode(certificate).map_err(|_| TrustError::NoBundle)?;
        roots.push(check(
            &CertificateDer::from(certificate),
            "the SPIFFE bundle",
        )?);
    }

    if roots.is_empty() {
        Err(TrustError::NoBundle)
    } else {
        Ok(roots.into())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::super::ca::Bundle;
    use super::*;
    use navarch_pki::KeyType;

    fn root() -> String {
        let now = jiff::Timestamp::now().into();
        Bundle::self_signed(
            "td",
            KeyType::P256,
            std::time::Duration::from_secs(3600),
            now,
        )
        .unwrap()
        .certificate
    }

    fn in_pem(text: &str) -> CertificateData {
        CertificateData {
            pem: Some(text.to_owned()),
            ..CertificateData::default()
        }
    }

    #[test]
    fn roots_of_all_sources_are_deduplicated_and_errors_reported() {
        let own = root();
        let mesh = root();
        let remote = root();
        let url = "https://td.example/bundle";
        let endpoint = CertificateData {
            spiffe_bundle_url: Some(url.to_owned()),
            ..CertificateData::default()
        };
        let config = [in_pem(&mesh), in_pem(&own), in_pem("nonsense"), endpoint];

        let fetched = Fetched::from([(url.to_owned(), split(&remote, "").unwrap().into())]);
        let bundle = assemble(&own, &config, &fetched, &Fetched::new());
        assert_eq!(bundle.roots.len(), 3);
        assert_eq!(&*bundle.roots[0], own, "the CA's own root is the first");
        assert!(bundle.roots[1..].is_sorted());
        let fault = bundle.faults.into_iter().next().unwrap().to_string();
        assert_eq!(
            fault,
            "no PEM certificate in caCertificates[2] of the mesh config"
        );

        // The roots of an endpoint that is no longer configured are dropped.
        let none = Fetched::new();
        assert_eq!(assemble(&own, &[], &fetched, &none).roots.len(), 1);
        assert_eq!(
            assemble(&own, &[], &none, &fetched).roots.len(),
            2,
            "a federated trust domain"
        );
    }

    #[test]
    fn a_spiffe_bundle_gives_its_certificates() {
        let root = root();
        let encoded = STANDARD.encode(&pem::certificates(root.as_bytes(), "").unwrap()[0]);
        let good = format!(
            r#"{{"keys":[{{"use":"x509-svid","x5c":["{encoded}"]}},{{"use":"jwt-svid"}}]}}"#
        );
        assert_eq!(
            &*from_spiffe(&good).unwrap(),
            split(&root, "").unwrap().as_slice()
        );

        let two = format!(r#"{{"keys":[{{"use":"x509-svid","x5c":["{encoded}","{encoded}"]}}]}}"#);

        for broken in [
            "",
            "null",
            "{}",
            r#"{"keys":[]}"#,
            r#"{"keys":[{"use":"x509-svid","x5c":["!"]}]}"#,
            &two,
        ] {
            assert_eq!(from_spiffe(broken), Err(TrustError::NoBundle), "{broken}");
        }
    }
}
