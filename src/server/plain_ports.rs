//! The ports without TLS: readiness, metrics, debug pages and plaintext xDS.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpConnectInfo;

use super::boot::Boot;
use super::http::{HttpPort, OpenHttpPort, PlainConnections};
use super::ports::OpenPort;
use super::tls_ports::TlsPorts;
use super::{Config, StreamRules};
use crate::admin::{self, AdminState};
use navarch_net::stream::PortStream;
use navarch_reflection::reflection;
use navarch_security::authenticate::Authenticator;
use navarch_xds::authentication::Authentication;
use navarch_xds::{Ads, plain_connections};

/// Capacity of the channel of gRPC connections from the HTTP port.
const PLAIN_CONNECTIONS_CAPACITY: usize = 64;

/// Plaintext xDS connections.
type Plain = Pin<Box<dyn tokio_stream::Stream<Item = (PortStream, TcpConnectInfo)> + Send>>;

/// The open ports without TLS.
pub(super) struct PlainPorts {
    /// xDS; without it, the HTTP port also serves its connections.
    pub(super) grpc: Option<OpenPort>,
    /// Readiness and debug.
    pub(super) http: Option<OpenHttpPort>,
    /// Metrics, version and debug.
    pub(super) monitoring: Option<OpenHttpPort>,
}

impl PlainPorts {
    /// Serves the ports until shutdown. The HTTP port also serves what has no port of its own.
    pub(super) fn serve(self, config: &Config, state: AdminState, tls: &TlsPorts, boot: &mut Boot) {
        let (plain, from_http) = mpsc::channel(PLAIN_CONNECTIONS_CAPACITY);
        let plain = self.grpc.is_none().then_some(plain);
        let pages = admin::Pages {
            debug: config.debug.on_http,
            monitoring: self.monitoring.is_none(),
        };

        let webhooks = if tls.https.is_none() {
            navarch_webhook::routes(tls.webhooks.clone())
        } else {
            Router::new()
        };
        let routes = admin::http_routes(state.clone(), pages).merge(webhooks);
        serve_http("http", self.http, plain, routes, boot);
        let routes = admin::monitoring_routes(state, pages);
        serve_http("monitoring", self.monitoring, None, routes, boot);

        let connections: Plain = match self.grpc {
            Some((listener, port)) => Box::pin(plain_connections(listener, port)),
            // Without a port for either there are no connections, and the stream must not end
            // before shutdown.
            None => Box::pin(ReceiverStream::new(from_http).chain(tokio_stream::pending())),
        };
        serve_xds(
            connections,
            tls.ads.clone(),
            &tls.authenticator,
            config.security.streams,
            boot,
        );
    }
}

/// Serves a port, if it is open. `grpc` receives its gRPC connections.
fn serve_http(
    name: &'static str,
    open: Option<OpenHttpPort>,
    grpc: Option<PlainConnections>,
    routes: Router,
    boot: &mut Boot,
) {
    let Some(open) = open else { return };
    let port = HttpPort {
        open,
        grpc,
        tls: None,
        routes,
    };
    boot.spawn(name, port.serve(boot.stop.clone()));
}

/// Serves xDS in plain text until shutdown. Clients are not authenticated, so they get no secrets,
/// unless there is an authentication layer.
fn serve_xds(
    connections: Plain,
    ads: Ads,
    authenticator: &Arc<Authenticator>,
    rules: StreamRules,
    boot: &mut Boot,
) {
    let authenticator = rules.plain_auth.then(|| authenticator.clone());
    let stop = boot.stop.clone();

    boot.spawn("xds", async move {
        let (now, before) = reflection([Ads::NAME]);
        let server = match authenticator {
            None => ads.plain_server("grpc"),
            Some(authenticator) => Authentication {
                authenticator,
                policy: rules.policy(),
                metrics: None,
                log: Arc::default(),
            }
            .add_streams(&ads, ads.server("grpc")),
        };

        let server = server.add_service(now).add_service(before);
        server.serve(connections, stop.cancelled()).await;
        ads.ended().await;
    });
}
