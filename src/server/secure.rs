//! The TLS port (15012): xDS and certificates for authenticated callers.

use std::sync::Arc;

use navarch_net::handshake::handshake;
use navarch_net::log_limit::LogLimit;
use navarch_net::port::Port;
use navarch_net::stream::PortStream;
use navarch_proto::istio::v1::auth::istio_certificate_service_server::IstioCertificateServiceServer;
use navarch_reflection::reflection;
use navarch_security::authenticate::Authenticator;
use navarch_security::ca::service::CertificateService;
use navarch_security::ca::{CallMetrics, CountedCalls};
use navarch_security::serving::ServingTls;
use navarch_xds::Ads;
use navarch_xds::authentication::{AuthPolicy, Authentication, ClientIdentity};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService as _;

type Certificates = IstioCertificateServiceServer<CertificateService>;

/// Capacity of the channel of connections after their handshake; handshakes block when it is full.
const READY_CONNECTIONS_CAPACITY: usize = 64;
/// Maximum size of a certificate request, with some reserve.
const MAX_REQUEST: usize = 64 << 10;

/// The port, and everything that it serves.
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

impl SecurePort {
    /// Serves until shutdown.
    pub(super) async fn serve(self) {
        let (ready, incoming) = mpsc::channel(READY_CONNECTIONS_CAPACITY);
        let metrics = Some(self.certificates.metrics());
        let certificates = IstioCertificateServiceServer::new(self.certificates)
            .max_decoding_message_size(MAX_REQUEST);
        let log = Arc::new(LogLimit::default());
        let of_streams = Authentication {
            authenticator: self.authenticator.clone(),
            policy: self.policy,
            metrics: None,
            log: log.clone(),
        };
        let of_certificates = Authentication {
            authenticator: self.authenticator,
            policy: AuthPolicy::Known,
            metrics,
            log,
        };

        let certificates = CountedCalls {
            inner: of_certificates.before(certificates),
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
                let (_, session) = stream.get_ref();
                let certificates = session.peer_certificates().unwrap_or_default();
                let shown = ClientIdentity::new(peer, certificates);
                drop(ready.send((stream, shown)).await);
            }
        }
    };
    port.for_each(&listener, &mut JoinSet::new(), shake).await;
}
