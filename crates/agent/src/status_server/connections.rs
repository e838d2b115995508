//! Connections to the status server: a limited number, shared fairly; a connection without a
//! request is closed.
//!
//! The kubelet has the node's address, which the pod cannot determine reliably, so it has no
//! reserved connections. If all are in use, the client with the most connections loses one.

use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::http_server::serve_connection;
use navarch_net::port::{Port, PortLimits};
use navarch_net::rejections::Rejections;
use navarch_net::stream::PortStream;

/// Default maximum number of connections. Kubelet, Prometheus and the application need a handful.
pub(super) const CONNECTIONS: usize = 128;
/// One in this many connections is reserved for loopback: the application, and a kubelet in the
/// pod's own network.
const LOOPBACK: usize = 4;
/// Timeout of request headers, at first and after each response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum age of a connection, even if it is active: a response that is not read keeps its memory.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);
/// How long a client may read nothing of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves until dropped.
pub(super) async fn serve(
    listener: TcpListener,
    connections: usize,
    rejections: Rejections,
    router: Router,
) {
    let limits = PortLimits {
        connections,
        handshakes: None,
        loopback: connections / LOOPBACK,
    };
    let port = Port::new("status", limits, rejections);
    let serve = |stream: PortStream, peer| {
        let stream = stream.with_read_limit(READ_TIMEOUT);
        let router = router.clone();
        async move {
            let served = serve_connection(stream, peer, router, IDLE_TIMEOUT);
            if tokio::time::timeout(MAX_CONNECTION_AGE, served)
                .await
                .is_err()
            {
                tracing::debug!(%peer, "connection exceeded its maximum age");
            }
        }
    };

    port.for_each(&listener, &mut JoinSet::new(), serve).await;
}
