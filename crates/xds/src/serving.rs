//! The HTTP/2 server under the streams: connections, and the services that calls on them go to.
//!
//! tonic's own would do, but for what it costs per connection: tasks that wake each other at every push, and layers
//! of boxes around each call.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::task::AtomicWaker;
use h2::server::{Builder, Connection};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service;
use tracing::debug;

use super::calls::{Calls, Handler, PortName, Services};
use super::keepalive::{ActivityTracked, LastActivity, keepalive_until_lost};
use super::server::Limits;
use super::together::{Companions, Together};
use navarch_api::hash::keyed_hash;
use navarch_net::port::Port;
use navarch_net::stream::PortStream;

/// Bytes of the headers of one request: a token of 16 KiB, a forwarded certificate, and some.
const HEADER_BYTES: u32 = 64 << 10;
/// Streams that a client may open and reset before they are taken up; then its connection ends (rapid reset).
const PENDING_RESETS: usize = 20;
/// Streams of one connection that may end for a client's mistakes before it does.
const ERROR_RESETS: usize = 256;
/// Bytes of requests that may be under way on a stream, and on all streams of a connection: as HTTP/2 has it where
/// nothing else is said. More would be held for clients that send faster than they are heard.
const WINDOW: u32 = 65_535;
/// How long a client has for its first words. h2 would wait for ever, and so hold what a thousand silent clients cost.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server of gRPC services with the limits of the aggregated discovery service.
#[derive(Clone)]
pub struct Server {
    limits: Arc<Limits>,
    /// The port, by its name in metrics.
    port: PortName,
    services: Services,
}

/// What a connection is told by what looks after it.
#[derive(Debug, Default)]
struct Orders {
    /// The last order: [`GO_ON`], [`SAY_GOODBYE`] or [`END`].
    order: AtomicU8,
    /// Wakes the connection.
    wake: AtomicWaker,
}

/// Nothing is to be done.
const GO_ON: u8 = 0;
/// The client is to open no more streams here; the connection ends with those that there are.
const SAY_GOODBYE: u8 = 1;
/// The connection ends.
const END: u8 = 2;

/// A connection that has shaken hands. Ends with it.
struct Open<C, I> {
    connection: Connection<ActivityTracked<C>, Bytes>,
    /// What answers its calls.
    calls: Calls<I>,
    /// What it is told.
    orders: Arc<Orders>,
    /// Dropped with it, which ends what looks after it.
    _alive: oneshot::Sender<()>,
}

/// What is known of a connection's client. Requests have it among their extensions.
pub trait ConnectionInfo: Clone + Send + Sync + 'static {
    /// How long what the client has shown is good; `None` where it has shown nothing that expires. The client is then told to come
    /// back with something new.
    fn expires_in(&self) -> Option<Duration> {
        None
    }
}

/// In plain text nothing is shown.
impl ConnectionInfo for TcpConnectInfo {}

/// The connections of a port in plain text.
pub fn plain_connections(listener: TcpListener, port: Arc<Port>) -> impl Stream<Item = (PortStream, TcpConnectInfo)> {
    unfold((listener, port), |(listener, port)| async {
        let (stream, peer) = port.accept(&listener).await;
        let info = TcpConnectInfo { local_addr: listener.local_addr().ok(), remote_addr: Some(peer) };
        Some(((stream, info), (listener, port)))
    })
}

impl Server {
    /// One without services. `port` is its name in metrics.
    pub(super) fn new(port: &'static str, limits: Limits) -> Self {
        Self { limits: Arc::new(limits), port: PortName(port), services: Arc::from([]) }
    }

    /// The same with one service more.
    #[must_use]
    pub fn add_service<S>(self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: NamedService + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let handler: Handler = Arc::new(move |request| {
            let mut service = service.clone();
            Box::pin(async move {
                poll_fn(|context| service.poll_ready(context)).await?;
                service.call(request).await
            })
        });
        let services = self.services.iter().cloned().chain([(S::NAME, handler)]).collect();
        Self { services, ..self }
    }

    /// Serves connections, which come with what is known of their clients, until told to stop, and until those that there
    /// are have ended. Requests have what is known among their extensions.
    pub async fn serve<C, I>(self, incoming: impl Stream<Item = (C, I)>, stop: impl Future<Output = ()>)
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        I: ConnectionInfo,
    {
        let (connections, stopping) = (TaskTracker::new(), CancellationToken::new());
        self.accept(incoming, stop, &connections, &stopping).await;
        stopping.cancel();
        connections.close();
        connections.wait().await;
    }

    /// Takes connections in until told to stop.
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
        let (mut incoming, mut stop) = (pin!(incoming), pin!(stop));
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = incoming.next() => accepted,
            };
            match accepted {
                Some((connection, info)) => drop(connections.spawn(self.run(connection, info, stopping.clone()))),
                None => return,
            }
        }
    }

    /// A connection and all that runs on it.
    fn run<C, I>(&self, connection: C, info: I, stopping: CancellationToken) -> Together
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        I: ConnectionInfo,
    {
        let companions = Companions::default();
        let calls = Calls { services: self.services.clone(), info, port: self.port, companions: companions.clone() };
        companions.run(open(connection, calls, self.limits.clone(), stopping))
    }
}

/// Shakes hands; the connection then runs beside what looks after it.
async fn open<C, I>(connection: C, calls: Calls<I>, limits: Arc<Limits>, stopping: CancellationToken)
where
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
    let shaken = tokio::select! {
        biased;
        () = stopping.cancelled() => return,
        shaken = timeout(HANDSHAKE_TIMEOUT, builder.handshake(ActivityTracked::new(connection, heard.clone()))) => shaken,
    };
    let mut connection = match shaken {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            debug!(%error, "no HTTP/2");
            return;
        }
        Err(_) => {
            debug!("the client says nothing");
            return;
        }
    };
    let orders = Arc::new(Orders::default());
    let (alive, gone) = oneshot::channel();
    let companions = calls.companions.clone();
    if let Some(pings) = connection.ping_pong() {
        let (orders, limits) = (orders.clone(), limits.clone());
        companions.join(async move {
            let (interval, patience) = (limits.keepalive_interval, limits.keepalive_timeout);
            tokio::select! {
                _ = gone => return,
                () = keepalive_until_lost(pings, &heard, interval, patience) => debug!("the client did not acknowledge a PING"),
                () = life(&limits, expires_in, &stopping, &orders) => {}
            }
            orders.give(END);
        });
    }
    companions.join(Open { connection, calls, orders, _alive: alive });
}

/// Ends when a connection has come of age, or what its client has shown has expired, and its grace is over. It is told to say
/// good-bye before, as it is when the server stops; streams then end by themselves.
async fn life(limits: &Limits, expires_in: Option<Duration>, stopping: &CancellationToken, orders: &Orders) {
    let age = limits.max_age.map(|age| about(age, keyed_hash(&std::ptr::from_ref(orders).addr())));
    let is_stopping = match age.into_iter().chain(expires_in).min() {
        Some(age) => timeout(age, stopping.cancelled()).await.is_ok(),
        None => {
            stopping.cancelled().await;
            true
        }
    };
    orders.give(SAY_GOODBYE);
    if is_stopping {
        std::future::pending::<()>().await;
    }
    sleep(limits.max_age_grace).await;
}

/// A span of time that is up to a tenth shorter or longer, as `chance` has it: clients that came at once, as after a restart,
/// do not come back at once. As grpc-go does.
fn about(span: Duration, chance: u64) -> Duration {
    let permille = u32::try_from(900 + chance % 201).unwrap_or(1000);
    span.checked_mul(permille).map_or(span, |span| span / 1000)
}

impl Orders {
    /// Gives an order.
    fn give(&self, order: u8) {
        self.order.store(order, Ordering::Release);
        self.wake.wake();
    }
}

/// Nothing in it is pinned in its place.
impl<C, I> Unpin for Open<C, I> {}

impl<C, I> Future for Open<C, I>
where
    C: AsyncRead + AsyncWrite + Unpin,
    I: Clone + Send + Sync + 'static,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.orders.wake.register(context.waker());
        match this.orders.order.load(Ordering::Acquire) {
            GO_ON => {}
            // Of no effect when it is said already.
            SAY_GOODBYE => this.connection.graceful_shutdown(),
            _ => return Poll::Ready(()),
        }
        loop {
            match ready!(this.connection.poll_accept(context)) {
                Some(Ok((request, reply))) => this.calls.take(request, reply),
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
        f.debug_struct("Server").field("limits", &self.limits).field("services", &services).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_the_most() {
        let age = Duration::from_mins(30);
        let ages: Vec<Duration> = (0..1000).map(|number: u64| about(age, keyed_hash(&number))).collect();
        let (least, most) = (*ages.iter().min().unwrap(), *ages.iter().max().unwrap());
        assert!(least >= age * 9 / 10 && most <= age * 11 / 10, "{least:?} {most:?}");
        assert!(most - least > age / 10, "{least:?} {most:?}");
        assert_eq!(about(Duration::MAX, 7), Duration::MAX);
    }
}
