//! HTTP ports: health, metrics and debug pages in plain text, webhooks over TLS.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpConnectInfo;
use tower_service::Service as _;

use navarch_net::activity::Activity;
use navarch_net::answers;
use navarch_net::budget::Budget;
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_net::handshake::handshake;
use navarch_net::peer::client_key;
use navarch_net::port::Port;
use navarch_net::stream::PortStream;
use navarch_webhook::registration::Rollover;

/// Timeout of request headers (against slow loris), and of the first request; istiod's read
/// timeout.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle timeout between requests.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// Maximum age of a connection. Clients then open another.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(30);
/// Grace period for requests in flight after the maximum age.
const MAX_CONNECTION_AGE_GRACE: Duration = Duration::from_secs(30);
/// Grace period for requests in flight at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Timeout of a client that does not read its response.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of HTTP/2 keepalive PINGs.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum concurrent streams of an HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 100;
/// Maximum size of request headers.
const HEADER_BYTES: u32 = 64 << 10;
/// Flow-control window of an HTTP/2 connection.
const FLOW_CONTROL_WINDOW: u32 = 128 << 10;

/// Maximum number of concurrent responses of a port. One client may have half of these, and its
/// other requests wait for its own. The connection limits bound the number of waiting requests.
const MAX_CONCURRENT_RESPONSES: usize = 32;

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub(super) struct OpenHttpPort {
    pub(super) listener: TcpListener,
    pub(super) port: Arc<Port>,
    /// The memory budget of unread responses.
    pub(super) answers: Arc<Budget>,
}

#[derive(Debug)]
pub(super) struct HttpPort {
    pub(super) open: OpenHttpPort,
    /// Receives connections with plaintext HTTP/2, which are gRPC, if gRPC has no port of its own.
    pub(super) grpc: Option<PlainConnections>,
    /// TLS, which also allows HTTP/2. Plain text is HTTP/1 only, without upgrades.
    pub(super) tls: Option<Rollover>,
    pub(super) routes: Router,
}

/// Receiver of plaintext gRPC connections.
pub(super) type PlainConnections = mpsc::Sender<(PortStream, TcpConnectInfo)>;

#[derive(Clone, Debug)]
struct Client {
    peer: SocketAddr,
    /// When the last request arrived.
    activity: Arc<Activity>,
    port: Arc<Port>,
    routes: Router,
    /// The memory budget of responses.
    answers: Arc<Budget>,
    /// Limits concurrent responses, fairly among clients.
    turns: Arc<FairSemaphore<IpAddr>>,
}

impl HttpPort {
    /// Serves until shutdown.
    pub(super) async fn serve(self, stop: CancellationToken) {
        let OpenHttpPort {
            listener,
            port,
            answers,
        } = self.open;
        let mut connections = JoinSet::new();
        let turns = FairSemaphore::new(MAX_CONCURRENT_RESPONSES, usize::MAX);
        let converse = |stream: PortStream, peer| {
            let stream = stream.with_read_limit(READ_TIMEOUT);
            let client = Client {
                peer,
                activity: stream.place().activity().clone(),
                port: port.clone(),
                routes: self.routes.clone(),
                answers: answers.clone(),
                turns: turns.clone(),
            };

            let tls = self.tls.as_ref().map(Rollover::get);
            let stop = stop.clone();
            let grpc = self.grpc.clone();
            async move {
                if let Some(grpc) = grpc
                    && let Ok(true) = timeout(HEADER_TIMEOUT, stream.begins_with(HTTP2_PREFACE))
                        .await
                        .unwrap_or(Ok(false))
                {
                    let info = TcpConnectInfo {
                        local_addr: None,
                        remote_addr: Some(peer),
                    };
                    drop(grpc.send((stream.without_read_limit(), info)).await);
                    return;
                }

                let Some(tls) = tls else {
                    return converse(stream, client, plain(), &stop).await;
                };

                if let Some(mut stream) = handshake(tls, stream, peer).await {
                    stream.get_mut().0.count_requests_only();
                    converse(stream, client, with_http2(), &stop).await;
                }
            }
        };

        tokio::select! {
            () = port.for_each(&listener, &mut connections, converse) => {}
            () = stop.cancelled() => {}
        }
        drop(
            timeout(SHUTDOWN_GRACE, async {
                while connections.join_next().await.is_some() {}
            })
            .await,
        );
    }
}

/// Serves the requests of a connection until it ends, is idle for too long, or reaches its maximum
/// age.
async fn converse<S>(
    stream: S,
    client: Client,
    builder: auto::Builder<TokioExecutor>,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = client.peer;
    let activity = client.activity.clone();
    let service = service_fn(move |request| client.clone().answer(request));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = until_unused(&activity) => None,
        () = sleep(MAX_CONNECTION_AGE) => None,
        () = stop.cancelled() => None,
    };

    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            match timeout(MAX_CONNECTION_AGE_GRACE, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };

    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection failed");
    }
}

/// Waits for the idle timeout.
async fn until_unused(activity: &Activity) {
    loop {
        let limit = if activity.has_request() {
            IDLE_TIMEOUT
        } else {
            HEADER_TIMEOUT
        };
        match limit.checked_sub(activity.idle()) {
            None | Some(Duration::ZERO) => return,
            Some(left) => sleep(left).await,
        }
    }
}

impl Client {
    async fn answer(mut self, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        self.activity.record_request();
        let turn = match self.turns.take(client_key(self.peer.ip())).await {
            Ok(turn) => turn,
            Err(full) => {
                return Ok((StatusCode::SERVICE_UNAVAILABLE, full.to_string()).into_response());
            }
        };
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let response = self.routes.call(request).await?;
        let response = self.charge(response).await;
        drop(turn);
        self.activity.touch();
        Ok(response)
    }

    /// Charges a response to the client until it is read.
    async fn charge(&self, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        if body.size_hint().exact().is_none_or(|length| length == 0) {
            return Response::from_parts(parts, body);
        }
        let Ok(body) = body.collect().await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        match answers::charge(&self.answers, self.peer.ip(), body.to_bytes()) {
            Ok(bytes) => Response::from_parts(parts, Body::from(bytes)),
            Err(full) => {
                self.port.reject("unread_answers", self.peer.ip());
                (StatusCode::SERVICE_UNAVAILABLE, full.to_string()).into_response()
            }
        }
    }
}

/// HTTP/1 with limits.
fn plain() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES as usize);
    builder
}

/// HTTP/1 and HTTP/2 with limits.
fn with_http2() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .initial_stream_window_size(FLOW_CONTROL_WINDOW)
        .initial_connection_window_size(FLOW_CONTROL_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(HEADER_TIMEOUT);
    builder
}
