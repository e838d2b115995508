//! `istio.v1.auth.IstioCertificateService`: issues certificates to authenticated callers.

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

use super::impersonate;
use super::metrics::{Metrics, RequestOutcome};
use super::registration::{Registration, RegistrationError};
use super::sign::{Lifetimes, SignError, Subject};
use super::{Authority, CurrentAuthority, Receipts};
use crate::Clock;
use crate::authenticate::SnapshotProvider;
use navarch_api::identity::{Caller, Identity};
use navarch_api::object::NamespacedName;
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_net::rate::RateLimit;
use navarch_pki::{SigningRequest, pem};

/// Request metadata: the impersonated identity, if it differs from the caller's.
const IMPERSONATED: &str = "ImpersonatedIdentity";
/// Request metadata: the signer among several external ones.
const SIGNER: &str = "CertSigner";

/// Maximum length of a text in request metadata: that of a SPIFFE ID.
const MAX_TEXT: usize = 2048;
/// Maximum concurrent and waiting requests that Kubernetes signs: each is polled until it is
/// signed.
const REGISTRATIONS: (usize, usize) = (256, 16_384);

/// Lifetimes of issued certificates, and who may have how many.
#[derive(Clone, Debug)]
pub struct CertificateServiceConfig {
    /// `DEFAULT_WORKLOAD_CERT_TTL` and `MAX_WORKLOAD_CERT_TTL`. Requests of a longer lifetime are
    /// rejected.
    pub lifetimes: Lifetimes,
    /// `CA_TRUSTED_NODE_ACCOUNTS`: node proxies that may request certificates of workloads on their
    /// node.
    pub trusted_nodes: BTreeSet<NamespacedName>,
    /// Certificates that one caller may have per second, at one address. Default 20.
    pub per_second: u32,
    /// The same at once. Default 200.
    pub burst: u32,
}

/// The service. Clones share their state.
#[derive(Clone)]
pub struct CertificateService {
    /// Signs.
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
    /// Kubernetes, if it signs instead.
    registration: Option<Arc<Registration>>,
    /// Limits requests to Kubernetes, fairly among callers.
    turns: Arc<FairSemaphore<(Identity, IpAddr)>>,
    metrics: Metrics,
}

impl Default for CertificateServiceConfig {
    fn default() -> Self {
        Self {
            lifetimes: Lifetimes::default(),
            trusted_nodes: BTreeSet::new(),
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
        let turns = FairSemaphore::new(REGISTRATIONS.0, REGISTRATIONS.1);
        Self {
            authority,
            snapshots,
            config,
            rate,
            clock,
            receipts,
            registration: None,
            turns,
            metrics,
        }
    }

    /// The same, but Kubernetes signs for workloads.
    #[must_use]
    pub fn signed_by(self, registration: Registration) -> Self {
        Self {
            registration: Some(Arc::new(registration)),
            ..self
        }
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

        if let Some(registration) = &self.registration {
            let signer = text_of(request, SIGNER)?.unwrap_or_default();
            let turn = self.turns.take(client).await;
            let _turn = turn.map_err(|full| Status::resource_exhausted(full.to_string()))?;
            let chain = registration
                .sign(&request.csr, &subject, signer, lifetime)
                .await;
            return chain
                .map(|cert_chain| IstioCertificateResponse { cert_chain })
                .map_err(|error| unregistered(&error));
        }

        let authority = self.authority.get();
        let is_own = subject == *own;
        let chain = authority
            .sign(&csr, &Subject::Workload(subject), lifetime, (self.clock)())
            .map_err(|error| status_of(&error))?;
        if let Some(peer) = peer.filter(|_| is_own) {
            self.receipts.note(own, peer.ip(), &authority.roots().0);
        }

        Ok(IstioCertificateResponse {
            cert_chain: in_pem(&chain, &authority),
        })
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

/// The gRPC status if Kubernetes does not sign.
fn unregistered(error: &RegistrationError) -> Status {
    match error {
        RegistrationError::Beyond(_)
        | RegistrationError::NoDomain
        | RegistrationError::SignerName
        | RegistrationError::NoSigner => Status::invalid_argument(error.to_string()),

        RegistrationError::Kubernetes(_) | RegistrationError::Silent => {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "Kubernetes did not sign the certificate request"
            );
            Status::unavailable(error.to_string())
        }

        RegistrationError::Denied(_)
        | RegistrationError::Wrong(_)
        | RegistrationError::Chain(_)
        | RegistrationError::Roots { .. }
        | RegistrationError::NoRoot
        | RegistrationError::NoMeshRoot(_)
        | RegistrationError::Make(_) => {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "Kubernetes did not sign the certificate request"
            );
            Status::internal(error.to_string())
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
fn in_pem(chain: &[CertificateDer<'_>], authority: &Authority) -> Vec<String> {
    let mut elements: Vec<String> = chain
        .iter()
        .map(|certificate| pem::encode(certificate))
        .collect();
    elements.push(authority.roots().pem().to_owned());
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
