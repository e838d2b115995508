//! Kubernetes signs (`EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API`): CSRs of authenticated callers are
//! created through its CSR API and approved, and the returned certificates are checked.
//!
//! Agrees with `security/pkg/pki/ra` and `security/pkg/k8s/chiron` in objects, names of signers,
//! and where roots come from.

#[cfg(test)]
pub(super) mod held_server;
pub(super) mod objects;
mod request;
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use kube::Api;
use kube::api::PostParams;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::bundle::{BundleError, certificates};
use super::signer::{CheckedRequest, SignedChain, Signer, SignerError, api_error};
use navarch_api::mesh::CertificateData;
use navarch_api::names::is_kubernetes_name;
use navarch_base::error_chain::chain;
use navarch_base::regular_file;
use navarch_kubernetes::is_conflict;
use navarch_net::backoff::Backoff;
use navarch_pki::pem;
use objects::{CREATE_TIMEOUT, Objects};

pub use server::ServerChain;

/// Timeout of a signer, as in istiod.
const SIGNER_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a request: the signer's, and the API server's answers.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(75);
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
    objects: Objects<CertificateSigningRequest>,
    config: RegistrationConfig,
    /// The signers' roots in mesh config.
    mesh: MeshRoots,
}

/// Returns the roots of mesh config, by signers.
pub type MeshRoots = Arc<dyn Fn() -> Vec<CertificateData> + Send + Sync>;

/// Errors of signing.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
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
    /// The API server has not answered the creation.
    #[error(
        "the API server did not create the CertificateSigningRequest within {CREATE_TIMEOUT:?}"
    )]
    Unanswered,
    /// Too many CertificateSigningRequests exist or wait.
    #[error("too many CertificateSigningRequests are under way; try again later")]
    Full,
    /// There is no randomness for a name.
    #[error("no randomness for the name of a CertificateSigningRequest")]
    NoName,
    /// The caller has given up, or the control plane stops.
    #[error("the request was given up")]
    GivenUp,
    /// The signer denied the request.
    #[error("the signer denied the request: {0}")]
    Denied(String),
    /// The signer has answered with a failure of its own.
    #[error("the signer failed: {0}")]
    Failed(String),
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
    /// Signs through this client, with at most `max_objects` CertificateSigningRequests at once.
    #[must_use]
    pub fn new(
        client: kube::Client,
        config: RegistrationConfig,
        mesh: MeshRoots,
        max_objects: usize,
    ) -> Self {
        let api = Api::all(client);
        Self {
            objects: Objects::new(api.clone(), max_objects),
            api,
            config,
            mesh,
        }
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
                Err(error) if is_conflict(&error) => {
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
            if let Some(error) = refusal(status.conditions.unwrap_or_default()) {
                return Err(error);
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

    /// The roots of a signer: those of mesh config, of the file, or else of its chain.
    fn roots_of(
        &self,
        signer: &str,
        chain: &[CertificateDer<'static>],
    ) -> Result<String, RegistrationError> {
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

        known.or_else(in_chain).ok_or(RegistrationError::NoRoot)
    }

    /// Has a request signed by the named or the default signer.
    async fn sign_for_workload(
        &self,
        request: &CheckedRequest,
    ) -> Result<SignedChain, RegistrationError> {
        let signer = self.signer(request.named_signer())?;
        let identity = request.identity();
        let chain = self
            .put(
                request.pem(),
                &USAGES,
                &signer,
                request.lifetime(),
                &identity.to_string(),
                Some(identity.namespace.clone()),
            )
            .await?;
        let chain = certificates(&String::from_utf8_lossy(&chain), "the signer's chain")?;
        let roots = self.roots_of(&signer, &chain)?;
        Ok(SignedChain {
            certificates: chain,
            roots: roots.into(),
            tainted: Arc::default(),
        })
    }
}

#[tonic::async_trait]
impl Signer for Registration {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    async fn sign(&self, request: &CheckedRequest) -> Result<SignedChain, SignerError> {
        Ok(self.sign_for_workload(request).await?)
    }

    /// In mesh config, or in a file.
    fn roots(&self) -> Option<watch::Receiver<Arc<str>>> {
        None
    }

    fn min_timeout(&self) -> Duration {
        REQUEST_TIMEOUT
    }
}

impl From<RegistrationError> for SignerError {
    fn from(error: RegistrationError) -> Self {
        match error {
            RegistrationError::NoDomain
            | RegistrationError::SignerName
            | RegistrationError::NoSigner => Self::Request(error.to_string()),
            RegistrationError::Kubernetes(cause) => api_error(&cause),
            RegistrationError::Unanswered => Self::unavailable(&error),
            RegistrationError::Full => Self::QueueFull,
            RegistrationError::Silent => Self::TimedOut(SIGNER_TIMEOUT),
            RegistrationError::Denied(text) => Self::denied(&text),
            RegistrationError::Failed(text) => Self::failed(&text),
            RegistrationError::Wrong(what) => Self::Mismatch(what),
            RegistrationError::Chain(error) => Self::Chain(error),
            RegistrationError::NoName
            | RegistrationError::GivenUp
            | RegistrationError::NoRoot
            | RegistrationError::Roots { .. }
            | RegistrationError::NoMeshRoot(_)
            | RegistrationError::Make(_) => Self::failed(&chain(&error)),
        }
    }
}

/// Why there will be no certificate, by the conditions of a request; `None` while there may be one.
fn refusal(conditions: Vec<CertificateSigningRequestCondition>) -> Option<RegistrationError> {
    conditions.into_iter().find_map(|condition| {
        let kind = condition.type_;
        let make = match kind.as_str() {
            "Denied" => RegistrationError::Denied,
            "Failed" => RegistrationError::Failed,
            _ => return None,
        };
        Some(make(condition.message.or(condition.reason).unwrap_or(kind)))
    })
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
