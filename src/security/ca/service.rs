//! `istio.v1.auth.IstioCertificateService`: certificates for those who have shown who they are.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use navarch_proto::istio::v1::auth::istio_certificate_service_server::IstioCertificateService;
use navarch_proto::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use prost_types::value::Kind;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::impersonate;
use super::rate::RateLimit;
use super::sign::{Lifetimes, SignError, Subject};
use super::{Authority, CurrentAuthority, Receipts, SigningRequest};
use crate::api::identity::{Caller, Identity};
use crate::api::object::NamespacedName;
use crate::security::Clock;
use crate::security::authenticate::Surroundings;
use crate::security::pem;

/// Metadata of a request: whose certificate is wanted, where it is another's than the caller's.
const IMPERSONATED: &str = "ImpersonatedIdentity";

/// What the service is told at start.
#[derive(Clone, Debug)]
pub struct CertificateServiceConfig {
    /// How long certificates last.
    pub lifetimes: Lifetimes,
    /// `CA_TRUSTED_NODE_ACCOUNTS`: node proxies that may ask for certificates of what runs on their node.
    pub trusted_nodes: BTreeSet<NamespacedName>,
    /// Certificates that one caller may have per second. Default 20.
    pub per_second: u32,
    /// Certificates that one caller may have at once. Default 200.
    pub burst: u32,
}

/// The service. Clones are one.
#[derive(Clone)]
pub struct CertificateService {
    /// Signs.
    authority: CurrentAuthority,
    /// Pods, for who may ask for another.
    surroundings: Arc<dyn Surroundings>,
    /// What it was told at start.
    config: Arc<CertificateServiceConfig>,
    /// How many one caller may have.
    rate: Arc<RateLimit>,
    /// When certificates begin.
    clock: Clock,
    /// Who was handed which roots.
    receipts: Receipts,
}

impl Default for CertificateServiceConfig {
    fn default() -> Self {
        Self { lifetimes: Lifetimes::default(), trusted_nodes: BTreeSet::new(), per_second: 20, burst: 200 }
    }
}

impl fmt::Debug for CertificateService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateService").field("config", &self.config).finish_non_exhaustive()
    }
}

impl CertificateService {
    /// A service that signs with the authority in force.
    #[must_use]
    pub fn new(
        authority: CurrentAuthority,
        surroundings: Arc<dyn Surroundings>,
        config: CertificateServiceConfig,
        clock: Clock,
    ) -> Self {
        let rate = Arc::new(RateLimit::new(config.per_second, config.burst));
        Self { authority, surroundings, config: Arc::new(config), rate, clock, receipts: Receipts::default() }
    }

    /// Who was handed which roots.
    #[must_use]
    pub fn receipts(&self) -> Receipts {
        self.receipts.clone()
    }

    /// Answers a request of a caller.
    fn create(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        request: &IstioCertificateRequest,
    ) -> Result<IstioCertificateResponse, Status> {
        let own = caller.identities.first().ok_or_else(|| Status::unauthenticated("the caller has no identity"))?;
        if !self.rate.admit(own, Instant::now()) {
            return Err(Status::resource_exhausted("too many certificates were asked for; wait a little"));
        }
        let subject = self.subject(caller, own, request)?;
        let lifetime = self.config.lifetimes.grant(request.validity_duration).map_err(|error| refusal(&error))?;
        let csr = SigningRequest::parse(&request.csr).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let authority = self.authority.get();
        let is_own = subject == *own;
        let chain = authority
            .sign(&csr, &Subject::Workload(subject), lifetime, (self.clock)())
            .map_err(|error| refusal(&error))?;
        if let Some(peer) = peer.filter(|_| is_own) {
            self.receipts.note(own, peer.ip(), &authority.roots().0);
        }
        Ok(IstioCertificateResponse { cert_chain: in_pem(&chain, &authority) })
    }

    /// Whose certificate the caller gets: its own, unless it may ask for another's and does.
    fn subject(&self, caller: &Caller, own: &Identity, request: &IstioCertificateRequest) -> Result<Identity, Status> {
        let wanted = request.metadata.as_ref().and_then(|metadata| metadata.fields.get(IMPERSONATED));
        let wanted = match wanted.and_then(|value| value.kind.as_ref()) {
            Some(Kind::StringValue(wanted)) if !wanted.is_empty() => wanted,
            _ => return Ok(own.clone()),
        };
        // The reason is for the log alone: it would tell a stranger what runs where.
        let refuse = |reason: String| {
            tracing::warn!(caller = %own, wanted, reason, "no certificate of another");
            Status::unauthenticated("the caller may not ask for this identity's certificate")
        };
        let wanted = Identity::parse(wanted).map_err(|error| refuse(error.to_string()))?;
        let glance = self.surroundings.glance();
        if wanted.trust_domain != glance.trust_domain {
            return Err(refuse(format!("{} is not the trust domain of this mesh", wanted.trust_domain)));
        }
        impersonate::check(&self.config.trusted_nodes, own, caller.pod.as_ref(), &wanted, &glance.objects)
            .map_err(|denied| refuse(denied.to_string()))?;
        Ok(wanted)
    }
}

/// How a failure to sign is told to the client.
fn refusal(error: &SignError) -> Status {
    match error {
        SignError::TooLong { .. } | SignError::Name => Status::invalid_argument(error.to_string()),
        SignError::Expired | SignError::Sign(_) => {
            tracing::error!(%error, "the CA cannot sign");
            Status::internal("the CA cannot sign at the moment")
        }
    }
}

/// The chain as the protocol has it: one certificate an element, leaf first, and all roots as the last.
fn in_pem(chain: &[CertificateDer<'_>], authority: &Authority) -> Vec<String> {
    let mut elements: Vec<String> = chain.iter().map(|certificate| pem::encode(certificate)).collect();
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
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller has not shown who it is"))?;
        let answer = self.create(&caller, request.remote_addr(), request.get_ref());
        match &answer {
            Ok(_) => tracing::debug!(identities = ?caller.identities, "certificate issued"),
            Err(status) => tracing::warn!(identities = ?caller.identities, %status, "no certificate issued"),
        }
        answer.map(Response::new)
    }
}
