//! The HTTP/2 server under the streams: connections, and the services that calls on them go to.
//!
//! tonic's own would do, but for what it costs per connection: tasks that wake each other at every push, and layers
//! of boxes around each call.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::Connected;
use tower_service::Service;
use tracing::debug;

use super::server::Limits;
use super::together::{Companions, Together};

/// Bytes of the headers of one request: a token of 16 KiB, a forwarded certificate, and some.
const HEADER_BYTES: u32 = 64 << 10;
/// Streams that a client may open and reset before they are taken up; then its connection ends (rapid reset).
const PENDING_RESETS: usize = 20;
/// Streams of one connection that may end for a client's mistakes before it does.
const ERROR_RESETS: usize = 256;
/// Bytes of requests that may be under way on a stream, and on all streams of a connection: as HTTP/2 has it where
/// nothing else is said. More would be held for clients that send faster than they are heard. Below 8 KiB frames
/// would be smaller than the buffer that h2 begins with and keeps as large as the largest frame, but the names of a
/// thousand clusters would take ten round trips.
const WINDOW: u32 = 65_535;
/// How long to wait after the system gives no connection, as when files run out.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a call.
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
/// Answers calls.
type Handler = Arc<dyn Fn(Request<Body>) -> Answer + Send + Sync>;

/// A server of gRPC services with the limits of the aggregated discovery service.
#[derive(Clone)]
pub struct Server {
    /// The limits.
    limits: Limits,
    /// The services by name.
    services: Arc<[(&'static str, Handler)]>,
}

/// What answers the calls of one connection.
struct Calls<I> {
    /// The services by name.
    services: Arc<[(&'static str, Handler)]>,
    /// What is known of the client.
    info: I,
    /// Where streams run.
    companions: Companions,
}

impl Server {
    /// One without services.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, services: Arc::from([]) }
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

    /// Serves connections until told to stop, and until those that there are have ended.
    pub async fn serve<C>(self, incoming: impl Stream<Item = io::Result<C>>, stop: impl Future<Output = ()>)
    where
        C: Connected + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (connections, stopping) = (TaskTracker::new(), CancellationToken::new());
        self.accept(incoming, stop, &connections, &stopping).await;
        stopping.cancel();
        connections.close();
        connections.wait().await;
    }

    /// Takes connections in until told to stop.
    async fn accept<C>(
        &self,
        incoming: impl Stream<Item = io::Result<C>>,
        stop: impl Future<Output = ()>,
        connections: &TaskTracker,
        stopping: &CancellationToken,
    ) where
        C: Connected + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut incoming, mut stop) = (pin!(incoming), pin!(stop));
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = incoming.next() => accepted,
            };
            match accepted {
                Some(Ok(connection)) => drop(connections.spawn(self.run(connection, stopping.clone()))),
                Some(Err(error)) => {
                    debug!(%error, "no connection could be accepted");
                    sleep(PAUSE).await;
                }
                None => return,
            }
        }
    }

    /// A connection and all that runs on it.
    fn run<C>(&self, connection: C, stopping: CancellationToken) -> Together
    where
        C: Connected + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let companions = Companions::default();
        let calls =
            Calls { services: self.services.clone(), info: connection.connect_info(), companions: companions.clone() };
        let limits = &self.limits;
        let mut builder = http2::Builder::new(companions.clone());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(limits.keepalive_interval))
            .keep_alive_timeout(limits.keepalive_timeout)
            .max_concurrent_streams(limits.streams_per_connection)
            .max_header_list_size(HEADER_BYTES)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(ERROR_RESETS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let connection = builder.serve_connection(TokioIo::new(connection), calls);
        let age = limits.max_age.map(|age| (age, limits.max_age_grace));
        companions.run(async move {
            let mut connection = pin!(connection);
            let came_of_age = async {
                match age {
                    Some((age, _)) => sleep(age).await,
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                outcome = connection.as_mut() => Some(outcome),
                () = stopping.cancelled() => None,
                () = came_of_age => None,
            };
            let outcome = match (outcome, age) {
                (Some(outcome), _) => outcome,
                // Streams end by themselves when the server does.
                (None, _) if stopping.is_cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                (None, age) => {
                    connection.as_mut().graceful_shutdown();
                    let grace = age.map_or(Duration::ZERO, |(_, grace)| grace);
                    tokio::time::timeout(grace, connection).await.unwrap_or(Ok(()))
                }
            };
            if let Err(error) = outcome {
                debug!(%error, "connection ended");
            }
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services: Vec<&str> = self.services.iter().map(|(name, _)| *name).collect();
        f.debug_struct("Server").field("limits", &self.limits).field("services", &services).finish()
    }
}

impl<I: Clone + Send + Sync + 'static> hyper::service::Service<Request<Incoming>> for Calls<I> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        let mut request = request.map(Body::new);
        let service = request.uri().path().trim_start_matches('/').split('/').next().unwrap_or_default();
        let Some((_, handler)) = self.services.iter().find(|(name, _)| *name == service) else {
            return Box::pin(async { Ok(Status::unimplemented("no such service").into_http()) });
        };
        request.extensions_mut().insert(self.info.clone());
        request.extensions_mut().insert(self.companions.clone());
        handler(request)
    }
}
