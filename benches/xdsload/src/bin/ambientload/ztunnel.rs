//! A ztunnel: it asks for all addresses and policies, acknowledges at once, and reports what it is sent by number and size.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::wire::{Passed, Response};

/// Workloads and services.
const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
/// Policies.
const AUTHORIZATION: &str = "type.googleapis.com/istio.security.Authorization";
/// The method.
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// How long the next response may take.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Requests that wait to be sent.
const REQUESTS: usize = 8;

/// Version by name.
pub(crate) type Versions = HashMap<String, String>;

/// A response with addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// When it was read.
    pub(crate) at: Instant,
    /// Addresses that it holds or takes away.
    pub(crate) addresses: usize,
    /// Bytes of the message.
    pub(crate) bytes: usize,
}

/// The part of a request that says what is held already.
pub(crate) fn held(versions: Versions) -> Bytes {
    let initial_resource_versions = versions.into_iter().collect();
    DeltaDiscoveryRequest { initial_resource_versions, ..DeltaDiscoveryRequest::default() }.encode_to_vec().into()
}

/// One that is connected.
#[derive(Debug)]
pub(crate) struct Ztunnel {
    /// Every response with addresses.
    told: mpsc::UnboundedReceiver<Result<Told>>,
    task: JoinHandle<()>,
    /// Asks the task for the versions that it holds.
    ask: mpsc::Sender<oneshot::Sender<Versions>>,
}

impl Drop for Ztunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ztunnel {
    /// Connects one, which was sent `held` on an earlier stream (see [`held`]). It remembers versions where `remembers` says so.
    pub(crate) fn connect(server: SocketAddr, number: usize, held: Bytes, remembers: bool) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let (ask, mut asked) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let mut versions = remembers.then(HashMap::new);
            let outcome = follow(server, number, held, &sender, &mut versions, &mut asked).await;
            if let Err(error) = outcome {
                // Nobody listens any more where the measurement is over.
                let _ = sender.send(Err(error));
            }
        });
        Self { told, task, ask }
    }

    /// The next response with addresses.
    ///
    /// # Errors
    /// When the stream fails, or says nothing for five minutes.
    pub(crate) async fn told(&mut self) -> Result<Told> {
        let told = timeout(TIMEOUT, self.told.recv()).await;
        told.with_context(|| format!("no response for {TIMEOUT:?}"))?.context("the stream ended")?
    }

    /// Waits until it has been sent so many addresses; gives when the last of them came, and the bytes of all responses until then.
    ///
    /// # Errors
    /// As [`Ztunnel::told`].
    pub(crate) async fn sent(&mut self, addresses: usize) -> Result<(Instant, usize)> {
        let (mut seen, mut bytes) = (0, 0);
        loop {
            let told = self.told().await?;
            seen += told.addresses;
            bytes += told.bytes;
            if seen >= addresses {
                return Ok((told.at, bytes));
            }
        }
    }

    /// What it holds, where it remembers.
    ///
    /// # Errors
    /// When the stream has failed.
    pub(crate) async fn versions(&self) -> Result<Versions> {
        let (reply, versions) = oneshot::channel();
        self.ask.send(reply).await.ok().context("the stream ended")?;
        versions.await.context("the stream ended")
    }
}

/// Follows one stream to its end.
async fn follow(
    server: SocketAddr,
    number: usize,
    held: Bytes,
    told: &mpsc::UnboundedSender<Result<Told>>,
    versions: &mut Option<Versions>,
    asked: &mut mpsc::Receiver<oneshot::Sender<Versions>>,
) -> Result<()> {
    // As ztunnel's.
    let endpoint =
        Endpoint::from_shared(format!("http://{server}"))?.initial_stream_window_size(4 << 20).tcp_nodelay(true);
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await?).max_decoding_message_size(usize::MAX);
    let (requests, outgoing) = mpsc::channel(REQUESTS);
    for (type_url, node, held) in [(ADDRESS, Some(node(number)), held), (AUTHORIZATION, None, Bytes::new())] {
        let request = DeltaDiscoveryRequest {
            node,
            type_url: type_url.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        // Fields of one message may follow each other in any order.
        requests.send([request.encode_to_vec(), held.to_vec()].concat().into()).await?;
    }
    let mut responses = open(&mut grpc, outgoing).await?;
    loop {
        let (bytes, response) = tokio::select! {
            response = responses.message() => response?.context("the server ended the stream")?,
            Some(reply) = asked.recv() => {
                // The measurement may have gone on without the answer.
                let _ = reply.send(versions.clone().unwrap_or_default());
                continue;
            }
        };
        let ack = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(Bytes::from(ack.encode_to_vec())).await?;
        if response.type_url != ADDRESS {
            continue;
        }
        let addresses = response.resources.len() + response.removed.len();
        let now = Told { at: Instant::now(), addresses, bytes };
        if told.send(Ok(now)).is_err() {
            return Ok(());
        }
        if let Some(versions) = versions {
            for name in response.removed {
                versions.remove(&name);
            }
            versions.extend(response.resources.into_iter().map(|resource| (resource.name, resource.version)));
        }
    }
}

/// Opens the stream.
async fn open(
    grpc: &mut tonic::client::Grpc<Channel>,
    requests: mpsc::Receiver<Bytes>,
) -> Result<tonic::Streaming<(usize, Response)>> {
    if let Err(error) = grpc.ready().await {
        bail!("the connection is not ready: {error}");
    }
    let request = tonic::Request::new(ReceiverStream::new(requests));
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(DELTA);
    Ok(grpc.streaming(request, path, Passed).await?.into_inner())
}

/// Who asks: the ztunnel of a node.
fn node(number: usize) -> Node {
    let text = |text: String| Value { kind: Some(Kind::StringValue(text)) };
    let address = format!("10.1.{}.{}", number >> 8, number & 255);
    let metadata =
        [("NODE_NAME".to_owned(), text(format!("node-{number}"))), ("INSTANCE_IPS".to_owned(), text(address.clone()))];
    Node {
        id: format!("ztunnel~{address}~ztunnel-{number}.istio-system~istio-system.svc.cluster.local"),
        metadata: Some(Struct { fields: metadata.into_iter().collect() }),
        ..Node::default()
    }
}
