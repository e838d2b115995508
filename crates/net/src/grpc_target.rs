//! The target of a gRPC channel: one connection to `host:port`, on which the caller chooses the
//! transport.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Flow-control window of streams and connections, as in Istio: large pushes should not wait for
/// round trips.
const WINDOW: u32 = 1 << 20;

/// A byte stream in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// When the server is pinged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Time without data after which it is pinged.
    pub interval: Duration,
    /// Time to acknowledge a ping, after which the connection is closed.
    pub timeout: Duration,
}

impl Default for Keepalive {
    /// As in Istio.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The target of a channel.
#[derive(Clone, Debug)]
pub struct GrpcTarget {
    host: Arc<str>,
    port: u16,
    endpoint: Endpoint,
}

/// A connection that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

/// Opens the connections of a channel.
#[derive(Clone)]
struct Connector<O> {
    timeout: Duration,
    /// Opens a connection, ready for HTTP/2.
    open: O,
}

impl GrpcTarget {
    /// The target of `host:port`, with an IPv6 address in brackets; `None` if the text has another
    /// form.
    #[must_use]
    pub fn parse(address: &str) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        let bare = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']')?,
            None if host.is_empty() || host.contains(':') => return None,
            None => host,
        };
        let port = port.parse().ok()?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let endpoint = endpoint
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);

        let target = Self {
            host: Arc::from(bare),
            port,
            endpoint,
        };
        Some(target.with_keepalive(Keepalive::default()))
    }

    /// The same target with other pings than the default ones.
    #[must_use]
    pub fn with_keepalive(self, keepalive: Keepalive) -> Self {
        let endpoint = self
            .endpoint
            .http2_keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout);
        Self { endpoint, ..self }
    }

    /// The host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// A channel, connected within a timeout. `secure` wraps each TCP connection in the transport.
    ///
    /// # Errors
    /// If connecting fails.
    pub async fn connect<S, F>(self, timeout: Duration, secure: S) -> Result<Channel, Error>
    where
        S: Fn(TcpStream) -> F + Clone + Send + 'static,
        F: Future<Output = io::Result<Box<dyn Io>>> + Send + 'static,
    {
        let open = self.over_tcp(secure);
        self.connect_over(timeout, open).await
    }

    /// The same over connections that `open` opens, in place of TCP.
    ///
    /// # Errors
    /// If connecting fails.
    pub async fn connect_over<O>(self, timeout: Duration, open: O) -> Result<Channel, Error>
    where
        O: Fn() -> Opening + Clone + Send + 'static,
    {
        let endpoint = self.endpoint.connect_timeout(timeout);
        let connector = Connector { timeout, open };
        endpoint.connect_with_connector(connector).await
    }

    /// A channel that connects when it is first used, within a timeout, and again after its
    /// connection has ended. `secure` wraps each TCP connection in the transport.
    pub fn connect_lazily<S, F>(self, timeout: Duration, secure: S) -> Channel
    where
        S: Fn(TcpStream) -> F + Clone + Send + 'static,
        F: Future<Output = io::Result<Box<dyn Io>>> + Send + 'static,
    {
        let open = self.over_tcp(secure);
        let endpoint = self.endpoint.connect_timeout(timeout);
        endpoint.connect_with_connector_lazy(Connector { timeout, open })
    }

    /// Opens TCP connections to the target, each wrapped in the transport.
    fn over_tcp<S, F>(&self, secure: S) -> impl Fn() -> Opening + Clone + Send + use<S, F>
    where
        S: Fn(TcpStream) -> F + Clone + Send + 'static,
        F: Future<Output = io::Result<Box<dyn Io>>> + Send + 'static,
    {
        let host = self.host.clone();
        let port = self.port;
        move || {
            let host = host.clone();
            let secure = secure.clone();
            Box::pin(async move {
                let stream = TcpStream::connect((&*host, port)).await?;
                stream.set_nodelay(true)?;
                secure(stream).await
            })
        }
    }
}

impl<O> tower_service::Service<Uri> for Connector<O>
where
    O: Fn() -> Opening,
{
    type Response = TokioIo<Box<dyn Io>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let timeout = self.timeout;
        let opening = (self.open)();
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "timed out");
        Box::pin(async move {
            let opened = tokio::time::timeout(timeout, opening).await;
            opened.unwrap_or_else(|_| Err(slow())).map(TokioIo::new)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let host = |address: &str| {
            GrpcTarget::parse(address).map(|target| (target.host().to_owned(), target.port))
        };
        assert_eq!(
            host("istiod.istio-system.svc:15012"),
            Some(("istiod.istio-system.svc".to_owned(), 15012))
        );
        assert_eq!(
            host("[2001:db8::1]:15012"),
            Some(("2001:db8::1".to_owned(), 15012))
        );

        for wrong in [
            "",
            ":15012",
            "istiod",
            "istiod:",
            "istiod:70000",
            "2001:db8::1:15012",
            "[::1:15012",
            "a b:1",
        ] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
    }
}
