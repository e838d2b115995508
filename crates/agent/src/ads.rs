//! The xDS proxy between the local Envoy and the control plane, on a Unix socket.
//!
//! ```text
//! Envoy ──requests──▶ ┌ stream ┐ ──▶ control plane       one upstream stream for each of Envoy's
//!       ◀─responses── └────────┘ ◀──                     responses pass undecoded: only their type
//!                        │ ▲                             is read, and of routes their form,
//!        name table ◀────┤ ├── health of the workload     and versions added that were left out;
//!        trust bundle ◀──┤ └── ACKs of the agent's own    what is the agent's own never reaches Envoy
//!        Wasm modules ◀──┘ (fetched before Envoy hears of them)
//! ```
//!
//! When the stream to the control plane ends, Envoy's stream ends with it: Envoy keeps its
//! configuration, reconnects with its own backoff, and sends its resource versions again. No state
//! of a stream outlives it, except whether Envoy has routes and in which form: the agent adds this
//! to the node of the next stream's first request (`navarch_base::routes_held`).

mod debug;
mod envoys;
mod own;
mod peek;
mod routes;
mod stream;
mod versions;
mod wire;

pub use debug::{DebugClient, OpenConnections};
pub use envoys::{EnvoyStreams, StreamReport};

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::codec::Codec as _;
use tonic::server::NamedService;
use tonic::transport::server::{Connected, UdsConnectInfo};
use tonic::{Status, Streaming};

use super::dns::NameTableSink;
use super::mesh_metrics::{self, MeshMetrics};
use super::metrics::AgentMetrics;
use super::secrets::Secrets;
use super::upstream::Upstream;
use super::wasm::Modules;
use navarch_reflection::reflection;

/// The service's name on the wire.
const SERVICE: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
/// The path of its state-of-the-world method.
const STATE_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The path of its delta method.
const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// HTTP/2 window of a stream to Envoy: both ends are on this machine.
const WINDOW: u32 = 1 << 20;

/// The workload's health as reported to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Ready for traffic.
    Ready,
    /// Not ready, for this reason.
    NotReady(String),
}

/// Maximum size of a response in bytes, decompressed and with the versions of its resources: more
/// than any that Envoy can use. However small a false control plane's response is on the wire, the
/// agent holds no more of it, or twice as much while it adds versions.
pub const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Configuration of the xDS proxy.
#[derive(Clone, Debug)]
pub struct AdsConfig {
    /// Address and credentials of the control plane.
    pub upstream: Upstream,
    /// Receiver of name tables; they are subscribed to if there is one.
    pub names: Option<NameTableSink>,
    /// Receiver of the trust bundle of the proxy config, which is subscribed to if there is one
    /// (`PROXY_CONFIG_XDS_AGENT`).
    pub trust: Option<Secrets>,
    /// The workload's health, if it is checked.
    pub health: Option<watch::Receiver<Option<Health>>>,
    /// Converts Envoy's access logs, which use the same socket, to metrics.
    pub mesh_metrics: Option<MeshMetrics>,
    /// The Wasm module cache (`ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION`).
    pub modules: Option<Modules>,
    /// Whether concurrent streams are allowed, as a gRPC application opens one for each of its
    /// targets and servers. Envoy has one stream, and a new one replaces the previous one of the
    /// same process.
    pub side_by_side: bool,
    /// Receives what each Envoy answers on its stream.
    pub envoys: EnvoyStreams,
    /// Receives the connections of Envoy's streams, over which debug requests are sent.
    pub connections: OpenConnections,
    /// Maximum size of a response in bytes ([`MAX_RESPONSE_BYTES`]).
    pub max_response: usize,
    /// Metrics of the proxy.
    pub metrics: AgentMetrics,
}

/// The protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// State of the world.
    State,
    Delta,
}

/// The shared state of all streams.
#[derive(Debug)]
struct Core {
    config: AdsConfig,
    /// Ends all streams.
    stop: CancellationToken,
}

/// The gRPC service.
#[derive(Clone, Debug)]
struct Proxy {
    core: Arc<Core>,
    tasks: TaskTracker,
}

/// Serves Envoy until `stop` is cancelled.
///
/// # Errors
/// If the socket fails.
pub async fn serve(
    listener: UnixListener,
    config: AdsConfig,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    serve_connections(UnixListenerStream::new(listener), config, stop).await
}

/// The same over connections from elsewhere, such as those of a simulation.
///
/// # Errors
/// If accepting fails.
pub async fn serve_connections<C>(
    connections: impl Stream<Item = io::Result<C>>,
    config: AdsConfig,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let access_logs = config.mesh_metrics.clone().map(mesh_metrics::service);
    let core = Core {
        config,
        stop: stop.clone(),
    };
    let proxy = Proxy {
        core: Arc::new(core),
        tasks: TaskTracker::new(),
    };
    let tasks = proxy.tasks.clone();
    let services = std::iter::once(SERVICE).chain(access_logs.as_ref().map(name_of));
    let (reflection_v1, reflection_v1alpha) = reflection(services);

    tonic::transport::Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .add_service(proxy)
        .add_optional_service(access_logs)
        .add_service(reflection_v1)
        .add_service(reflection_v1alpha)
        .serve_with_incoming_shutdown(connections, stop.cancelled())
        .await?;

    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// The full name of a service.
fn name_of<S: NamedService>(_: &S) -> &'static str {
    S::NAME
}

impl Protocol {
    /// The method's path.
    fn path(self) -> &'static str {
        match self {
            Self::State => STATE_PATH,
            Self::Delta => DELTA_PATH,
        }
    }
}

impl Proxy {
    /// Starts a stream.
    fn begin(&self, protocol: Protocol, request: Request<Body>) -> Response<Body> {
        let process = request
            .extensions()
            .get::<UdsConnectInfo>()
            .and_then(|info| info.peer_cred?.pid());

        let requests = Streaming::new_request(
            wire::Opaque.decoder(),
            request.into_body(),
            None,
            Some(usize::MAX),
        );

        let (outbox, responses) = wire::channel();
        let client = stream::Client { protocol, process };
        self.tasks
            .spawn(stream::run(self.core.clone(), client, requests, outbox));

        let mut response = Response::new(Body::new(responses));
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        response
    }
}

impl NamedService for Proxy {
    const NAME: &'static str = SERVICE;
}

impl tower_service::Service<Request<Body>> for Proxy {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(match request.uri().path() {
            STATE_PATH => self.begin(Protocol::State, request),
            DELTA_PATH => self.begin(Protocol::Delta, request),
            _ => Status::unimplemented("no such method").into_http(),
        }))
    }
}

#[cfg(test)]
mod tests;
