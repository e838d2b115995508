//! Serves the HTTP requests of a connection to one of the agent's ports. Pages for loopback alone
//! deny those of other sites in a browser.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use navarch_net::same_machine::is_of_this_machine;
use navarch_net::stream::PortStream;
use tower_service::Service as _;

/// Maximum size of buffered request headers.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Serves the requests of a connection, whose client they have as [`ConnectInfo`]. `idle_timeout`
/// is the timeout of request headers, at first and after each response.
pub(crate) async fn serve_connection(
    stream: PortStream,
    peer: SocketAddr,
    router: Router,
    idle_timeout: Duration,
) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        router.clone().call(request)
    });

    let mut connection = http1::Builder::new();
    connection
        .timer(TokioTimer::new())
        .header_read_timeout(idle_timeout)
        .max_buf_size(MAX_HEADER_BYTES);
    if let Err(error) = connection
        .serve_connection(TokioIo::new(stream), service)
        .await
    {
        tracing::debug!(%peer, %error, "connection ended with an error");
    }
}

/// Admits requests of users of this machine alone. For pages whose clients have loopback addresses:
/// a browser of the machine has one as well, or of an operator who forwards the port.
pub(crate) async fn only_of_this_machine(request: Request, next: Next) -> Response {
    if is_of_this_machine(request.uri(), request.headers()) {
        next.run(request).await
    } else {
        denial()
    }
}

/// The response to requests that are not of this machine.
pub(crate) fn denial() -> Response {
    let text = "Only requests from localhost are allowed\n";
    (StatusCode::FORBIDDEN, text).into_response()
}
