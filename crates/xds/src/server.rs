//! The gRPC service, and the port on which it is served in plain text.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::thread::available_parallelism;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, header};
use jiff::Timestamp;
use navarch_proto::envoy::service::discovery::v3::DiscoveryRequest;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;

use crate::admission::Admission;
use crate::client::Memory;
use crate::compression::{
    ACCEPTED, Encoding, Encodings, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, RequestEncoding,
};
use crate::connections::Connections;
use crate::debug::DebugPages;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::nacks::NackQueue;
use crate::node::Served;
use crate::session::diff::Versions;
use crate::session::discovery_request::{Protocol, Wire};
use crate::session::encoding_cache::{EncodingCache, RELEASE_INTERVAL};
use crate::session::initial_resource_versions::DeltaDiscoveryRequest;
use crate::stream::{self, Origin};
use crate::transport::grpc_reader::{RequestLimits, Requests};
use crate::transport::grpc_writer::Outbox;
use crate::transport::{CallContext, Server, plain_connections};
use crate::workloads::Workloads;
use navarch_api::identity::{Caller, CredentialExpiry};
use navarch_base::blocking;
use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE};
use navarch_net::budget::Budget;
use navarch_net::port::Port;
use navarch_net::rejections::Rejections;
use navarch_push::observer::PushObserver;
use navarch_push::worker::PushHandle;
use navarch_security::secret_access::AccessRequest;

/// Configuration of the aggregated discovery service.
#[derive(Debug)]
pub struct AdsParts {
    /// The push thread, which computes resources.
    pub push: PushHandle,
    /// Metrics of streams and responses.
    pub metrics: Metrics,
    /// Limits of one client.
    pub limits: Limits,
    /// The encodings that responses may be compressed with.
    pub encodings: Encodings,
    /// The wall clock at the start.
    pub started: Timestamp,
    /// Cancelled to end all streams.
    pub drain: CancellationToken,
    /// The memory budget of clients, shared with other servers.
    pub memory: Arc<Budget>,
    /// Counter of rejected clients.
    pub rejections: Rejections,
    /// The check whether a service account may read secrets; `None` if all may.
    pub access: Option<mpsc::Sender<AccessRequest>>,
    /// Listener for proxies of workloads that are not pods; `None` if there is none.
    pub workloads: Option<Arc<dyn Workloads>>,
    /// Where NACKs wait to be looked into; `None` if nobody does.
    pub nacks: Option<NackQueue>,
    /// Listener for each ACK and NACK; `None` without a recording.
    pub observer: Option<Arc<dyn PushObserver>>,
    /// Selects the proxies that are served.
    pub served: Served,
    /// Whether all clients may subscribe to objects of Istio's kinds, not only those of the root
    /// namespace.
    pub objects_for_all: bool,
}

impl AdsParts {
    /// The required parts, with defaults for the others: no checks, no listeners, and high limits
    /// for clients.
    #[must_use]
    pub fn new(
        push: PushHandle,
        metrics: Metrics,
        started: Timestamp,
        drain: CancellationToken,
    ) -> Self {
        Self {
            push,
            metrics,
            limits: Limits::default(),
            encodings: Encodings::default(),
            started,
            drain,
            memory: Budget::new(1 << 30),
            rejections: Rejections::default(),
            access: None,
            workloads: None,
            nacks: None,
            observer: None,
            served: Served::default(),
            objects_for_all: false,
        }
    }
}

/// The aggregated discovery service. Clones are one service: all ports serve the same streams.
#[derive(Clone, Debug)]
pub struct Ads {
    core: Arc<Core>,
}

/// The shared state of all streams.
#[derive(Debug)]
pub(super) struct Core {
    /// The push thread, which computes resources.
    pub(super) push: PushHandle,
    /// Encoded diffs.
    pub(super) cache: Arc<EncodingCache>,
    pub(super) metrics: Metrics,
    /// The open streams.
    pub(super) connections: Arc<Connections>,
    /// Cancelled to end all streams.
    pub(super) drain: CancellationToken,
    /// The wall clock at the start; later times are computed from [`Core::begun`].
    pub(super) started: Timestamp,
    /// The same in the format of versions, in seconds.
    pub(super) started_text: Arc<str>,
    /// The monotonic clock at the start.
    pub(super) begun: Instant,
    /// The check whether a service account may read secrets; `None` if all may.
    pub(super) access: Option<mpsc::Sender<AccessRequest>>,
    /// Listener for workloads that are not pods; `None` if there is none.
    pub(super) workloads: Option<Arc<dyn Workloads>>,
    /// Where NACKs wait to be looked into; `None` if nobody does.
    pub(super) nacks: Option<NackQueue>,
    /// Listener for each ACK and NACK; `None` without a recording.
    pub(super) observer: Option<Arc<dyn PushObserver>>,
    /// Selects the proxies that are served.
    pub(super) served: Served,
    /// Whether all clients may subscribe to objects of Istio's kinds.
    pub(super) objects_for_all: bool,
    /// The debug pages for operators' tools, once they are set.
    pub(super) debug: OnceLock<Arc<dyn DebugPages>>,
    /// Limits of one client.
    pub(super) limits: Limits,
    /// The encodings that responses may be compressed with.
    encodings: Encodings,
    /// A permit for each processor to compress a large response.
    pub(super) compressors: Arc<Semaphore>,
    /// The memory of clients.
    memory: Arc<Memory>,
    /// Admission of new streams.
    admission: Admission,
    /// The number of the next stream.
    numbers: AtomicU64,
    /// The streams' tasks.
    tasks: TaskTracker,
    /// Set once the background task runs.
    has_background_task: Once,
}

/// The path of its state-of-the-world method.
const STATE_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The path of its delta method.
const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

impl Core {
    /// The next stream's number.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The monotonic time of a wall clock time: now if it is past, `None` if it is out of range.
    pub(super) fn instant_of(&self, moment: Timestamp) -> Option<Instant> {
        let since_start = moment
            .duration_since(self.started)
            .try_into()
            .unwrap_or(Duration::ZERO);
        self.begun.checked_add(since_start)
    }
}

impl Ads {
    /// The service's name on the wire.
    pub const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";

    /// A service of these parts.
    #[must_use]
    pub fn new(parts: AdsParts) -> Self {
        let AdsParts {
            push,
            metrics,
            limits,
            encodings,
            started,
            drain,
            memory,
            rejections,
            access,
            workloads,
            nacks,
            observer,
            served,
            objects_for_all,
        } = parts;

        let connections = Arc::<Connections>::default();
        let cache = Arc::<EncodingCache>::default();
        metrics.count_history_of(connections.clone());
        metrics.measure(cache.clone());
        let processors = available_parallelism().map_or(1, NonZero::get);
        let started_text = started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
        let core = Core {
            push,
            cache,
            metrics,
            connections,
            drain,
            started,
            started_text,
            begun: Instant::now(),
            access,
            workloads,
            nacks,
            observer,
            served,
            objects_for_all,
            debug: OnceLock::new(),
            memory: Memory::new(memory, rejections),
            admission: Admission::new(limits.streams_per_second),
            limits,
            encodings,
            compressors: Arc::new(Semaphore::new(processors)),
            numbers: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            has_background_task: Once::new(),
        };

        Self {
            core: Arc::new(core),
        }
    }

    /// The open streams.
    #[must_use]
    pub fn connections(&self) -> Arc<Connections> {
        self.core.connections.clone()
    }

    /// Sets the pages of the debug API. Requests are rejected before. Only the first call has an
    /// effect.
    pub fn set_debug_pages(&self, pages: Arc<dyn DebugPages>) {
        // All callers pass the same pages.
        let _ = self.core.debug.set(pages);
    }

    /// Serves in plain text, without a limit of connections, until the drain is signalled and all
    /// streams have ended.
    pub async fn serve(self, listener: TcpListener) {
        let drain = self.core.drain.clone();
        let incoming = plain_connections(listener, Port::unlimited("grpc"));
        self.plain_server("grpc")
            .serve(incoming, drain.cancelled())
            .await;
        self.ended().await;
    }

    /// A gRPC server with the limits of this service, for a port with several services. `port` is
    /// its name in metrics.
    #[must_use]
    pub fn server(&self, port: &'static str) -> Server {
        Server::new(port, self.core.limits.clone())
    }

    /// A gRPC server with this service for unauthenticated clients.
    #[must_use]
    pub fn plain_server(&self, port: &'static str) -> Server {
        let ads = self.clone();
        self.server(port)
            .add_streams(Self::NAME, move |request, call| {
                let ads = ads.clone();
                async move { ads.start(request, &call) }
            })
    }

    /// Starts the stream of a call. The request's extensions contain the connection's
    /// [`TcpConnectInfo`] and, if the client is authenticated, the [`Caller`].
    ///
    /// # Errors
    /// With the status for the client if the method does not exist or the stream is rejected.
    pub fn start(&self, request: http::Request<Body>, call: &CallContext) -> Result<(), Status> {
        match request.uri().path() {
            STATE_PATH => self.begin::<DiscoveryRequest>(request, call),
            DELTA_PATH => self.begin::<DeltaDiscoveryRequest>(request, call),
            _ => Err(Status::unimplemented("no such method")),
        }
    }

    /// Waits until all streams have ended after the drain was signalled.
    pub async fn ended(&self) {
        self.core.tasks.close();
        self.core.tasks.wait().await;
    }

    /// Starts a stream as a task of the call's connection. The stream sends the responses itself.
    fn begin<M: Wire>(
        &self,
        request: http::Request<Body>,
        call: &CallContext,
    ) -> Result<(), Status> {
        let core = self.core.clone();
        if !core.push.is_synced() {
            return Err(Status::unavailable(
                "the server has not read its configuration yet",
            ));
        }

        let (parts, body) = request.into_parts();
        let extensions = &parts.extensions;
        let peer = extensions
            .get::<TcpConnectInfo>()
            .and_then(TcpConnectInfo::remote_addr);
        let client = core.memory.client(call.port(), peer.map(|peer| peer.ip()));
        let begin = core.admission.admit(Instant::now()).map_err(|_| {
            client.count_rejection("streams_per_second");
            Status::resource_exhausted("too many new streams per second; try again later")
        })?;

        let paid = client.begin_stream()?;
        let caller = extensions.get::<Caller>().cloned();
        let expires = match &caller {
            Some(caller) => caller.expires,
            None => extensions.get::<CredentialExpiry>().map(|expiry| expiry.0),
        };
        let encoding = Encoding::for_client(&parts.headers, core.encodings);
        let versions = versions_for::<M>(&parts.headers);
        let head = response_head(encoding, versions);

        // The client has disconnected.
        let Some(responses) = call.send_head(head) else {
            return Ok(());
        };

        let limits = RequestLimits {
            bytes: core.limits.request_bytes,
            rest: core.limits.request_rest,
        };
        let of_requests = RequestEncoding::of_headers(&parts.headers);
        let requests = Requests::new(body, limits, of_requests, client.clone());
        let origin = Origin {
            peer,
            caller,
            expires,
            client,
            versions,
            paid,
        };

        self.start_background_task();
        let outbox = Outbox::new(responses, encoding);
        let stream = wait_and_run::<M>(core, begin, requests, outbox, origin);
        call.spawn(self.core.tasks.track_future(stream));
        Ok(())
    }

    /// Ends all streams when the server stops. Until then, frees cached diffs that no stream can
    /// use any more.
    fn start_background_task(&self) {
        self.core.has_background_task.call_once(|| {
            let drain = self.core.drain.clone();
            let connections = self.core.connections.clone();
            let cache = self.core.cache.clone();
            drop(self.core.tasks.spawn(async move {
                while timeout(RELEASE_INTERVAL, drain.cancelled()).await.is_err() {
                    let cache = cache.clone();
                    // Freeing 80,000 names would block a thread of the runtime for milliseconds.
                    drop(blocking::run(move || cache.release()).await);
                }
                connections.end();
            }));
        });
    }
}

/// Whether a stream's responses have the versions of resources: unless its client computes them.
fn versions_for<M: Wire>(headers: &HeaderMap) -> Versions {
    let asks = headers
        .get(OMIT_VERSIONS)
        .is_some_and(|value| value == OMIT_VERSIONS_VALUE);
    if asks && M::PROTOCOL == Protocol::Delta {
        Versions::Omitted
    } else {
        Versions::Sent
    }
}

/// The head of the response of a stream whose messages may be compressed so, with or without
/// versions.
fn response_head(encoding: Option<Encoding>, versions: Versions) -> Response<()> {
    let mut head = Response::new(());
    let headers = head.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );

    if let Some(encoding) = encoding {
        headers.insert(GRPC_ENCODING, encoding.header());
        headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
    }

    if versions == Versions::Omitted {
        let confirmed = HeaderValue::from_static(OMIT_VERSIONS_VALUE);
        headers.insert(OMIT_VERSIONS, confirmed);
    }

    head
}

/// Waits until the stream is admitted, then runs it.
async fn wait_and_run<M: Wire>(
    core: Arc<Core>,
    begin: Instant,
    requests: Requests<M>,
    outbox: Outbox,
    origin: Origin,
) {
    tokio::time::sleep_until(begin).await;
    stream::run(core, requests, outbox, origin).await;
}
