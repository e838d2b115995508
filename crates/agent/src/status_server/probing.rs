//! Asking the application in the kubelet's place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;

use super::probe_spec::{Action, ProbeSpec};
use super::{StatusConfig, grpc_probe, http_probe};

/// Asks as a probe says, and answers as the kubelet understands it.
pub(super) async fn probe(config: &StatusConfig, spec: &ProbeSpec, headers: &HeaderMap) -> Response {
    let answer = timeout(spec.timeout, act(config, &spec.action, headers)).await;
    answer.unwrap_or_else(|_| failed("the application took too long"))
}

/// Asks.
async fn act(config: &StatusConfig, action: &Action, headers: &HeaderMap) -> Response {
    match action {
        Action::Http { tls, port, path } => match http_probe::probe(config, *tls, *port, path, headers).await {
            Ok(answer) => answer,
            Err(reason) => failed(&reason),
        },
        Action::Tcp { port } => match connect(config, *port).await {
            Ok(_) => StatusCode::OK.into_response(),
            Err(error) => failed(&error.to_string()),
        },
        Action::Grpc { port, service } => match grpc_probe::probe(config, *port, service, headers).await {
            Ok(()) => StatusCode::OK.into_response(),
            Err(reason) => failed(&reason),
        },
    }
}

/// The probe has failed.
fn failed(reason: &str) -> Response {
    tracing::warn!(reason, "application probe failed");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Connects to the application, from the address that the capture's rules let through to it.
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

/// Connects to one address. The connection's end leaves nothing behind: probes come often.
async fn connect_from(source: IpAddr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let (socket, source) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, if source.is_ipv4() { source } else { SOURCE_V4.into() }),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, if source.is_ipv6() { source } else { SOURCE_V6.into() }),
    };
    if let Err(error) = socket.bind(SocketAddr::new(source, 0)) {
        // Outside a pod ::6 is not configured, and no traffic is captured that the probe must be distinguished from.
        tracing::debug!(%source, %error, "failed to bind the probe's source address; using another one");
    }
    socket.connect(address).await
}

/// The address that probes over IPv4 come from.
pub(super) const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// The address that probes over IPv6 come from.
pub(super) const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// How long a single step of reading a slow application may take.
pub(super) const STEP: Duration = Duration::from_secs(10);
