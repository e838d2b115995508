//! The TLS port (15012): xDS and certificates for callers who show who they are.
//! The door is that of the plaintext port, too, where callers must show tokens there.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
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
use crate::api::identity::{Caller, CredentialExpiry};
use crate::net::handshake::handshake;
use crate::net::port::Port;
use crate::net::stream::PortStream;
use crate::security::authenticate::{Credentials, Gatekeeper};
use crate::security::ca::Metrics;
use crate::security::ca::service::CertificateService;
use crate::security::serving::ServingTls;
use crate::xds::Ads;

/// Connections that have shaken hands and wait to be served; then handshakes wait.
const READY: usize = 64;
/// Bytes of a certificate request, and some.
const MAX_REQUEST: usize = 64 << 10;

/// All that the port serves with.
#[derive(Debug)]
pub(super) struct SecurePort {
    /// The open port.
    pub(super) listener: TcpListener,
    /// Its connections.
    pub(super) port: Arc<Port>,
    /// Its TLS.
    pub(super) tls: ServingTls,
    /// Who says who callers are.
    pub(super) gatekeeper: Arc<Gatekeeper>,
    /// What is made of who asks for a stream (`XDS_AUTH`, `PILOT_ENABLE_XDS_IDENTITY_CHECK`).
    pub(super) policy: DoorPolicy,
    /// xDS.
    pub(super) ads: Ads,
    /// Certificates.
    pub(super) certificates: CertificateService,
    /// Told to end.
    pub(super) stop: CancellationToken,
}

/// What a connection's client has shown.
#[derive(Clone, Debug)]
struct Shown {
    /// Its address.
    peer: Option<SocketAddr>,
    /// Its certificates, leaf first, checked; none if it has shown none.
    certificates: Arc<[CertificateDer<'static>]>,
}

/// A service behind the question who calls.
#[derive(Clone, Debug)]
pub(super) struct Door<S> {
    /// The service.
    pub(super) inner: S,
    /// Who answers.
    pub(super) gatekeeper: Arc<Gatekeeper>,
    /// What is made of the answer.
    pub(super) policy: DoorPolicy,
    /// Where those who are refused are counted.
    pub(super) refused: Option<Metrics>,
}

/// What a door makes of who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DoorPolicy {
    /// Strangers are refused; the service knows who calls.
    Known,
    /// Strangers are let in, and known as such.
    Anyone,
    /// Strangers are refused, and the service is told of nobody who it is: nothing secret goes to anybody.
    Nameless,
}

impl DoorPolicy {
    /// Of xDS where callers show who they are.
    pub(super) fn of_streams(rules: StreamRules) -> Self {
        match (rules.auth, rules.checks_identity) {
            (true, true) => Self::Known,
            (true, false) => Self::Nameless,
            (false, true | false) => Self::Anyone,
        }
    }
}

impl SecurePort {
    /// Serves until told to end.
    pub(super) async fn serve(self) {
        let (ready, incoming) = mpsc::channel(READY);
        let refused = Some(self.certificates.metrics());
        let certificates = IstioCertificateServiceServer::new(self.certificates).max_decoding_message_size(MAX_REQUEST);
        let ads =
            Door { inner: self.ads.clone(), gatekeeper: self.gatekeeper.clone(), policy: self.policy, refused: None };
        let certificates =
            Door { inner: certificates, gatekeeper: self.gatekeeper, policy: DoorPolicy::Known, refused };
        let server = self.ads.server("secure-grpc").add_service(ads).add_service(certificates);
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

/// Accepts connections and shakes hands with all at once; the port limits how many. Ends never.
async fn accept(
    listener: TcpListener,
    port: Arc<Port>,
    tls: ServingTls,
    ready: mpsc::Sender<(TlsStream<PortStream>, Shown)>,
) {
    let shake = |stream, peer| {
        let (tls, ready) = (tls.get(), ready.clone());
        async move {
            if let Some(stream) = handshake(tls, stream, peer).await {
                let shown = Shown::of(&stream, peer);
                drop(ready.send((stream, shown)).await);
            }
        }
    };
    port.for_each(&listener, &mut JoinSet::new(), shake).await;
}

impl Shown {
    /// What the client has shown that a connection to this address has shaken hands with.
    fn of(stream: &TlsStream<PortStream>, peer: SocketAddr) -> Self {
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default();
        let certificates = certificates.iter().map(|one| one.clone().into_owned()).collect();
        Self { peer: Some(peer), certificates }
    }
}

impl<S: NamedService> NamedService for Door<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Door<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (mut inner, gatekeeper, policy) = (self.inner.clone(), self.gatekeeper.clone(), self.policy);
        let refused = self.refused.clone();
        Box::pin(async move {
            let shown = request.extensions().get::<Shown>().cloned();
            // In plain text there is nothing but an address.
            let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
            let shown = shown.unwrap_or_else(|| Shown { peer, certificates: Arc::from([]) });
            let credentials =
                Credentials { peer: shown.peer, certificates: &shown.certificates, headers: request.headers() };
            let admitted = gatekeeper.admit(credentials).await;
            let extensions = request.extensions_mut();
            extensions.insert(TcpConnectInfo { local_addr: None, remote_addr: shown.peer });
            match admitted {
                Ok(caller) if policy == DoorPolicy::Nameless => {
                    if let Some(expires) = caller.expires {
                        extensions.insert(CredentialExpiry(expires));
                    }
                }
                Ok(caller) => _ = extensions.insert::<Caller>(caller),
                Err(_) if policy == DoorPolicy::Anyone => {}
                Err(unknown) => {
                    if let Some(metrics) = refused {
                        metrics.asked();
                        metrics.stranger();
                    }
                    tracing::warn!(peer = ?shown.peer, path = request.uri().path(), %unknown, "caller refused");
                    return Ok(Status::unauthenticated(unknown.to_string()).into_http());
                }
            }
            inner.call(request).await
        })
    }
}
