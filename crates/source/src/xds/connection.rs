//! A connection to a configuration source: TCP, and TLS if configured.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Channel;

use super::tls::{Client, TlsError};
use navarch_net::grpc_target::{GrpcTarget, Io};

/// Maximum time until the channel to a server is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The address is not `host:port`.
    #[error("invalid host:port {0:?}")]
    Address(String),
    /// The TLS settings are invalid.
    #[error("invalid tlsSettings")]
    Tls(#[from] TlsError),
    /// The server cannot be reached, or its certificate is not valid for it.
    #[error("failed to connect")]
    Connect(#[source] tonic::transport::Error),
}

/// Connects to `host:port`.
pub(super) async fn connect(address: &str, tls: Option<Client>) -> Result<Channel, ConnectError> {
    let target =
        GrpcTarget::parse(address).ok_or_else(|| ConnectError::Address(address.to_owned()))?;
    let host: Arc<str> = Arc::from(target.host());
    let tls = tls.map(Arc::new);
    let secure = move |stream| secure(stream, host.clone(), tls.clone());
    target
        .connect(CONNECT_TIMEOUT, secure)
        .await
        .map_err(ConnectError::Connect)
}

/// Wraps a stream in TLS to a host, if configured.
async fn secure(
    stream: TcpStream,
    host: Arc<str>,
    tls: Option<Arc<Client>>,
) -> io::Result<Box<dyn Io>> {
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = if tls.server_name.is_empty() {
        &*host
    } else {
        &tls.server_name
    };
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(tls.config.clone())
        .connect(name, stream)
        .await?;
    let (_, session) = stream.get_ref();
    tls.check(session.peer_certificates().unwrap_or_default())
        .map_err(io::Error::other)?;
    Ok(Box::new(stream))
}
