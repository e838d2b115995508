//! A simulated ztunnel: it subscribes to all addresses and policies, acknowledges at once, and
//! reports number and size of the resources that it receives.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::wire::{BytesCodec, Response};
use crate::metadata;

/// The type URL of workloads and services.
pub(crate) const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
/// The type URL of AuthorizationPolicies in ztunnel's form.
pub(crate) const AUTHORIZATION: &str = "type.googleapis.com/istio.security.Authorization";
/// The path of the delta ADS method.
pub(crate) const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Timeout of the next response.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Capacity of the channel of requests.
const REQUESTS: usize = 8;

/// Versions of resources by their names, as `initial_resource_versions` has them.
pub(crate) type Versions = HashMap<String, String>;

/// A response of the type `Address`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressResponse {
    /// When it arrived.
    pub(crate) at: Instant,
    /// The number of its resources, added and removed.
    pub(crate) addresses: usize,
    /// Size of the message.
    pub(crate) bytes: usize,
}

/// The encoded `initial_resource_versions` of a request, in random order, as a ztunnel sends it
/// from its hash table.
pub(crate) fn held(versions: Versions) -> Bytes {
    let mut bytes = Vec::new();
    for version in versions {
        let initial_resource_versions = [version].into();
        let one = DeltaDiscoveryRequest {
            initial_resource_versions,
            ..DeltaDiscoveryRequest::default()
        };
        // In protobuf each entry of a map is a field.
        bytes.extend(one.encode_to_vec());
    }
    bytes.into()
}

/// A simulated ztunnel with its stream.
#[derive(Debug)]
pub(crate) struct Ztunnel {
    responses: mpsc::UnboundedReceiver<Result<AddressResponse>>,
    task: JoinHandle<()>,
    /// The versions of the received resources; empty unless it stores them.
    versions: Arc<Mutex<Versions>>,
}

impl Drop for Ztunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ztunnel {
    /// Connects one that already has the resources in `held` (see [`held`]). With `remembers` it
    /// stores the versions of received resources.
    pub(crate) fn connect(server: SocketAddr, number: usize, held: Bytes, remembers: bool) -> Self {
        let (sender, responses) = mpsc::unbounded_channel();
        let versions = Arc::new(Mutex::new(Versions::new()));
        let remembered = remembers.then(|| versions.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = follow(server, number, held, &sender, remembered).await {
                // Sending fails only after the measurement, when the receiver is dropped.
                let _ = sender.send(Err(error));
            }
        });
        Self {
            responses,
            task,
            versions,
        }
    }

    /// The next response of the type `Address`.
    ///
    /// # Errors
    /// If the stream fails, or no response arrives for five minutes.
    async fn response(&mut self) -> Result<AddressResponse> {
        let response = timeout(TIMEOUT, self.responses.recv()).await;
        response
            .with_context(|| format!("no response for {TIMEOUT:?}"))?
            .context("the stream ended")?
    }

    /// Waits until it has received this number of addresses. Returns when the last of them arrived,
    /// and the size of all responses until then.
    ///
    /// # Errors
    /// If the stream fails, or no response arrives for five minutes.
    pub(crate) async fn sent(&mut self, addresses: usize) -> Result<(Instant, usize)> {
        let mut seen = 0;
        let mut bytes = 0;
        loop {
            let response = self.response().await?;
            seen += response.addresses;
            bytes += response.bytes;
            if seen >= addresses {
                return Ok((response.at, bytes));
            }
        }
    }

    /// The versions of the received resources, if it stores them.
    pub(crate) fn versions(&self) -> Versions {
        self.versions.lock().clone()
    }
}

/// Runs one stream to its end.
async fn follow(
    server: SocketAddr,
    number: usize,
    held: Bytes,
    sender: &mpsc::UnboundedSender<Result<AddressResponse>>,
    remembered: Option<Arc<Mutex<Versions>>>,
) -> Result<()> {
    // The same HTTP/2 settings as ztunnel's.
    let endpoint = Endpoint::from_shared(format!("http://{server}"))?
        .initial_stream_window_size(4 << 20)
        .tcp_nodelay(true);
    let mut grpc =
        tonic::client::Grpc::new(endpoint.connect().await?).max_decoding_message_size(usize::MAX);
    let (requests, outgoing) = mpsc::channel(REQUESTS);

    for (type_url, node, held) in [
        (ADDRESS, Some(node(number)), held),
        (AUTHORIZATION, None, Bytes::new()),
    ] {
        let request = DeltaDiscoveryRequest {
            node,
            type_url: type_url.to_owned(),
            resource_names_subscribe: vec!["*".to_owned()],
            ..DeltaDiscoveryRequest::default()
        };
        // The two parts are concatenated: the fields of a message may be in any order.
        requests
            .send([request.encode_to_vec(), held.to_vec()].concat().into())
            .await?;
    }

    let mut responses = open(&mut grpc, outgoing).await?;

    loop {
        let (bytes, response) = responses
            .message()
            .await?
            .context("the server ended the stream")?;
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
        let read = AddressResponse {
            at: Instant::now(),
            addresses,
            bytes,
        };

        if let Some(versions) = &remembered {
            let mut versions = versions.lock();
            for name in response.removed {
                versions.remove(&name);
            }
            versions.extend(
                response
                    .resources
                    .into_iter()
                    .map(|resource| (resource.name, resource.version)),
            );
        }

        if sender.send(Ok(read)).is_err() {
            return Ok(());
        }
    }
}

async fn open(
    grpc: &mut tonic::client::Grpc<Channel>,
    requests: mpsc::Receiver<Bytes>,
) -> Result<tonic::Streaming<(usize, Response)>> {
    if let Err(error) = grpc.ready().await {
        bail!("the connection failed: {error}");
    }
    let request = tonic::Request::new(ReceiverStream::new(requests));
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(DELTA);
    Ok(grpc
        .streaming(request, path, BytesCodec)
        .await?
        .into_inner())
}

/// The node of a ztunnel on a Kubernetes node, with its own address.
pub(crate) fn node(number: usize) -> Node {
    let address = format!("10.1.{}.{}", number >> 8, number & 255);
    let metadata = [
        ("NODE_NAME", format!("node-{number}").into()),
        ("INSTANCE_IPS", address.clone().into()),
    ];
    Node {
        id: format!(
            "ztunnel~{address}~ztunnel-{number}.istio-system~istio-system.svc.cluster.local"
        ),
        metadata: Some(metadata::of(metadata)),
        ..Node::default()
    }
}
