//! Authentication of callers: of xDS streams, and of other services on the same connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use navarch_api::identity::{Caller, CredentialExpiry};
use navarch_net::log_limit::LogLimit;
use navarch_security::authenticate::{Authenticator, Credentials, certificate_expiry};
use navarch_security::ca::Metrics;
use rustls::pki_types::CertificateDer;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service;

use crate::server::Ads;
use crate::transport::{ConnectionInfo, Server};

/// The log target of rejected callers, by which log levels are set: that of the ports.
const LOG_TARGET: &str = "navarch::server::secure";

/// The identity of a connection's client, which a TLS port inserts into its requests' extensions.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    peer: Option<SocketAddr>,
    /// Its verified certificates, leaf first; empty if it has none.
    certificates: Arc<[CertificateDer<'static>]>,
}

impl ClientIdentity {
    /// The identity of a client with this address and these verified certificates, leaf first.
    #[must_use]
    pub fn new(peer: SocketAddr, certificates: &[CertificateDer<'_>]) -> Self {
        Self {
            peer: Some(peer),
            certificates: certificates
                .iter()
                .map(|certificate| certificate.clone().into_owned())
                .collect(),
        }
    }
}

/// A client is asked to reconnect with a new certificate before its current one expires.
impl ConnectionInfo for ClientIdentity {
    fn expires_in(&self) -> Option<Duration> {
        let expires = certificate_expiry(self.certificates.first()?)?;
        // A certificate that expires during the handshake expires at once.
        Some(
            Timestamp::now()
                .duration_until(expires)
                .try_into()
                .unwrap_or_default(),
        )
    }
}

/// What happens to a caller with and without an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthPolicy {
    /// Callers without an identity are rejected; the service gets the identity.
    Known,
    /// All callers are admitted without authentication, so that secrets are not sent: in istiod,
    /// `XDS_AUTH=false` removes the authenticators.
    Anyone,
    /// Callers without an identity are rejected, and the service gets no identity, so that secrets
    /// are not sent.
    Nameless,
}

/// Authenticates callers, and applies a policy to the result.
#[derive(Clone, Debug)]
pub struct Authentication {
    /// Finds out who a caller is.
    pub authenticator: Arc<Authenticator>,
    /// What happens to callers with and without an identity.
    pub policy: AuthPolicy,
    /// The counter of rejected callers; `None` if the service counts them itself.
    pub metrics: Option<Metrics>,
    /// Rate limit of logged rejections.
    pub log: Arc<LogLimit>,
}

impl Authentication {
    /// Adds the xDS service to a server, for admitted callers.
    #[must_use]
    pub fn add_streams(self, ads: &Ads, server: Server) -> Server {
        let authentication = Arc::new(self);
        let ads = ads.clone();
        server.add_streams(Ads::NAME, move |mut request, call| {
            let authentication = authentication.clone();
            let ads = ads.clone();
            async move {
                authentication.check(&mut request).await?;
                ads.start(request, &call)
            }
        })
    }

    /// Another service, for admitted callers.
    #[must_use]
    pub fn before<S>(self, inner: S) -> AuthenticatedService<S> {
        AuthenticatedService {
            inner,
            authentication: self,
        }
    }

    /// Authenticates the caller of a request, and adds the result to its extensions. Rejects
    /// callers that the policy does not admit.
    async fn check(&self, request: &mut Request<Body>) -> Result<(), Status> {
        let shown = request.extensions().get::<ClientIdentity>().cloned();

        // In plain text only the address is known.
        let peer = request
            .extensions()
            .get::<TcpConnectInfo>()
            .and_then(TcpConnectInfo::remote_addr);
        let shown = shown.unwrap_or_else(|| ClientIdentity {
            peer,
            certificates: Arc::from([]),
        });
        let connection = TcpConnectInfo {
            local_addr: None,
            remote_addr: shown.peer,
        };

        if self.policy == AuthPolicy::Anyone {
            request.extensions_mut().insert(connection);
            return Ok(());
        }

        let credentials = Credentials {
            peer: shown.peer,
            certificates: &shown.certificates,
            headers: request.headers(),
        };
        let admitted = self.authenticator.admit(credentials).await;
        let extensions = request.extensions_mut();
        extensions.insert(connection);

        match admitted {
            Ok(caller) if self.policy == AuthPolicy::Nameless => {
                if let Some(expires) = caller.expires {
                    extensions.insert(CredentialExpiry(expires));
                }
            }
            Ok(caller) => _ = extensions.insert::<Caller>(caller),
            Err(unknown) => {
                if let Some(metrics) = &self.metrics {
                    metrics.count_request();
                    metrics.count_unauthenticated();
                }
                if let Some(suppressed) = self.log.admit() {
                    let peer = shown.peer.map(|peer| peer.to_string());
                    let path = request.uri().path();
                    tracing::warn!(
                        target: LOG_TARGET,
                        peer,
                        path,
                        %unknown,
                        suppressed,
                        "caller rejected"
                    );
                }

                return Err(Status::unauthenticated(unknown.to_string()));
            }
        }

        Ok(())
    }
}

/// Authenticates callers before the inner service sees their requests.
#[derive(Clone, Debug)]
pub struct AuthenticatedService<S> {
    inner: S,
    authentication: Authentication,
}

impl<S: NamedService> NamedService for AuthenticatedService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for AuthenticatedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self {
            mut inner,
            authentication,
        } = self.clone();
        Box::pin(async move {
            if let Err(status) = authentication.check(&mut request).await {
                return Ok(status.into_http());
            }
            inner.call(request).await
        })
    }
}
