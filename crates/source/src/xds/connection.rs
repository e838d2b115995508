//! A connection to a configuration source: TCP, and TLS where it is asked for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use super::tls::{Client, TlsError};

/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Quiet after which the server is asked for a sign of life, and how long it may take; as istiod's.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// Bytes that may be under way, as istiod has it.
const WINDOW: u32 = 1 << 20;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The address is none.
    #[error("{0:?} is no host and port")]
    Address(String),
    /// TLS cannot be set up.
    #[error("tlsSettings cannot be used")]
    Tls(#[from] TlsError),
    /// The server cannot be reached, or is not who it should be.
    #[error("no connection")]
    Connect(#[source] tonic::transport::Error),
}

/// What is read from and written to.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that stands.
type Connected = TokioIo<Box<dyn Io>>;

/// Makes the connections of a channel.
#[derive(Clone)]
struct Connector {
    /// The host, without brackets.
    host: Arc<str>,
    port: u16,
    tls: Option<Arc<Client>>,
}

/// Connects to `host:port`.
pub(super) async fn connect(address: &str, tls: Option<Client>) -> Result<Channel, ConnectError> {
    let wrong = || ConnectError::Address(address.to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().map_err(|_| wrong())?;
    let connector = Connector { host: Arc::from(host), port, tls: tls.map(Arc::new) };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| wrong())?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE.0)
        .keep_alive_timeout(KEEPALIVE.1)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    endpoint.connect_with_connector(connector).await.map_err(ConnectError::Connect)
}

impl Connector {
    /// One connection.
    async fn open(self) -> io::Result<Connected> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = self.tls else { return Ok(TokioIo::new(Box::new(stream))) };
        let name = if tls.server_name.is_empty() { &*self.host } else { &tls.server_name };
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls.config.clone()).connect(name, stream).await?;
        let (_, session) = stream.get_ref();
        tls.check(session.peer_certificates().unwrap_or_default()).map_err(io::Error::other)?;
        Ok(TokioIo::new(Box::new(stream)))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Connected;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Connected>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let open = self.clone().open();
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "the server takes too long");
        Box::pin(async move { tokio::time::timeout(CONNECT_TIMEOUT, open).await.unwrap_or_else(|_| Err(slow())) })
    }
}
