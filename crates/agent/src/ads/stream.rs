//! A stream of Envoy and the corresponding stream to the control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use parking_lot::Mutex;
use prost::Message;
use prost_types::Any;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::debug::OpenConnection;
use super::envoys::{EnvoyStream, ProcessId};
use super::wire::{Opaque, Outbox};
use super::{Core, Health, Protocol, own, peek, routes, versions};
use crate::mesh_metrics::{MeshMetrics, WORKLOAD};
use crate::metrics::AgentMetrics;
use crate::wasm::{ConvertError, Modules};

/// Maximum number of requests queued for the control plane. They are small; Envoy is only blocked
/// when the control plane has not read this many, so that the two cannot deadlock.
const REQUESTS: usize = 4096;
/// Capacity for extension configs that wait for their modules. The control plane waits for the ACK
/// of a response before it sends the next one of a type, so that there are hardly ever two.
const EXTENSIONS: usize = 64;

/// Minimum interval between requests for peers; changes meanwhile are sent together.
const PEERS_PAUSE: Duration = Duration::from_millis(500);

/// The client of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) protocol: Protocol,
    pub(super) process: ProcessId,
}

/// The shared state of both directions of a stream.
struct Stream {
    /// The shared state of all streams.
    core: Arc<Core>,
    protocol: Protocol,
    /// The process of the client.
    process: ProcessId,
    /// The connection to the control plane.
    channel: Channel,
    /// Requests to the control plane.
    requests: mpsc::Sender<Bytes>,
    /// Whether Envoy has subscribed to listeners, after which the agent may send its own requests.
    opened: watch::Sender<bool>,
    /// The last version of extension configs that Envoy acknowledged, for NACKs on its behalf.
    extension_version: Mutex<String>,
    /// Whether the agent subscribes to peers.
    asks_for_peers: AtomicBool,
    /// Whether Envoy itself subscribes to workloads; then the agent does not.
    has_workloads: AtomicBool,
    /// Cancelled when another stream replaces this one.
    replaced: CancellationToken,
}

/// A stream of Envoy, as others see it, until it is dropped.
struct Registered {
    /// The connection for debug requests.
    _connection: OpenConnection,
    /// What Envoy answers; `None` if streams are side by side.
    envoy: Option<EnvoyStream>,
}

/// The responses of the control plane.
struct UpstreamResponses {
    responses: Streaming<Bytes>,
    /// Whether resources come without versions.
    omits_versions: bool,
    /// Maximum size of a response in bytes.
    max_bytes: usize,
}

/// The side that failed, and its status.
enum Failure {
    Envoys(Status),
    ControlPlanes(Status),
}

/// Serves a stream until either side ends it.
pub(super) async fn run(
    core: Arc<Core>,
    client: Client,
    downstream: Streaming<Bytes>,
    outbox: Outbox,
) {
    let stop = core.stop.clone();
    let metrics = core.config.metrics.clone();
    let status = tokio::select! {
        // Polled first, so that Envoy's end is not counted as one of the control plane's.
        biased;
        () = outbox.closed() => return metrics.count_stream_end(Code::Cancelled),
        status = pass(core, client, downstream, &outbox) => status,
        () = stop.cancelled() => Status::unavailable("the agent is shutting down"),
    };
    outbox.end(status);
}

/// Forwards messages both ways; returns the final status.
async fn pass(
    core: Arc<Core>,
    Client { protocol, process }: Client,
    downstream: Streaming<Bytes>,
    outbox: &Outbox,
) -> Status {
    let upstream = core.config.upstream.clone();
    let channel = match upstream.connect().await {
        Ok(channel) => channel,
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            core.config.metrics.unreachable();
            tracing::warn!(error, "failed to connect to the control plane");
            return Status::unavailable(format!(
                "the agent cannot reach the control plane at {}",
                upstream.address()
            ));
        }
    };

    let (requests, receiver) = mpsc::channel(REQUESTS);
    let mut request = Request::new(ReceiverStream::new(receiver));
    if let Err(error) = upstream.sign(request.metadata_mut()).await {
        return Status::internal(error.to_string());
    }
    versions::omit(protocol, request.metadata_mut());

    let mut client = tonic::client::Grpc::new(channel.clone())
        .accept_compressed(CompressionEncoding::Zstd)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(core.config.max_response);
    if let Err(error) = client.ready().await {
        return Status::unavailable(error.to_string());
    }

    tracing::info!(
        server = upstream.address(),
        ?protocol,
        "connected to the control plane"
    );

    let stream = Stream {
        core,
        protocol,
        process,
        channel,
        requests,
        opened: watch::Sender::new(false),
        extension_version: Mutex::default(),
        asks_for_peers: AtomicBool::new(false),
        has_workloads: AtomicBool::new(false),
        replaced: CancellationToken::new(),
    };

    let (extensions, waiting) = mpsc::channel(EXTENSIONS);

    // The response headers may come only with the first message, so requests are sent before.
    let responses = async {
        let path = PathAndQuery::from_static(protocol.path());
        let answer = client.streaming(request, path, Opaque).await?;
        let upstream = UpstreamResponses {
            omits_versions: versions::are_omitted(answer.metadata()),
            max_bytes: stream.core.config.max_response,
            responses: answer.into_inner(),
        };
        stream.pass_responses(upstream, &extensions, outbox).await
    };

    let ended = tokio::select! {
        ended = stream.pass_requests(downstream) => ended,
        ended = responses => ended.map_err(Failure::ControlPlanes),
        ended = stream.report_health() => ended.map_err(Failure::ControlPlanes),
        ended = stream.request_peers() => ended.map_err(Failure::ControlPlanes),
        ended = stream.pass_extensions(waiting, outbox) => ended.map_err(Failure::ControlPlanes),
        () = stream.replaced.cancelled() => {
            Err(Failure::ControlPlanes(Status::cancelled("Envoy opened another stream")))
        }
    };

    stream.note_rejection(&ended);
    status_of(ended, &stream.core.config.metrics)
}

/// Counts and logs the end of a stream; returns the status for Envoy.
fn status_of(ended: Result<(), Failure>, metrics: &AgentMetrics) -> Status {
    match ended {
        Ok(()) => {
            metrics.ended(Code::Ok);
            tracing::info!("the control plane closed the stream");
            Status::ok("")
        }
        Err(Failure::Envoys(status)) => {
            metrics.count_stream_end(status.code());
            tracing::warn!(code = ?status.code(), reason = status.message(), "Envoy's stream failed");
            status
        }
        Err(Failure::ControlPlanes(status)) => {
            metrics.ended(status.code());
            tracing::warn!(code = ?status.code(), reason = status.message(), "the stream to the control plane failed");
            envoy_status(status)
        }
    }
}

/// The status for Envoy. A broken connection becomes `UNAVAILABLE`: Envoy would otherwise log a
/// protocol error at each restart of the control plane.
pub(super) fn envoy_status(status: Status) -> Status {
    let is_of_transport = std::error::Error::source(&status).is_some();
    if is_of_transport {
        Status::unavailable("the connection to the control plane ended")
    } else {
        status
    }
}

impl UpstreamResponses {
    /// The next response, with all versions.
    async fn message(&mut self) -> Result<Option<Bytes>, Status> {
        match self.responses.message().await? {
            Some(response) if self.omits_versions => {
                let completed = versions::completed(response, self.max_bytes).await?;
                Ok(Some(completed))
            }
            response => Ok(response),
        }
    }
}

impl Stream {
    /// Sends a request to the control plane.
    async fn send_request(&self, request: Bytes) -> Result<(), Status> {
        self.core.config.metrics.requested();
        let sent = self.requests.send(request).await;
        sent.map_err(|_| Status::unavailable("the control plane closed the stream for requests"))
    }

    /// Forwards Envoy's requests, and sends the agent's own subscriptions when Envoy subscribes to
    /// listeners.
    async fn pass_requests(&self, mut downstream: Streaming<Bytes>) -> Result<(), Failure> {
        let number = match self.protocol {
            Protocol::State => peek::TYPE,
            Protocol::Delta => peek::DELTA_REQUEST_TYPE,
        };
        let mut registered: Option<Registered> = None;

        while let Some(request) = downstream.message().await.map_err(Failure::Envoys)? {
            self.core.config.metrics.received(request.len());
            let unreadable = |_| {
                Failure::Envoys(Status::invalid_argument(
                    "failed to decode the request as protobuf",
                ))
            };
            let type_url = peek::string(&request, number).map_err(unreadable)?;

            let is_first = registered.is_none() && !own::is_debug(type_url);
            if is_first {
                registered = Some(self.register());
            }
            if let Some(Registered {
                envoy: Some(envoy), ..
            }) = &registered
            {
                envoy
                    .note(self.protocol, type_url, &request)
                    .map_err(unreadable)?;
            }

            let opens = type_url == own::LISTENER && !*self.opened.borrow();

            if type_url == own::EXTENSION {
                self.note_version(&request);
            } else if type_url == WORKLOAD {
                self.has_workloads.store(true, Ordering::Relaxed);
            }

            let request = match is_first {
                true => self.with_routes_held(request).map_err(unreadable)?,
                false => request,
            };
            self.send_request(request)
                .await
                .map_err(Failure::ControlPlanes)?;

            if opens {
                for type_url in self.core.config.own_types() {
                    let request = own::request(
                        self.protocol,
                        own::Ack {
                            type_url,
                            ..own::Ack::default()
                        },
                    );
                    self.send_request(request)
                        .await
                        .map_err(Failure::ControlPlanes)?;
                }
                self.opened.send_replace(true);
            }
        }

        // Envoy has closed its side, but still receives responses until its connection ends.
        std::future::pending().await
    }

    /// Marks the stream as Envoy's: an earlier one of the same process ends, unless concurrent ones
    /// are allowed, and debug requests use its connection until the result is dropped.
    fn register(&self) -> Registered {
        let config = &self.core.config;
        let is_alone = !config.side_by_side;
        Registered {
            envoy: is_alone.then(|| config.envoys.add(self.process, self.replaced.clone())),
            _connection: config.connections.add(self.channel.clone()),
        }
    }

    /// The first request of a stream, with what Envoy has of routes: an Envoy's only stream, in the
    /// protocol that has virtual hosts.
    fn with_routes_held(&self, request: Bytes) -> Result<Bytes, prost::DecodeError> {
        let config = &self.core.config;
        if self.protocol != Protocol::Delta || config.side_by_side {
            return Ok(request);
        }
        let has_resources = peek::bytes(&request, peek::DELTA_REQUEST_VERSIONS)?.is_some();
        let held = config.envoys.routes_held(self.process, has_resources);
        Ok(own::with_routes_held(&request, held))
    }

    /// Records what Envoy has of routes with a response. One that cannot be decoded is Envoy's to
    /// reject.
    fn note_routes(&self, response: &[u8]) {
        if self.protocol == Protocol::Delta
            && let Ok(Some(held)) = routes::held_with(response)
        {
            self.core.config.envoys.note_routes(self.process, held);
        }
    }

    /// Records the version of extension configs that Envoy acknowledged.
    fn note_version(&self, request: &Bytes) {
        if self.protocol == Protocol::State
            && let Ok(request) = DiscoveryRequest::decode(request.clone())
            && !request.version_info.is_empty()
        {
            *self.extension_version.lock() = request.version_info;
        }
    }

    /// Forwards responses to Envoy, or handles those of the agent's own subscriptions.
    async fn pass_responses(
        &self,
        mut upstream: UpstreamResponses,
        extensions: &mpsc::Sender<Bytes>,
        outbox: &Outbox,
    ) -> Result<(), Status> {
        let config = &self.core.config;

        // If one response with listeners waits for modules, later ones are queued behind it.
        let mut listeners_wait = false;

        while let Some(response) = upstream.message().await? {
            config.metrics.answered();
            let unreadable =
                |_| Status::internal("failed to decode the control plane's response as protobuf");
            let type_url = peek::string(&response, peek::TYPE).map_err(unreadable)?;
            if type_url == own::ROUTE {
                self.note_routes(&response);
            }
            listeners_wait |= type_url == own::LISTENER && Modules::may_be_named(&response);
            let waits = config.modules.is_some()
                && (type_url == own::EXTENSION || (type_url == own::LISTENER && listeners_wait));

            if let Some(type_url) = config.own_types().find(|own| *own == type_url) {
                let answer = config.take(self.protocol, type_url, response);
                self.send_request(answer).await?;
            } else if type_url == WORKLOAD
                && let Some(metrics) = self.peer_metrics()
            {
                let (nonce, error) = metrics.take_peers(response);
                if let Some(error) = &error {
                    tracing::warn!(error, type_url = WORKLOAD, "rejected a response");
                }
                let ack = own::Ack {
                    type_url: WORKLOAD,
                    nonce,
                    error,
                    ..own::Ack::default()
                };
                self.send_request(own::request(self.protocol, ack)).await?;
            } else if waits {
                let sent = extensions.send(response).await;
                sent.map_err(|_| Status::internal("the task for extension configs panicked"))?;
            } else {
                outbox.send(response).await?;
            }
        }

        Ok(())
    }

    /// Reports the workload's health to the control plane after Envoy has subscribed to listeners,
    /// and at every change.
    async fn report_health(&self) -> Result<(), Status> {
        let Some(mut health) = self.core.config.health.clone() else {
            return std::future::pending().await;
        };
        // `self` owns the sender, so this does not fail.
        let _ = self.opened.subscribe().wait_for(|opened| *opened).await;
        health.mark_changed();
        while health.changed().await.is_ok() {
            let known: Option<Health> = health.borrow_and_update().clone();
            if let Some(known) = known {
                self.send_request(own::health(self.protocol, &known))
                    .await?;
            }
        }
        std::future::pending().await
    }

    /// The metrics for which the agent subscribes to peers on this stream, if any: Envoy must not
    /// subscribe to workloads itself, and only the delta protocol can add and remove names.
    fn peer_metrics(&self) -> Option<&MeshMetrics> {
        let is_possible =
            self.protocol == Protocol::Delta && !self.has_workloads.load(Ordering::Relaxed);
        self.core
            .config
            .mesh_metrics
            .as_ref()
            .filter(|_| is_possible)
    }

    /// Subscribes to the peers that access logs identify by address only.
    async fn request_peers(&self) -> Result<(), Status> {
        // `self` owns the sender, so this does not fail.
        let _ = self.opened.subscribe().wait_for(|opened| *opened).await;
        if let Some(metrics) = self.peer_metrics() {
            let mut asking = metrics.subscribe_to_peers();
            loop {
                let changes = asking.next().await;
                if self.peer_metrics().is_none() {
                    break;
                }
                self.asks_for_peers.store(true, Ordering::Relaxed);
                self.send_request(own::peers(changes)).await?;
                tokio::time::sleep(PEERS_PAUSE).await;
            }
        }
        std::future::pending().await
    }

    /// Pauses subscriptions to peers if the control plane has ended the stream because of them.
    fn note_rejection(&self, ended: &Result<(), Failure>) {
        if let Err(Failure::ControlPlanes(status)) = ended
            && status.code() == Code::Unimplemented
            && self.asks_for_peers.load(Ordering::Relaxed)
            && let Some(metrics) = &self.core.config.mesh_metrics
        {
            metrics.on_rejected();
        }
    }

    /// Fetches the modules of extension configs and forwards the configs, one response after the
    /// other.
    async fn pass_extensions(
        &self,
        mut waiting: mpsc::Receiver<Bytes>,
        outbox: &Outbox,
    ) -> Result<(), Status> {
        let Some(modules) = self.core.config.modules.clone() else {
            return std::future::pending().await;
        };

        while let Some(response) = waiting.recv().await {
            match self.localize(&modules, response).await {
                Ok(response) => outbox.send(response).await?,
                Err(Rejection { nonce, reason }) => {
                    tracing::warn!(error = reason, "rejected extension configs");
                    let version = self.extension_version.lock().clone();
                    let ack = own::Ack {
                        type_url: own::EXTENSION,
                        version,
                        nonce,
                        error: Some(reason),
                    };
                    self.send_request(own::request(self.protocol, ack)).await?;
                }
            }
        }

        std::future::pending().await
    }

    /// The response with its modules replaced by files, unchanged if it has none.
    ///
    /// # Errors
    /// If the response or one of its configs cannot be decoded.
    async fn localize(&self, modules: &Modules, response: Bytes) -> Result<Bytes, Rejection> {
        let unreadable = |error: prost::DecodeError| Rejection {
            nonce: String::new(),
            reason: error.to_string(),
        };
        let are_listeners = peek::string(&response, peek::TYPE) == Ok(own::LISTENER);

        match self.protocol {
            Protocol::State => {
                let mut decoded =
                    DiscoveryResponse::decode(response.clone()).map_err(unreadable)?;
                let resources = decoded.resources.iter_mut();
                let changed = localize(modules, resources, are_listeners).await;
                localized(response, &decoded, &decoded.nonce, changed)
            }
            Protocol::Delta => {
                let mut decoded =
                    DeltaDiscoveryResponse::decode(response.clone()).map_err(unreadable)?;
                let resources = decoded
                    .resources
                    .iter_mut()
                    .filter_map(|resource| resource.resource.as_mut());
                let changed = localize(modules, resources, are_listeners).await;
                localized(response, &decoded, &decoded.nonce, changed)
            }
        }
    }
}

/// Why a response with extension configs is not forwarded, for its NACK.
struct Rejection {
    nonce: String,
    reason: String,
}

/// Replaces the modules of extension configs or listeners by files. Returns whether there were any.
async fn localize(
    modules: &Modules,
    resources: impl Iterator<Item = &mut Any> + Send,
    are_listeners: bool,
) -> Result<bool, ConvertError> {
    if are_listeners {
        return Ok(modules.localize_listeners(resources).await);
    }
    modules.localize(resources).await
}

/// The response to forward, encoded again only if it was changed.
fn localized(
    response: Bytes,
    decoded: &impl Message,
    nonce: &str,
    changed: Result<bool, ConvertError>,
) -> Result<Bytes, Rejection> {
    match changed {
        Ok(false) => Ok(response),
        Ok(true) => Ok(decoded.encode_to_vec().into()),
        Err(error) => Err(Rejection {
            nonce: nonce.to_owned(),
            reason: error.to_string(),
        }),
    }
}
