//! An HTTP/2 server for gRPC services: accepts connections, and drains them.
//!
//! It replaces tonic's server, which costs more per connection: tasks that wake each other at every
//! push, and layers of boxes around each call.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::task::AtomicWaker;
use h2::server::{Builder, Connection};
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service;
use tracing::debug;

use crate::limits::Limits;
use crate::transport::calls::{self, CallContext, Calls, ResponseFuture, Services};
use crate::transport::connection_task::{ConnectionTask, Spawner};
use crate::transport::keepalive::{ActivityTracked, LastActivity, keepalive_until_lost};
use navarch_net::port::Port;
use navarch_net::stream::PortStream;
use navarch_tables::hash::keyed_hash;

/// Maximum bytes of the headers of one request: a token of 16 KiB, a forwarded certificate, and
/// some more.
const HEADER_BYTES: u32 = 64 << 10;
/// Streams that a client may open and reset before they are accepted; with more its connection ends
/// (rapid reset).
const PENDING_RESETS: usize = 20;
/// Streams of one connection that may be reset for errors of the client before the connection ends.
const ERROR_RESETS: usize = 256;
/// The flow control window of a stream, and of a connection, in bytes: the default of HTTP/2. A
/// larger one would buffer more for clients that send faster than their requests are processed.
const WINDOW: u32 = 65_535;
/// Timeout of the handshake. h2 itself has none.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server of gRPC services with the limits of the aggregated discovery service.
#[derive(Clone)]
pub struct Server {
    limits: Arc<Limits>,
    /// The port, by its name in metrics.
    port: &'static str,
    services: Services,
}

/// Degree of a connection's shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shutdown {
    /// No shutdown.
    #[default]
    None,
    /// GOAWAY: the client opens no more streams, and the connection ends with the last one.
    GoAway,
    /// The connection ends at once.
    Close,
}

/// Signals a connection to shut down.
#[derive(Debug, Default)]
struct ShutdownSignal {
    wanted: Mutex<Shutdown>,
    /// Wakes the connection.
    wake: AtomicWaker,
}

/// A connection after its handshake.
struct Http2Connection<C, I> {
    connection: Connection<ActivityTracked<C>, Bytes>,
    calls: Calls<I>,
    shutdown: Arc<ShutdownSignal>,
    /// Dropped with the connection, which ends its keepalive.
    _alive: oneshot::Sender<()>,
}

/// Information about a connection's client, stored in the extensions of its requests.
pub trait ConnectionInfo: Clone + Send + Sync + 'static {
    /// How long the client's credential is valid; `None` if it has none that expires. At expiry the
    /// client gets a GOAWAY, so that it reconnects with a new one.
    fn expires_in(&self) -> Option<Duration> {
        None
    }
}

/// Plain text clients have no credential.
impl ConnectionInfo for TcpConnectInfo {}

/// The plain text connections of a port.
pub fn plain_connections(
    listener: TcpListener,
    port: Arc<Port>,
) -> impl Stream<Item = (PortStream, TcpConnectInfo)> {
    unfold((listener, port), |(listener, port)| async {
        let (stream, peer) = port.accept(&listener).await;
        let info = TcpConnectInfo {
            local_addr: listener.local_addr().ok(),
            remote_addr: Some(peer),
        };
        Some(((stream, info), (listener, port)))
    })
}

impl Server {
    /// A server without services. `port` is its name in metrics.
    pub(crate) fn new(port: &'static str, limits: Limits) -> Self {
        Self {
            limits: Arc::new(limits),
            port,
            services: Arc::from([]),
        }
    }

    /// Adds a service of tonic under its `NamedService::NAME`. Its calls are answered by one future
    /// each.
    #[must_use]
    pub fn add_service<S>(self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let handler = Arc::new(move |request| -> ResponseFuture {
            let mut service = service.clone();
            Box::pin(async move {
                poll_fn(|context| service.poll_ready(context)).await?;
                service.call(request).await
            })
        });
        self.with(S::NAME, calls::Service::Unary(handler))
    }

    /// Adds a service of this name, whose calls are answered by long-lived streams. `start` starts
    /// the stream of a call; if it returns a status, that is the response.
    #[must_use]
    pub fn add_streams<F>(
        self,
        name: &'static str,
        start: impl Fn(Request<Body>, CallContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        self.with(
            name,
            calls::Service::Stream(Arc::new(move |request, call| {
                Box::pin(start(request, call))
            })),
        )
    }

    fn with(self, name: &'static str, service: calls::Service) -> Self {
        let services = self
            .services
            .iter()
            .cloned()
            .chain([(name, service)])
            .collect();
        Self { services, ..self }
    }

    /// Serves connections until `stop` completes and all connections have ended. Each connection
    /// comes with information about its client, which is stored in the extensions of its requests.
    pub async fn serve<C, I>(
        self,
        incoming: impl Stream<Item = (C, I)>,
        stop: impl Future<Output = ()>,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        I: ConnectionInfo,
    {
        let connections = TaskTracker::new();
        let stopping = CancellationToken::new();
        self.accept(incoming, stop, &connections, &stopping).await;
        stopping.cancel();
        connections.close();
        connections.wait().await;
    }

    /// Accepts connections until shutdown.
    async fn accept<C, I>(
        &self,
        incoming: impl Stream<Item = (C, I)>,
        stop: impl Future<Output = ()>,
        connections: &TaskTracker,
        stopping: &CancellationToken,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        I: ConnectionInfo,
    {
        let mut incoming = pin!(incoming);
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = incoming.next() => accepted,
            };
            match accepted {
                Some((connection, info)) => {
                    drop(connections.spawn(self.run(connection, info, stopping.clone())))
                }
                None => return,
            }
        }
    }

    fn run<C, I>(&self, connection: C, info: I, stopping: CancellationToken) -> ConnectionTask
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        I: ConnectionInfo,
    {
        let spawner = Spawner::default();
        let calls = Calls {
            services: self.services.clone(),
            info,
            port: self.port,
            spawner: spawner.clone(),
        };
        spawner.run(accept_connection(
            connection,
            calls,
            self.limits.clone(),
            stopping,
        ))
    }
}

/// Performs the handshake, and spawns the connection and its keepalive.
async fn accept_connection<C, I>(
    connection: C,
    calls: Calls<I>,
    limits: Arc<Limits>,
    stopping: CancellationToken,
) where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    I: ConnectionInfo,
{
    let expires_in = calls.info.expires_in();
    let heard = Arc::new(LastActivity::now());
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams_per_connection)
        .max_header_list_size(HEADER_BYTES)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(Some(ERROR_RESETS))
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);

    let handshake = tokio::select! {
        biased;
        () = stopping.cancelled() => return,
        handshake = timeout(
            HANDSHAKE_TIMEOUT,
            builder.handshake(ActivityTracked::new(connection, heard.clone())),
        ) => handshake,
    };

    let mut connection = match handshake {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            debug!(%error, "HTTP/2 handshake failed");
            return;
        }
        Err(_) => {
            debug!("HTTP/2 handshake timed out");
            return;
        }
    };

    let shutdown = Arc::new(ShutdownSignal::default());
    let (alive, gone) = oneshot::channel();
    let spawner = calls.spawner.clone();

    if let Some(pings) = connection.ping_pong() {
        let shutdown = shutdown.clone();
        let limits = limits.clone();
        spawner.spawn(async move {
            let interval = limits.keepalive_interval;
            let ack_timeout = limits.keepalive_timeout;
            tokio::select! {
                _ = gone => return,
                () = keepalive_until_lost(pings, &heard, interval, ack_timeout) => debug!("the client did not acknowledge a PING"),
                () = enforce_max_age(&limits, expires_in, &stopping, &shutdown) => {}
            }
            shutdown.signal(Shutdown::Close);
        });
    }

    spawner.spawn(Http2Connection {
        connection,
        calls,
        shutdown,
        _alive: alive,
    });
}

/// Sends GOAWAY when the connection has reached its maximum age, when the client's credential has
/// expired or when the server stops. Returns when the connection must end: after a grace period in
/// the first two cases; a stopping server waits for its streams.
async fn enforce_max_age(
    limits: &Limits,
    expires_in: Option<Duration>,
    stopping: &CancellationToken,
    shutdown: &ShutdownSignal,
) {
    let age = limits
        .max_age
        .map(|age| with_jitter(age, keyed_hash(&std::ptr::from_ref(shutdown).addr())));
    let is_stopping = match age.into_iter().chain(expires_in).min() {
        Some(age) => timeout(age, stopping.cancelled()).await.is_ok(),
        None => {
            stopping.cancelled().await;
            true
        }
    };
    shutdown.signal(Shutdown::GoAway);
    if is_stopping {
        std::future::pending::<()>().await;
    }
    sleep(limits.max_age_grace).await;
}

/// The duration with a jitter of 10%, as in grpc-go: clients that connected at the same time, as
/// after a restart, do not reconnect at the same time.
fn with_jitter(span: Duration, random: u64) -> Duration {
    let permille = u32::try_from(900 + random % 201).unwrap_or(1000);
    span.checked_mul(permille).map_or(span, |span| span / 1000)
}

impl ShutdownSignal {
    fn signal(&self, wanted: Shutdown) {
        *self.wanted.lock() = wanted;
        self.wake.wake();
    }
}

/// No field is pinned.
impl<C, I> Unpin for Http2Connection<C, I> {}

impl<C, I> Future for Http2Connection<C, I>
where
    C: AsyncRead + AsyncWrite + Unpin,
    I: Clone + Send + Sync + 'static,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.shutdown.wake.register(context.waker());
        let wanted = *this.shutdown.wanted.lock();
        match wanted {
            Shutdown::None => {}
            // Has no effect after the first call.
            Shutdown::GoAway => this.connection.graceful_shutdown(),
            Shutdown::Close => return Poll::Ready(()),
        }

        loop {
            match ready!(this.connection.poll_accept(context)) {
                Some(Ok((request, response))) => this.calls.dispatch(request, response),
                Some(Err(error)) => {
                    debug!(%error, "connection ended");
                    return Poll::Ready(());
                }
                None => return Poll::Ready(()),
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services: Vec<&str> = self.services.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Server")
            .field("limits", &self.limits)
            .field("services", &services)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_the_most() {
        let age = Duration::from_mins(30);
        let ages: Vec<Duration> = (0..1000)
            .map(|number: u64| with_jitter(age, keyed_hash(&number)))
            .collect();
        let least = *ages.iter().min().unwrap();
        let most = *ages.iter().max().unwrap();
        assert!(
            least >= age * 9 / 10 && most <= age * 11 / 10,
            "{least:?} {most:?}"
        );
        assert!(most - least > age / 10, "{least:?} {most:?}");
        assert_eq!(with_jitter(Duration::MAX, 7), Duration::MAX);
    }
}
