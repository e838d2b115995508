//! Connections to the server: so many at once, and none for a caller that does not say what it wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_service::Service as _;

use crate::agent::accept;

/// The most connections at once; more wait to be accepted. Kubelet, Prometheus and the application need a handful.
const CONNECTIONS: usize = 128;
/// How long a caller may take to say what it wants, at first and after each answer.
const SILENCE: Duration = Duration::from_secs(10);
/// The longest that a connection may last, whatever happens on it: an answer that nobody reads holds what it is made of.
const LONGEST: Duration = Duration::from_secs(300);
/// What of a request is kept in memory before its end is seen.
const BUFFER: usize = 16 << 10;

/// Serves until dropped.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let serve = |stream, peer| {
        let router = router.clone();
        async move {
            if tokio::time::timeout(LONGEST, converse(stream, peer, router)).await.is_err() {
                tracing::debug!(%peer, "a connection lasted too long");
            }
        }
    };
    accept::each(listener, Arc::new(Semaphore::new(CONNECTIONS)), serve).await;
}

/// Answers one request of a connection after the other.
async fn converse(stream: TcpStream, peer: SocketAddr, router: Router) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request)
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(SILENCE).max_buf_size(BUFFER);
    if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%peer, %error, "a connection ended");
    }
}
