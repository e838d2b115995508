//! HTTP/1 ports whose clients are waited for only so long, and that take no more than they should.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

/// How long a client may take for the headers of a request (slow loris); istiod's read timeout.
const HEADERS: Duration = Duration::from_secs(30);
/// Bytes of the headers of a request.
const BUFFER: usize = 64 << 10;
/// How long to wait after the system gives no connection, as when files run out.
const PAUSE: Duration = Duration::from_millis(100);
/// How long requests under way may take at the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves until told to end. HTTP/1 alone is spoken: there is no upgrade to anything.
pub(super) async fn serve(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let routes = routes.clone();
        let service = service_fn(move |request: Request<Incoming>| answer(routes.clone(), peer, request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    drop(tokio::time::timeout(FAREWELL, graceful.shutdown()).await);
}

/// Answers one request, saying whom it is from.
pub(super) async fn answer(
    mut routes: Router,
    peer: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<axum::response::Response, std::convert::Infallible> {
    request.extensions_mut().insert(ConnectInfo(peer));
    routes.call(request).await
}
