//! TLS handshakes of servers, with a time limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::stream::PortStream;

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Performs the TLS handshake; `None` if it fails or takes longer than 10 s.
pub async fn handshake<S>(
    tls: Arc<ServerConfig>,
    stream: PortStream<S>,
    peer: SocketAddr,
) -> Option<TlsStream<PortStream<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let accepting = TlsAcceptor::from(tls).accept(stream);
    // Borrowed, so that the callback is still available to report a client that is too slow.
    let mut accepting = std::pin::pin!(accepting);
    match timeout(HANDSHAKE_TIMEOUT, accepting.as_mut()).await {
        Ok(Ok(stream)) => {
            stream.get_ref().0.place().established();
            return Some(stream);
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => {
            if let Some(stream) = accepting.get_ref() {
                stream.place().reject("handshake_timeout");
            }
        }
    }
    None
}
