//! Requests to the control plane's debug API over xDS (`istio.io/debug`), on behalf of tools.
//!
//! A request uses the connection of Envoy's stream, so that the replica answers that configures
//! this proxy: others do not know its state. It has a stream of its own, because the control plane
//! ends the stream of a request that it rejects.

use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use parking_lot::Mutex;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::{own, stream};
use crate::upstream::Upstream;

/// Maximum size of a response. The sync status of 10,000 proxies has about 10 MiB.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The connections to the control plane that have a stream of Envoy, the newest last. Clones share
/// their state.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(Arc<Mutex<Connections>>);

#[derive(Debug, Default)]
struct Connections {
    /// The number of the next connection.
    next: u64,
    open: Vec<(u64, Channel)>,
}

/// A connection in [`OpenConnections`], until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    number: u64,
    all: OpenConnections,
}

/// Sends debug requests.
#[derive(Clone, Debug)]
pub struct DebugClient {
    upstream: Upstream,
    connections: OpenConnections,
}

impl OpenConnections {
    pub(crate) fn add(&self, channel: Channel) -> OpenConnection {
        let mut connections = self.0.lock();
        let number = connections.next;
        connections.next += 1;
        connections.open.push((number, channel));
        OpenConnection {
            number,
            all: self.clone(),
        }
    }

    fn newest(&self) -> Option<Channel> {
        let connections = self.0.lock();
        connections.open.last().map(|(_, channel)| channel.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut connections = self.all.0.lock();
        connections
            .open
            .retain(|(number, _)| *number != self.number);
    }
}

impl DebugClient {
    /// Uses these connections with the credentials of `upstream`.
    #[must_use]
    pub fn new(upstream: Upstream, connections: OpenConnections) -> Self {
        Self {
            upstream,
            connections,
        }
    }

    /// Sends a request as the client that `node` describes, and waits for the response, however
    /// long that takes.
    ///
    /// # Errors
    /// `InvalidArgument` if the type is not of the debug API; `Unavailable` while Envoy has no
    /// stream; the control plane's status if it rejects the request.
    pub async fn send(
        &self,
        node: Node,
        type_url: String,
        resource_names: Vec<String>,
    ) -> Result<DiscoveryResponse, Status> {
        if !own::is_debug(&type_url) {
            return Err(Status::invalid_argument(format!(
                "only {0} and types below {0}/ are forwarded to the control plane",
                own::DEBUG
            )));
        }
        let channel = self.connections.newest().ok_or_else(|| {
            Status::unavailable("Envoy is not connected to the control plane at the moment")
        })?;

        let request = DiscoveryRequest {
            node: Some(node),
            type_url: type_url.clone(),
            resource_names,
            ..DiscoveryRequest::default()
        };
        // Without more requests the stream stays open: its end would cancel the response.
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        let mut requests = Request::new(requests);
        let signed = self.upstream.sign(requests.metadata_mut()).await;
        signed.map_err(|error| Status::internal(error.to_string()))?;

        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let responses = client.stream_aggregated_resources(requests).await;
        let mut responses = responses.map_err(stream::envoy_status)?.into_inner();
        while let Some(response) = responses.message().await.map_err(stream::envoy_status)? {
            if response.type_url == type_url {
                return Ok(response);
            }
        }

        Err(Status::unavailable(
            "the control plane ended the stream without a response",
        ))
    }
}
