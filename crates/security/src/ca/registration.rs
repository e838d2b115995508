//! Kubernetes signs (`EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API`): requests of callers who were made out are put to its CSR API and
//! approved, and what comes back is checked.
//!
//! Agrees with `security/pkg/pki/ra` and `security/pkg/k8s/chiron` in objects, names of signers, and where roots come from.
//! An outer signer copies what a request says, so here, unlike in a CA of one's own, all of it counts.

mod check;
mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::bundle::{BundleError, certificates};
use super::sign::check_rooted;
use crate::pem;
use navarch_api::identity::Identity;
use navarch_api::mesh::CertificateData;
use navarch_api::names::is_kubernetes_name;
use navarch_api::regular_file;
use navarch_kubernetes::InWords;

pub use server::ServerChain;

/// How long a signer may take, as istiod waits.
const SIGNER_TIMEOUT: Duration = Duration::from_secs(60);
/// How soon and how seldom it is looked whether it has signed.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The shortest lifetime that the API takes.
const MIN_LIFETIME: Duration = Duration::from_secs(600);
/// What workloads' certificates are for.
const USAGES: [&str; 4] = ["digital signature", "key encipherment", "server auth", "client auth"];
/// How requests are named.
const PREFIX: &str = "csr-workload-";

/// Configuration of signing by Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// `K8S_SIGNER`: who signs where a request names nobody.
    pub signer: String,
    /// `CERT_SIGNER_DOMAIN`: what comes before the names that requests give, with a slash.
    pub signer_domain: String,
    /// The roots of the signer, if they are in a file: `etc/external-ca-cert/root-cert.pem`, or those of the cluster.
    pub roots: Option<PathBuf>,
}

/// Puts requests to Kubernetes.
#[derive(Clone)]
pub struct Registration {
    /// The CSR API.
    api: Api<CertificateSigningRequest>,
    config: RegistrationConfig,
    /// The roots that mesh config says.
    mesh: MeshRoots,
}

/// Tells the roots that mesh config says, by signers.
pub type MeshRoots = Arc<dyn Fn() -> Vec<CertificateData> + Send + Sync>;

/// Why nothing is signed.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The request asks for more than its caller is.
    #[error("the CSR requests {0}; only the caller's identity is allowed")]
    Beyond(String),
    /// A signer was named, and names have no domain here.
    #[error("a signer can only be named if CERT_SIGNER_DOMAIN is set")]
    NoDomain,
    /// The signer that was named cannot be one.
    #[error("invalid signer name")]
    SignerName,
    /// Nobody is to sign.
    #[error("no signer: K8S_SIGNER is not set and the request names none")]
    NoSigner,
    /// The API server says no.
    #[error("failed to create the CertificateSigningRequest")]
    Kubernetes(#[from] kube::Error),
    /// The signer says no.
    #[error("the signer denied the request: {0}")]
    Refused(String),
    /// The signer says nothing.
    #[error("the signer did not answer within {SIGNER_TIMEOUT:?}")]
    Silent,
    /// What came back is not what was asked for.
    #[error("the signer's certificate is {0}")]
    Wrong(&'static str),
    /// What came back cannot be read, or no root vouches for it.
    #[error("the signer returned an unusable certificate")]
    Chain(#[from] BundleError),
    /// Nobody says which root vouches for it.
    #[error("the signer's root is missing from the mesh config, the root file and the chain")]
    NoRoot,
    /// Mesh config says no root of the signer for the server itself.
    #[error("no entry of caCertificates in the mesh config names {0} among its certSigners")]
    NoMeshRoot(String),
    /// There is no key or request.
    #[error("failed to create a CSR")]
    Make(#[from] rcgen::Error),
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Registration {
    /// By way of a client.
    #[must_use]
    pub fn new(client: kube::Client, config: RegistrationConfig, mesh: MeshRoots) -> Self {
        Self { api: Api::all(client), config, mesh }
    }

    /// Has a request (PEM) signed for an identity by the signer of this name, or by the one of all who name none. Gives the
    /// chain in PEM, leaf first, the roots last.
    ///
    /// # Errors
    /// When the request says more than the identity, or the signer does not give what was asked for.
    pub async fn sign(
        &self,
        request: &str,
        identity: &Identity,
        signer: &str,
        lifetime: Duration,
    ) -> Result<Vec<String>, RegistrationError> {
        let key = check::request(request, identity)?;
        let signer = self.signer(signer)?;
        let chain = self.put(request, &USAGES, &signer, lifetime, &identity.to_string()).await?;
        self.finish(&chain, identity, &key, &signer)
    }

    /// Creates a CertificateSigningRequest, waits until this signer has signed it, and deletes it. The approval names `whom` it is
    /// for. Returns the certificate chain.
    async fn put(
        &self,
        request: &str,
        usages: &[&str],
        signer: &str,
        lifetime: Duration,
        whom: &str,
    ) -> Result<Vec<u8>, RegistrationError> {
        let object = CertificateSigningRequest {
            metadata: ObjectMeta { generate_name: Some(PREFIX.to_owned()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.as_bytes().to_vec()),
                usages: Some(usages.iter().map(|usage| (*usage).to_owned()).collect()),
                signer_name: signer.to_owned(),
                expiration_seconds: i32::try_from(lifetime.max(MIN_LIFETIME).as_secs()).ok(),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let made = self.api.create(&PostParams::default(), &object).await?;
        let name = made.metadata.name.unwrap_or_default();
        let outcome = self.approve_and_wait(&name, whom).await;
        if let Err(error) = self.api.delete(&name, &DeleteParams::default()).await {
            tracing::warn!(name, error = %InWords(&error), "failed to delete the CertificateSigningRequest");
        }
        outcome
    }

    /// The roots of a signer that mesh config says.
    fn mesh_roots(&self, signer: &str) -> Option<String> {
        let mesh = (self.mesh)();
        let named = mesh.into_iter().find(|data| data.cert_signers.iter().any(|one| one == signer));
        named.and_then(|data| data.pem).filter(|pem| !pem.is_empty())
    }

    /// The whole name of a signer.
    fn signer(&self, named: &str) -> Result<String, RegistrationError> {
        let RegistrationConfig { signer, signer_domain, .. } = &self.config;
        match (named, signer_domain.as_str()) {
            ("", _) if signer.is_empty() => Err(RegistrationError::NoSigner),
            ("", _) => Ok(signer.clone()),
            (_, "") => Err(RegistrationError::NoDomain),
            // The API server would refuse it, too: it parts the domain from the name.
            (named, domain) if is_kubernetes_name(named) => Ok(format!("{domain}/{named}")),
            (_, _) => Err(RegistrationError::SignerName),
        }
    }

    /// Approves a request, and waits for its certificate.
    async fn approve_and_wait(&self, name: &str, whom: &str) -> Result<Vec<u8>, RegistrationError> {
        let message = format!("CSR ({name}) for the certificate ({whom}) is approved");
        let condition = json!({"type": "Approved", "status": "True", "reason": "NavarchApproved", "message": message});
        let approval = json!({"status": {"conditions": [condition]}});
        self.api.patch_approval(name, &PatchParams::default(), &Patch::Strategic(&approval)).await?;
        let end = Instant::now() + SIGNER_TIMEOUT;
        let mut wait = POLL_INTERVALS.0;
        while Instant::now() < end {
            let status = self.api.get(name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            if let Some(no) = conditions.into_iter().find(|one| matches!(one.type_.as_str(), "Denied" | "Failed")) {
                return Err(RegistrationError::Refused(no.message.or(no.reason).unwrap_or(no.type_)));
            }
            if let Some(certificate) = status.certificate.filter(|certificate| !certificate.0.is_empty()) {
                return Ok(certificate.0);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(POLL_INTERVALS.1);
        }
        Err(RegistrationError::Silent)
    }

    /// Checks what came back, and finds its roots.
    fn finish(
        &self,
        chain: &[u8],
        identity: &Identity,
        key: &[u8],
        signer: &str,
    ) -> Result<Vec<String>, RegistrationError> {
        let text = String::from_utf8_lossy(chain);
        let chain = certificates(&text, "the signer's chain")?;
        let leaf = chain.first().ok_or(RegistrationError::Wrong("not there"))?;
        check::leaf(leaf, identity, key)?;
        let named = self.mesh_roots(signer);
        let in_file = || self.config.roots.as_ref().and_then(|path| regular_file::read_text(path).ok());
        let in_chain = || chain.iter().skip(1).find(|one| is_self_signed(one)).map(|one| pem::encode(one));
        let roots = named.or_else(in_file).or_else(in_chain).ok_or(RegistrationError::NoRoot)?;
        let root_certificates = certificates(&roots, "the signer's roots")?;
        check_rooted(leaf, &chain, &root_certificates)?;
        let others = chain.iter().filter(|one| !root_certificates.contains(one));
        Ok(others.map(|one| pem::encode(one)).chain(std::iter::once(roots)).collect())
    }
}

/// Whether a certificate has signed itself.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, one)| one.subject() == one.issuer() && one.verify_signature(None).is_ok())
}
