//! Kubernetes signs the certificate of Navarch itself (`PILOT_CERT_PROVIDER=k8s.io/<signer>`).
//!
//! Agrees with `pilot/pkg/bootstrap/certcontroller.go` in the signer, the usages and the published
//! roots.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::bundle::{at, certificates};
use super::super::sign::verifying_root;
use super::{Registration, RegistrationError};

/// Key usages of the server certificate.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

/// A server certificate that an external signer has signed.
#[derive(Debug)]
pub struct ServerChain {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the leaf, generated for this chain. The signer gets only the CSR.
    pub key: PrivatePkcs8KeyDer<'static>,
    /// The roots that verify the chain, in PEM.
    pub roots: String,
}

impl Registration {
    /// Requests a new certificate for a server with these names. Its root must be the published
    /// one: the signer's root in mesh config.
    ///
    /// # Errors
    /// If mesh config has no root of the signer, or the signer does not return what was requested.
    pub async fn sign_server(
        &self,
        names: &[String],
        signer: &str,
        lifetime: Duration,
    ) -> Result<ServerChain, RegistrationError> {
        let roots = self.server_roots(signer)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?.pem()?;

        let chain = self
            .put(&request, &USAGES, signer, lifetime, &names.join(","), None)
            .await?;
        let chain = certificates(&String::from_utf8_lossy(&chain), "the signer's chain")?;

        let leaf = chain.first().ok_or(RegistrationError::Wrong("missing"))?;
        check_names(leaf, names)?;
        verifying_root(leaf, &chain, &certificates(&roots, "the signer's roots")?)?;

        Ok(ServerChain {
            chain,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
            roots,
        })
    }

    /// The roots that verify a signer's server certificates.
    ///
    /// # Errors
    /// If mesh config has none.
    pub fn server_roots(&self, signer: &str) -> Result<String, RegistrationError> {
        self.mesh_roots(signer)
            .ok_or_else(|| RegistrationError::NoMeshRoot(signer.to_owned()))
    }
}

impl ServerChain {
    /// The expiry of the certificate; `None` if it is invalid.
    #[must_use]
    pub fn not_after(&self) -> Option<SystemTime> {
        let (_, leaf) = X509Certificate::from_der(self.chain.first()?).ok()?;
        Some(at(leaf.validity().not_after.timestamp()))
    }
}

/// Checks that a certificate has all of these names: clients that connect by a missing name would
/// reject it.
fn check_names(leaf: &CertificateDer<'_>, names: &[String]) -> Result<(), RegistrationError> {
    let unreadable = || RegistrationError::Wrong("malformed");
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
    let found = leaf.subject_alternative_name().map_err(|_| unreadable())?;
    let found = found.map_or(&[][..], |found| &found.value.general_names);
    let octets = |name: &String| match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.octets().to_vec(),
        Ok(IpAddr::V6(ip)) => ip.octets().to_vec(),
        Err(_) => Vec::new(),
    };

    let has = |name: &String| {
        let octets = octets(name);
        found.iter().any(|one| {
            matches!(one, GeneralName::DNSName(known) if known == name)
                || matches!(one, GeneralName::IPAddress(known) if *known == octets)
        })
    };

    if names.iter().all(has) {
        Ok(())
    } else {
        Err(RegistrationError::Wrong(
            "not valid for all names of the server",
        ))
    }
}
