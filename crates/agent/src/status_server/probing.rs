//! Probes the application on behalf of the kubelet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use rustls::pki_types::InvalidDnsNameError;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use super::http_probe::Target;
use super::kept::{ApplicationPort, KeptConnections};
use super::probe_spec::{Action, ProbeSpec};
use super::{StatusConfig, grpc_probe, http_probe};

/// Why a probe of the application failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The destination cannot be a server name of TLS.
    #[error(transparent)]
    HostName(#[from] InvalidDnsNameError),
    /// A header or the path is invalid.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// Connecting failed, with or without TLS.
    #[error(transparent)]
    Connect(#[from] std::io::Error),
    /// There is no TLS configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The HTTP exchange failed.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The application redirects without end.
    #[error("stopped after 10 redirects")]
    Redirects,
    /// The connection for gRPC failed.
    #[error(transparent)]
    Channel(#[from] tonic::transport::Error),
    /// The health service returned an error.
    #[error(transparent)]
    Grpc(#[from] tonic::Status),
    /// The health service does not report `SERVING`.
    #[error("the service reports status {0}, not SERVING")]
    NotServing(i32),
}

/// Runs a probe, and returns its result as the kubelet expects it.
pub(super) async fn probe(
    config: &StatusConfig,
    kept: &KeptConnections,
    spec: &ProbeSpec,
    headers: &HeaderMap,
) -> Response {
    let answer = timeout(spec.timeout, act(config, kept, &spec.action, headers)).await;
    answer.unwrap_or_else(|_| failed("the application did not respond in time"))
}

/// Runs the action of a probe.
async fn act(
    config: &StatusConfig,
    kept: &KeptConnections,
    action: &Action,
    headers: &HeaderMap,
) -> Response {
    let answer = match action {
        Action::Http { tls, port, path } => {
            let target = Target {
                port: ApplicationPort {
                    number: *port,
                    tls: *tls,
                },
                path: path.clone(),
            };
            http_probe::probe(config, kept, target, headers)
                .await
                .map_err(|error| error.to_string())
        }
        Action::Tcp { port } => connect(config, *port)
            .await
            .map(|_| StatusCode::OK.into_response())
            .map_err(|error| error.to_string()),
        Action::Grpc { port, service } => grpc_probe::probe(config, *port, service, headers)
            .await
            .map(|()| StatusCode::OK.into_response())
            .map_err(|error| error.to_string()),
    };

    answer.unwrap_or_else(|error| failed(&error))
}

/// The response for a failed probe.
fn failed(reason: &str) -> Response {
    tracing::warn!(reason, "application probe failed");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Connects to the application, from the source address that the capture rules exempt.
pub(super) async fn connect(config: &StatusConfig, port: u16) -> std::io::Result<TcpStream> {
    let mut last = std::io::ErrorKind::NotFound.into();
    for address in lookup_host((config.destination.as_str(), port)).await? {
        match connect_from(config.source, address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to one address. Closing the connection leaves no TIME-WAIT state, as probes are
/// frequent.
async fn connect_from(source: IpAddr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let (socket, source) = match address {
        SocketAddr::V4(_) => (
            TcpSocket::new_v4()?,
            if source.is_ipv4() {
                source
            } else {
                SOURCE_V4.into()
            },
        ),
        SocketAddr::V6(_) => (
            TcpSocket::new_v6()?,
            if source.is_ipv6() {
                source
            } else {
                SOURCE_V6.into()
            },
        ),
    };

    if let Err(error) = socket.bind(SocketAddr::new(source, 0)) {
        // Outside a pod ::6 is not configured, and no traffic is captured that the probe must be
        // distinguished from.
        tracing::debug!(%source, %error, "failed to bind the probe's source address; using another one");
    }

    socket.connect(address).await
}

/// The source address of probes over IPv4.
pub(super) const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// The source address of probes over IPv6.
pub(super) const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// Timeout of a single read from a slow application.
pub(super) const STEP: Duration = Duration::from_secs(10);
