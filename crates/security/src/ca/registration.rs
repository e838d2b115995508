//! Kubernetes signs (`EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API`): CSRs of authenticated callers are
//! created through its CSR API and approved, and the returned certificates are checked.
//!
//! Agrees with `security/pkg/pki/ra` and `security/pkg/k8s/chiron` in objects, names of signers,
//! and where roots come from. An external signer copies the content of a CSR, so here, unlike in
//! Navarch's own CA, all of it is checked.

mod check;
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::bundle::{BundleError, certificates};
use super::sign::verifying_root;
use navarch_api::identity::Identity;
use navarch_api::mesh::CertificateData;
use navarch_api::names::is_kubernetes_name;
use navarch_api::regular_file;
use navarch_kubernetes::InWords;
use navarch_net::backoff::Backoff;
use navarch_pki::pem;

pub use server::ServerChain;

/// Timeout of a signer, as in istiod.
const SIGNER_TIMEOUT: Duration = Duration::from_secs(60);
/// Intervals of polling for the certificate.
const POLL_INTERVALS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
/// Minimum lifetime that the API accepts.
const MIN_LIFETIME: Duration = Duration::from_secs(600);
/// Key usages of workload certificates.
const USAGES: [&str; 4] = [
    "digital signature",
    "key encipherment",
    "server auth",
    "client auth",
];
/// The type of the condition that approves a request.
const APPROVED: &str = "Approved";
/// How often a request is approved that others change at the same time.
const APPROVAL_ATTEMPTS: u32 = 5;
/// The API server's code for a replaced object that has changed.
const CONFLICT: u16 = 409;
/// The file with the roots of an external CA.
const MOUNTED_ROOTS: &str = "./etc/external-ca-cert/root-cert.pem";
/// The roots of the cluster, which verify its own signers.
const CLUSTER_ROOTS: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Name prefix of requests.
const PREFIX: &str = "csr-workload-";

/// Configuration of signing by Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationConfig {
    /// `K8S_SIGNER`: the default signer.
    pub signer: String,
    /// `CERT_SIGNER_DOMAIN`: the prefix of the signers that requests name, followed by a slash.
    pub signer_domain: String,
    /// The roots of the signer, if they are in a file: `etc/external-ca-cert/root-cert.pem`, or
    /// those of the cluster.
    pub roots: Option<PathBuf>,
}

impl RegistrationConfig {
    /// Selects the file with the roots, if none is set, as istiod does: the mounted one, or else the
    /// cluster's, unless signers of a domain are configured.
    #[must_use]
    pub fn with_roots_file(self) -> Self {
        let mounted = PathBuf::from(MOUNTED_ROOTS);
        let roots = match self.roots {
            Some(roots) => Some(roots),
            None if regular_file::may_exist(&mounted) => Some(mounted),
            None if self.signer_domain.is_empty() => Some(PathBuf::from(CLUSTER_ROOTS)),
            None => None,
        };
        Self { roots, ..self }
    }
}

/// Signs through Kubernetes.
#[derive(Clone)]
pub struct Registration {
    /// The CSR API.
    api: Api<CertificateSigningRequest>,
    config: RegistrationConfig,
    /// The signers' roots in mesh config.
    mesh: MeshRoots,
}

/// Returns the roots of mesh config, by signers.
pub type MeshRoots = Arc<dyn Fn() -> Vec<CertificateData> + Send + Sync>;

/// Errors of signing.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The CSR requests more than the caller's identity.
    #[error("the CSR requests {0}; only the caller's identity is allowed")]
    Beyond(String),
    /// A signer was named, but no domain is configured.
    #[error("a signer can only be named if CERT_SIGNER_DOMAIN is set")]
    NoDomain,
    /// The name of the signer is invalid.
    #[error("invalid signer name")]
    SignerName,
    /// There is no signer.
    #[error("no signer: K8S_SIGNER is not set and the request names none")]
    NoSigner,
    /// The API server rejected the request.
    #[error("failed to create the CertificateSigningRequest")]
    Kubernetes(#[from] kube::Error),
    /// The signer denied the request.
    #[error("the signer denied the request: {0}")]
    Denied(String),
    /// The signer did not answer in time.
    #[error("the signer did not respond within {SIGNER_TIMEOUT:?}")]
    Silent,
    /// The certificate differs from the request.
    #[error("the signer's certificate is {0}")]
    Wrong(&'static str),
    /// The certificate is unreadable, or no root verifies it.
    #[error("the signer returned an unusable certificate")]
    Chain(#[from] BundleError),
    /// The root of the certificate is unknown.
    #[error("the signer's root is missing from the mesh config, the root file and the chain")]
    NoRoot,
    /// The file of the signer's roots cannot be read.
    #[error("failed to read the signer's roots in {path}")]
    Roots {
        /// A file in PEM.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Mesh config has no root of the signer of the server certificate.
    #[error("no entry of caCertificates in the mesh config names {0} among its certSigners")]
    NoMeshRoot(String),
    /// Generating the key or the CSR failed.
    #[error("failed to create a CSR")]
    Make(#[from] rcgen::Error),
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Registration {
    /// Signs through this client.
    #[must_use]
    pub fn new(client: kube::Client, config: RegistrationConfig, mesh: MeshRoots) -> Self {
        Self {
            api: Api::all(client),
            config,
            mesh,
        }
    }

    /// Has a CSR (PEM) signed for an identity by the named or the default signer. Returns the chain
    /// in PEM, leaf first, the roots last.
    ///
    /// # Errors
    /// If the CSR requests more than the identity, or the signer does not return what was
    /// requested.
    pub async fn sign(
        &self,
        request: &str,
        identity: &Identity,
        signer: &str,
        lifetime: Duration,
    ) -> Result<Vec<String>, RegistrationError> {
        let key = check::request(request, identity)?;
        let signer = self.signer(signer)?;
        let chain = self
            .put(request, &USAGES, &signer, lifetime, &identity.to_string())
            .await?;
        self.finish(&chain, identity, &key, &signer)
    }

    /// Creates a CertificateSigningRequest, waits until this signer has signed it, and deletes it.
    /// The approval names `whom` it is for. Returns the certificate chain.
    async fn put(
        &self,
        request: &str,
        usages: &[&str],
        signer: &str,
        lifetime: Duration,
        whom: &str,
    ) -> Result<Vec<u8>, RegistrationError> {
        let object = CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: Some(PREFIX.to_owned()),
                ..ObjectMeta::default()
            },
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
        let name = made.metadata.name.clone().unwrap_or_default();
        let outcome = self.approve_and_wait(made, whom).await;
        if let Err(error) = self.api.delete(&name, &DeleteParams::default()).await {
            tracing::warn!(name, error = %InWords(&error), "failed to delete the CertificateSigningRequest");
        }

        outcome
    }

    /// The roots of a signer in mesh config.
    fn mesh_roots(&self, signer: &str) -> Option<String> {
        let mesh = (self.mesh)();
        let named = mesh
            .into_iter()
            .find(|data| data.cert_signers.iter().any(|one| one == signer));
        named
            .and_then(|data| data.pem)
            .filter(|pem| !pem.is_empty())
    }

    /// The roots of the configured file; `None` if there is none. With another root in place of an
    /// unreadable one, the signer's certificates would be checked against a root that it chose.
    fn roots_in_file(&self) -> Result<Option<String>, RegistrationError> {
        let Some(path) = &self.config.roots else {
            return Ok(None);
        };
        match regular_file::read_text(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RegistrationError::Roots {
                path: path.clone(),
                source,
            }),
        }
    }

    /// The full name of a signer.
    fn signer(&self, named: &str) -> Result<String, RegistrationError> {
        let RegistrationConfig {
            signer,
            signer_domain,
            ..
        } = &self.config;
        match (named, signer_domain.as_str()) {
            ("", _) if signer.is_empty() => Err(RegistrationError::NoSigner),
            ("", _) => Ok(signer.clone()),
            (_, "") => Err(RegistrationError::NoDomain),
            // The API server would reject it, too: it splits the domain from the name.
            (named, domain) if is_kubernetes_name(named) => Ok(format!("{domain}/{named}")),
            (_, _) => Err(RegistrationError::SignerName),
        }
    }

    /// Approves a request that may have changed since it was made, as when another controller adds
    /// a condition to it. The request is replaced, not patched: that is the right that Istio's
    /// charts give.
    async fn approve(
        &self,
        made: CertificateSigningRequest,
        whom: &str,
    ) -> Result<(), RegistrationError> {
        let name = made.metadata.name.clone().unwrap_or_default();
        let mut current = made;

        for _ in 1..APPROVAL_ATTEMPTS {
            let approved = with_approval(current, &name, whom);
            match self.replace_approval(&name, &approved).await {
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {
                    current = self.api.get(&name).await?;
                }
                done => return done.map_err(RegistrationError::from),
            }
        }

        let approved = with_approval(current, &name, whom);
        Ok(self.replace_approval(&name, &approved).await?)
    }

    /// Writes the conditions of a request, unless it has changed.
    async fn replace_approval(
        &self,
        name: &str,
        request: &CertificateSigningRequest,
    ) -> Result<(), kube::Error> {
        self.api
            .replace_subresource("approval", name, &PostParams::default(), request)
            .await
            .map(drop)
    }

    /// Approves a request, and waits for its certificate.
    async fn approve_and_wait(
        &self,
        made: CertificateSigningRequest,
        whom: &str,
    ) -> Result<Vec<u8>, RegistrationError> {
        let name = &made.metadata.name.clone().unwrap_or_default();
        self.approve(made, whom).await?;
        let end = Instant::now() + SIGNER_TIMEOUT;
        let mut intervals = POLL_INTERVALS;

        while Instant::now() < end {
            let status = self.api.get(name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            if let Some(no) = conditions
                .into_iter()
                .find(|one| matches!(one.type_.as_str(), "Denied" | "Failed"))
            {
                return Err(RegistrationError::Denied(
                    no.message.or(no.reason).unwrap_or(no.type_),
                ));
            }
            if let Some(certificate) = status
                .certificate
                .filter(|certificate| !certificate.0.is_empty())
            {
                return Ok(certificate.0);
            }
            tokio::time::sleep(intervals.next_delay()).await;
        }

        Err(RegistrationError::Silent)
    }

    /// Checks the returned certificate, and finds its roots.
    fn finish(
        &self,
        chain: &[u8],
        identity: &Identity,
        key: &[u8],
        signer: &str,
    ) -> Result<Vec<String>, RegistrationError> {
        let text = String::from_utf8_lossy(chain);
        let chain = certificates(&text, "the signer's chain")?;
        let leaf = chain.first().ok_or(RegistrationError::Wrong("missing"))?;
        check::leaf(leaf, identity, key)?;
        let known = match self.mesh_roots(signer) {
            Some(named) => Some(named),
            None => self.roots_in_file()?,
        };

        let in_chain = || {
            chain
                .iter()
                .skip(1)
                .find(|one| is_self_signed(one))
                .map(|one| pem::encode(one))
        };

        let roots = known.or_else(in_chain).ok_or(RegistrationError::NoRoot)?;
        let root_certificates = certificates(&roots, "the signer's roots")?;
        verifying_root(leaf, &chain, &root_certificates)?;
        let others = chain.iter().filter(|one| !root_certificates.contains(one));

        Ok(others
            .map(|one| pem::encode(one))
            .chain(std::iter::once(roots))
            .collect())
    }
}

/// A request with the condition that approves it, beside those that it has.
fn with_approval(
    mut request: CertificateSigningRequest,
    name: &str,
    whom: &str,
) -> CertificateSigningRequest {
    let status = request.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != APPROVED);
    conditions.push(CertificateSigningRequestCondition {
        type_: APPROVED.to_owned(),
        status: "True".to_owned(),
        reason: Some("NavarchApproved".to_owned()),
        message: Some(format!(
            "CSR ({name}) for the certificate ({whom}) is approved"
        )),
        ..CertificateSigningRequestCondition::default()
    });
    request
}

/// Whether a certificate has signed itself.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, one)| one.subject() == one.issuer() && one.verify_signature(None).is_ok())
}
