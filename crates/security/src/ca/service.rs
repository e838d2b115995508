//! `istio.v1.auth.IstioCertificateService`: issues certificates to authenticated callers.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use navarch_proto::istio::v1::auth::istio_certificate_service_server::IstioCertificateService;
use navarch_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use prost_types::value::Kind;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use super::external::{ExternalAuthority, ExternalSigners};
use super::impersonate;
use super::metrics::{Metrics, RequestOutcome};
use super::sign::{Lifetimes, SignError, Subject};
use super::signer::{CheckedRequest, SignerError};
use super::{CurrentAuthority, Receipts};
use crate::Clock;
use crate::authenticate::SnapshotProvider;
use crate::trust_bundle;
use navarch_api::identity::{Caller, Identity};
use navarch_api::object::NamespacedName;
use navarch_net::rate::RateLimit;
use navarch_pki::{KeyType, SigningRequest, pem};

/// Request metadata: the impersonated identity, if it differs from the caller's.
const IMPERSONATED: &str = "ImpersonatedIdentity";
/// Request metadata: the signer among several external ones.
const SIGNER: &str = "CertSigner";

/// Maximum length of a text in request metadata: that of a SPIFFE ID.
const MAX_TEXT: usize = 2048;

/// Lifetimes of issued certificates, and who may have how many.
#[derive(Clone, Debug)]
pub struct CertificateServiceConfig {
    /// `DEFAULT_WORKLOAD_CERT_TTL` and `MAX_WORKLOAD_CERT_TTL`. Requests of a longer lifetime are
    /// rejected.
    pub lifetimes: Lifetimes,
    /// `CA_TRUSTED_NODE_ACCOUNTS`: node proxies that may request certificates of workloads on their
    /// node.
    pub trusted_nodes: BTreeSet<NamespacedName>,
    /// `NAVARCH_WORKLOAD_KEY_TYPES`: the keys that certificates are issued for; every strong one if
    /// empty.
    pub key_types: BTreeSet<KeyType>,
    /// Certificates that one caller may have per second, at one address. Default 20.
    pub per_second: u32,
    /// The same at once. Default 200.
    pub burst: u32,
}

/// The service. Clones share their state.
#[derive(Clone)]
pub struct CertificateService {
    authority: CurrentAuthority,
    /// Pods, for impersonation checks.
    snapshots: Arc<dyn SnapshotProvider>,
    config: Arc<CertificateServiceConfig>,
    /// Rate limit by caller. Replicas have one identity and addresses of their own.
    rate: Arc<RateLimit<(Identity, IpAddr)>>,
    /// The wall clock.
    clock: Clock,
    /// Which callers received which roots.
    receipts: Receipts,
    /// Who signs instead.
    signers: ExternalSigners,
    metrics: Metrics,
}

impl Default for CertificateServiceConfig {
    fn default() -> Self {
        Self {
            lifetimes: Lifetimes::default(),
            trusted_nodes: BTreeSet::new(),
            key_types: BTreeSet::new(),
            per_second: 20,
            burst: 200,
        }
    }
}

impl fmt::Debug for CertificateService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateService")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl CertificateService {
    /// A service that signs with the current authority.
    #[must_use]
    pub fn new(
        authority: CurrentAuthority,
        snapshots: Arc<dyn SnapshotProvider>,
        config: CertificateServiceConfig,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        let rate = Arc::new(RateLimit::new(config.per_second, config.burst));
        let config = Arc::new(config);
        let receipts = Receipts::default();
        Self {
            authority,
            snapshots,
            config,
            rate,
            clock,
            receipts,
            signers: ExternalSigners::default(),
            metrics,
        }
    }

    /// The same, but these sign for the workloads of their namespaces.
    #[must_use]
    pub fn signed_by(self, signers: ExternalSigners) -> Self {
        Self { signers, ..self }
    }

    /// For events outside the service: expiry of the authority, and callers that were not
    /// authenticated.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Which callers received which roots.
    #[must_use]
    pub fn receipts(&self) -> Receipts {
        self.receipts.clone()
    }

    /// Answers a request of a caller.
    async fn create(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        request: &IstioCertificateRequest,
    ) -> Result<IstioCertificateResponse, Status> {
        let own = caller
            .identities
            .first()
            .ok_or_else(|| Status::unauthenticated("the caller has no identity"))?;
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| {
            peer.ip().to_canonical()
        });
        let client = (own.clone(), address);

        if !self.rate.admit(&client, Instant::now()) {
            return Err(Status::resource_exhausted(
                "too many certificate requests; try again later",
            ));
        }

        let subject = self.subject(caller, own, request)?;
        let lifetime = self
            .config
            .lifetimes
            .grant(request.validity_duration)
            .map_err(|error| status_of(&error))?;
        let csr = SigningRequest::parse(&request.csr)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;

        self.check_key(&csr)?;
        let receiver = Some(own)
            .filter(|own| subject == **own)
            .zip(peer.map(|peer| peer.ip()));

        if let Some(signer) = self.signers.of(&subject.namespace) {
            let named = text_of(request, SIGNER)?.unwrap_or_default();
            let checked = CheckedRequest::new(&request.csr, subject, lifetime, named)
                .map_err(|error| unsigned(&error))?;
            return self.register(signer, &checked, receiver).await;
        }

        let authority = self.authority.get();
        let chain = authority
            .sign(&csr, &Subject::Workload(subject), lifetime, (self.clock)())
            .map_err(|error| status_of(&error))?;
        let roots = self.handed_roots(authority.roots().pem());
        if let Some((own, address)) = receiver {
            self.receipts.note(own, address, &roots);
        }

        Ok(IstioCertificateResponse {
            cert_chain: in_pem(&chain, &roots),
        })
    }

    /// Has a request signed by an external signer. The receiver is the caller, if the certificate
    /// is its own.
    async fn register(
        &self,
        signer: &ExternalAuthority,
        request: &CheckedRequest,
        receiver: Option<(&Identity, IpAddr)>,
    ) -> Result<IstioCertificateResponse, Status> {
        let issued = signer.sign(request).await;
        let issued = issued.map_err(|error| unsigned(&error))?;
        let roots = self.handed_roots(&issued.roots);
        if let Some((own, address)) = receiver {
            self.receipts.note(own, address, &roots);
        }

        Ok(IstioCertificateResponse {
            cert_chain: in_pem(&issued.chain, &roots),
        })
    }

    /// The roots that a caller gets with its certificate: those of its signer, of all others and of
    /// Navarch's own CA, as by PCDS, because a proxy without PCDS has no others. Also where the own
    /// CA signs for no namespace: its certificates are in use until a change of the signer is over.
    fn handed_roots(&self, signers: &str) -> Arc<str> {
        let external = self.signers.roots().borrow().clone();
        let own = self.authority.get().roots().0.clone();
        if external.is_empty() && (own.is_empty() || *own == *signers) {
            return signers.into();
        }

        let mut seen = BTreeSet::new();
        let all = [&external, &own, signers]
            .into_iter()
            .flat_map(|pem| trust_bundle::split(pem, "the roots").unwrap_or_default());
        all.filter(|root| seen.insert(root.clone()))
            .map(|root| root.as_ref().to_owned())
            .collect::<String>()
            .into()
    }

    /// Checks the type of a request's key.
    fn check_key(&self, csr: &SigningRequest) -> Result<(), Status> {
        let allowed = &self.config.key_types;
        let is_allowed = csr
            .key_type()
            .is_some_and(|key_type| allowed.contains(&key_type));
        if allowed.is_empty() || is_allowed {
            return Ok(());
        }

        let names: Vec<String> = allowed.iter().map(KeyType::to_string).collect();
        Err(Status::invalid_argument(format!(
            "the type of the key is not allowed (NAVARCH_WORKLOAD_KEY_TYPES); use {}",
            names.join(" or ")
        )))
    }

    /// The identity of the certificate: the caller's, unless it requests another one and may
    /// impersonate it.
    fn subject(
        &self,
        caller: &Caller,
        own: &Identity,
        request: &IstioCertificateRequest,
    ) -> Result<Identity, Status> {
        let Some(wanted) = text_of(request, IMPERSONATED)? else {
            return Ok(own.clone());
        };

        // The reason is only logged: it would reveal to callers what runs where.
        let deny = |reason: String| {
            tracing::warn!(caller = %own, wanted, reason, "rejected a certificate request for another identity");
            Status::unauthenticated(
                "the caller is not allowed to request a certificate for this identity",
            )
        };

        let wanted = Identity::parse(wanted).map_err(|error| deny(error.to_string()))?;
        let snapshot = self.snapshots.snapshot();
        if wanted.trust_domain != snapshot.trust_domain {
            return Err(deny(format!(
                "{} is not the trust domain of this mesh",
                wanted.trust_domain
            )));
        }

        impersonate::check(
            &self.config.trusted_nodes,
            own,
            caller.pod.as_ref(),
            &wanted,
            &snapshot,
        )
        .map_err(|denied| deny(denied.to_string()))?;
        Ok(wanted)
    }
}

/// A text of a request's metadata, if it is there and not empty.
fn text_of<'a>(
    request: &'a IstioCertificateRequest,
    name: &str,
) -> Result<Option<&'a str>, Status> {
    let value = request
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.fields.get(name));
    let Some(Kind::StringValue(text)) = value.and_then(|value| value.kind.as_ref()) else {
        return Ok(None);
    };
    if text.len() > MAX_TEXT {
        return Err(Status::invalid_argument(format!(
            "{name} in the request exceeds {MAX_TEXT} bytes"
        )));
    }
    Ok((!text.is_empty()).then_some(text))
}

/// The gRPC status if an external signer does not sign. Clients try again after UNAVAILABLE.
fn unsigned(error: &SignerError) -> Status {
    match error {
        SignerError::Beyond(_) | SignerError::Request(_) => {
            Status::invalid_argument(error.to_string())
        }
        SignerError::Rate(_) | SignerError::QueueFull => {
            Status::resource_exhausted(error.to_string())
        }
        SignerError::Denied(_) => Status::permission_denied(error.to_string()),

        // The reason is for operators.
        SignerError::Unreachable(_) => Status::unavailable("the signer is unreachable"),
        SignerError::Unavailable(_) => {
            Status::unavailable("the signer is unavailable for this namespace")
        }
        SignerError::Busy(_)
        | SignerError::TimedOut(_)
        | SignerError::NoRoots
        | SignerError::Undistributed(_) => Status::unavailable(error.to_string()),

        SignerError::Failed(_) | SignerError::Mismatch(_) | SignerError::Chain(_) => {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "the signer did not sign the certificate request"
            );
            Status::internal("the signer did not sign")
        }
    }
}

/// The metric label of a rejection.
fn outcome(status: &Status) -> RequestOutcome {
    let code = status.code();
    if matches!(code, Code::Unauthenticated | Code::ResourceExhausted) {
        RequestOutcome::Stranger
    } else if code == Code::InvalidArgument {
        RequestOutcome::Unreadable
    } else if code == Code::Unavailable {
        RequestOutcome::Unsigned("CA_ERROR")
    } else {
        RequestOutcome::Unsigned("CERT_GEN_ERROR")
    }
}

/// The gRPC status of a signing error.
fn status_of(error: &SignError) -> Status {
    match error {
        SignError::TooLong { .. } | SignError::Name => Status::invalid_argument(error.to_string()),
        SignError::Expired | SignError::Sign(_) => {
            tracing::error!(%error, "the CA failed to sign a certificate");
            Status::internal("the CA is temporarily unable to sign")
        }
    }
}

/// The chain in the form of the protocol: one certificate per element, leaf first, and all roots in
/// the last element.
fn in_pem(chain: &[CertificateDer<'_>], roots: &str) -> Vec<String> {
    let mut elements: Vec<String> = chain
        .iter()
        .map(|certificate| pem::encode(certificate))
        .collect();
    elements.push(roots.to_owned());
    elements
}

#[tonic::async_trait]
impl IstioCertificateService for CertificateService {
    async fn create_certificate(
        &self,
        request: Request<IstioCertificateRequest>,
    ) -> Result<Response<IstioCertificateResponse>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller =
            caller.ok_or_else(|| Status::unauthenticated("the caller is not authenticated"))?;
        self.metrics.count_request();
        let answer = self
            .create(&caller, request.remote_addr(), request.get_ref())
            .await;
        self.metrics.done(
            answer
                .as_ref()
                .err()
                .map_or(RequestOutcome::Issued, outcome),
        );

        match &answer {
            Ok(_) => tracing::debug!(identities = ?caller.identities, "certificate issued"),
            Err(status) => {
                tracing::warn!(identities = ?caller.identities, %status, "certificate request rejected")
            }
        }

        answer.map(Response::new)
    }
}
