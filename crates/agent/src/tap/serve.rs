//! The port: gRPC and HTTP on the same connections, with limits.
//!
//! Pages of other sites in a browser are denied HTTP. gRPC needs HTTP/2, which no browser speaks
//! without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::get;
use http::{Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use navarch_net::port::{Port, PortLimits};
use navarch_net::rejections::Rejections;
use navarch_net::stream::PortStream;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::Once;
use tonic::body::Body;
use tonic::{Status, Streaming};
use tower_service::Service as _;

use super::{Tap, page};
use crate::http_server::only_of_this_machine;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 16;
/// Maximum age of a connection, even if it is active.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);
/// Timeout of HTTP/1 request headers, at first and after each response, as in Istio.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a client may read nothing of a response, and take to acknowledge a ping.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of concurrent requests on an HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 8;
/// Maximum size of request headers.
const HEADER_BYTES: u32 = 16 << 10;
/// Maximum size of a gRPC request.
const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Timeout for the request on a gRPC stream, and then for the response, as in Istio.
const GRPC_TIMEOUT: Duration = Duration::from_secs(15);

/// What requests are served by.
#[derive(Clone)]
struct Routes {
    grpc: AggregatedDiscoveryServiceServer<Tap>,
    http: Router,
}

/// Serves until dropped.
pub(crate) async fn serve(listener: TcpListener, tap: Tap, rejections: Rejections) {
    let routes = Routes {
        grpc: AggregatedDiscoveryServiceServer::new(tap.clone())
            .max_decoding_message_size(MAX_REQUEST_BYTES),
        http: Router::new()
            .route("/debug", get(page::page))
            .route("/debug/{*page}", get(page::page))
            .layer(from_fn(only_of_this_machine))
            .with_state(tap),
    };

    let port = Port::new("xds-debug", PortLimits::plain(MAX_CONNECTIONS), rejections);
    let serve = |stream: PortStream, peer| {
        let stream = stream.with_read_limit(READ_TIMEOUT);
        let served = serve_connection(stream, peer, routes.clone());
        async move {
            if timeout(MAX_CONNECTION_AGE, served).await.is_err() {
                tracing::debug!(%peer, "connection exceeded its maximum age");
            }
        }
    };
    port.for_each(&listener, &mut JoinSet::new(), serve).await;
}

/// Serves the requests of a connection.
async fn serve_connection(stream: PortStream, peer: SocketAddr, routes: Routes) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(READ_TIMEOUT)
        .keep_alive_timeout(READ_TIMEOUT);

    let service = service_fn(move |request| respond(request, routes.clone()));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%peer, %error, "connection ended with an error");
    }
}

/// The response to a request of either kind.
async fn respond(
    request: Request<Incoming>,
    mut routes: Routes,
) -> Result<Response<Body>, Infallible> {
    if is_grpc(&request) {
        return routes.grpc.call(request).await;
    }
    let request = request.map(axum::body::Body::new);
    let response = routes.http.call(request).await?;
    Ok(response.map(Body::new))
}

fn is_grpc(request: &Request<Incoming>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    request.version() == Version::HTTP_2
        && content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Tap {
    type StreamAggregatedResourcesStream = Once<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = Once<Result<DeltaDiscoveryResponse, Status>>;

    /// Forwards the first request of a stream, and ends the stream with its response.
    async fn stream_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamAggregatedResourcesStream>, Status> {
        let mut requests = request.into_inner();
        let first = timeout(GRPC_TIMEOUT, requests.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no request within the time limit"))??;
        let DiscoveryRequest {
            type_url,
            resource_names,
            ..
        } = first.ok_or_else(|| Status::invalid_argument("the stream has no request"))?;

        let response = self.forward(type_url, resource_names, GRPC_TIMEOUT).await?;
        Ok(tonic::Response::new(tokio_stream::once(Ok(response))))
    }

    async fn delta_aggregated_resources(
        &self,
        _: tonic::Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented(
            "debug requests are state-of-the-world requests",
        ))
    }
}
