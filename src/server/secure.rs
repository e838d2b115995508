//! The TLS port (15012): xDS and certificates for authenticated callers.
//! The plaintext port uses the same authentication, if callers must send tokens there.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use navarch_proto::istio::v1::auth::istio_certificate_service_server::IstioCertificateServiceServer;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service;

use super::security::StreamRules;
use navarch_api::identity::{Caller, CredentialExpiry};
use navarch_net::handshake::handshake;
use navarch_net::log_limit::LogLimit;
use navarch_net::port::Port;
use navarch_net::stream::PortStream;
use navarch_reflection::reflection;
use navarch_security::authenticate::{Authenticator, Credentials, certificate_expiry};
use navarch_security::ca::service::CertificateService;
use navarch_security::ca::{CallMetrics, CountedCalls, Metrics};
use navarch_security::serving::ServingTls;
use navarch_xds::{Ads, ConnectionInfo, Server};

type Certificates = IstioCertificateServiceServer<CertificateService>;

/// Capacity of the channel of connections after their handshake; handshakes block when it is full.
const READY_CONNECTIONS_CAPACITY: usize = 64;
/// Maximum size of a certificate request, with some reserve.
const MAX_REQUEST: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct SecurePort {
    /// The open port.
    pub(super) listener: TcpListener,
    pub(super) port: Arc<Port>,
    pub(super) tls: ServingTls,
    pub(super) authenticator: Arc<Authenticator>,
    /// The policy for streams (`XDS_AUTH`, `PILOT_ENABLE_XDS_IDENTITY_CHECK`).
    pub(super) policy: AuthPolicy,
    pub(super) ads: Ads,
    pub(super) certificates: CertificateService,
    pub(super) call_metrics: CallMetrics,
    /// Whether workloads may request certificates.
    pub(super) signs: bool,
    /// Cancelled at shutdown.
    pub(super) stop: CancellationToken,
}

/// The identity of a connection's client.
#[derive(Clone, Debug)]
struct ClientIdentity {
    peer: Option<SocketAddr>,
    /// Its verified certificates, leaf first; empty if it has none.
    certificates: Arc<[CertificateDer<'static>]>,
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

/// Authenticates callers, and applies a policy to the result.
#[derive(Clone, Debug)]
pub(super) struct Authentication {
    pub(super) authenticator: Arc<Authenticator>,
    /// What happens to callers with and without an identity.
    pub(super) policy: AuthPolicy,
    /// The counter of rejected callers; `None` if the service counts them itself.
    pub(super) metrics: Option<Metrics>,
    /// Rate limit of logged rejections.
    pub(super) log: Arc<LogLimit>,
}

/// Authenticates callers before the inner service sees their requests.
#[derive(Clone, Debug)]
struct AuthLayer<S> {
    inner: S,
    authentication: Authentication,
}

/// What happens to a caller with and without an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthPolicy {
    /// Callers without an identity are rejected; the service gets the identity.
    Known,
    /// All callers are admitted, and none is asked who it is, so that secrets are not sent: in
    /// istiod, `XDS_AUTH=false` removes the authenticators.
    Anyone,
    /// Callers without an identity are rejected, and the service gets no identity, so that secrets
    /// are not sent.
    Nameless,
}

impl AuthPolicy {
    /// The policy for xDS if callers authenticate.
    pub(super) fn of_streams(rules: StreamRules) -> Self {
        match (rules.auth, rules.checks_identity) {
            (true, true) => Self::Known,
            (true, false) => Self::Nameless,
            (false, true | false) => Self::Anyone,
        }
    }
}

impl SecurePort {
    /// Serves until shutdown.
    pub(super) async fn serve(self) {
        let (ready, incoming) = mpsc::channel(READY_CONNECTIONS_CAPACITY);
        let metrics = Some(self.certificates.metrics());
        let certificates = IstioCertificateServiceServer::new(self.certificates)
            .max_decoding_message_size(MAX_REQUEST);
        let log = Arc::new(LogLimit::default());
        let authenticator = self.authenticator.clone();
        let policy = self.policy;
        let of_streams = Authentication {
            authenticator,
            policy,
            metrics: None,
            log: log.clone(),
        };

        let authenticator = self.authenticator;
        let policy = AuthPolicy::Known;
        let authentication = Authentication {
            authenticator,
            policy,
            metrics,
            log,
        };

        let certificates = AuthLayer {
            inner: certificates,
            authentication,
        };
        let certificates = CountedCalls {
            inner: certificates,
            metrics: self.call_metrics,
        };

        let signing = self.signs.then_some(Certificates::NAME);
        let (now, before) = reflection([Ads::NAME].into_iter().chain(signing));
        let server = of_streams.add_streams(&self.ads, self.ads.server("secure-grpc"));
        let server = server.add_service(now).add_service(before);
        let server = if self.signs {
            server.add_service(certificates)
        } else {
            server
        };

        let accepting = accept(self.listener, self.port, self.tls, ready);
        let serving = server.serve(ReceiverStream::new(incoming), self.stop.cancelled());
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = accepting => {}
            () = self.stop.cancelled() => serving.await,
        }

        self.ads.ended().await;
    }
}

/// Accepts connections and performs their handshakes concurrently, within the limits of the port.
/// Does not end.
async fn accept(
    listener: TcpListener,
    port: Arc<Port>,
    tls: ServingTls,
    ready: mpsc::Sender<(TlsStream<PortStream>, ClientIdentity)>,
) {
    let shake = |stream, peer| {
        let tls = tls.get();
        let ready = ready.clone();
        async move {
            if let Some(stream) = handshake(tls, stream, peer).await {
                let shown = ClientIdentity::of(&stream, peer);
                drop(ready.send((stream, shown)).await);
            }
        }
    };
    port.for_each(&listener, &mut JoinSet::new(), shake).await;
}

impl ClientIdentity {
    /// The identity from a TLS handshake with a client of this address.
    fn of(stream: &TlsStream<PortStream>, peer: SocketAddr) -> Self {
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default();
        let certificates = certificates
            .iter()
            .map(|one| one.clone().into_owned())
            .collect();
        Self {
            peer: Some(peer),
            certificates,
        }
    }
}

impl Authentication {
    /// Adds the xDS service to a server, for admitted callers.
    pub(super) fn add_streams(self, ads: &Ads, server: Server) -> Server {
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
                    tracing::warn!(peer, path, %unknown, suppressed, "caller rejected");
                }

                return Err(Status::unauthenticated(unknown.to_string()));
            }
        }

        Ok(())
    }
}

impl<S: NamedService> NamedService for AuthLayer<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for AuthLayer<S>
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
