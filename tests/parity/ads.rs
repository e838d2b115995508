//! An ADS client: subscribes, acknowledges, collects resources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::{Locality, Node};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_proto::json::Codec;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::case::CaseProxy;

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// One delta stream.
pub(crate) struct Client {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Client {
    pub(crate) async fn connect(
        server: SocketAddr,
        proxy: &CaseProxy,
        codec: &Codec,
    ) -> Result<Self, String> {
        let mut service = AggregatedDiscoveryServiceClient::connect(format!("http://{server}"))
            .await
            .map_err(|error| error.to_string())?
            .max_decoding_message_size(64 << 20);
        let (requests, outgoing) = mpsc::channel(16);
        let responses = service
            .delta_aggregated_resources(ReceiverStream::new(outgoing))
            .await
            .map_err(|status| status.to_string())?
            .into_inner();

        let node = node(proxy, codec)?;
        let hello = DeltaDiscoveryRequest {
            node: Some(node),
            ..DeltaDiscoveryRequest::default()
        };
        let client = Self {
            requests,
            responses,
        };
        client
            .send(DeltaDiscoveryRequest {
                type_url: CLUSTER.to_owned(),
                ..hello
            })
            .await?;

        Ok(client)
    }

    /// Subscribes to names, or to everything if there are none; acknowledges the response and
    /// returns its resources as JSON.
    pub(crate) async fn ask(
        &mut self,
        type_url: &str,
        names: &BTreeSet<String>,
        codec: &Codec,
    ) -> Result<Vec<Value>, String> {
        // The first request, with the node, has already subscribed to clusters.
        if type_url != CLUSTER {
            let subscribe = names.iter().cloned().collect();
            let request = DeltaDiscoveryRequest {
                type_url: type_url.to_owned(),
                resource_names_subscribe: subscribe,
                ..DeltaDiscoveryRequest::default()
            };
            self.send(request).await?;
        }

        let mut resources = BTreeMap::new();

        loop {
            let response = tokio::time::timeout(TIMEOUT, self.responses.message())
                .await
                .map_err(|_| format!("no answer for {type_url}"))?
                .map_err(|status| status.to_string())?
                .ok_or("the stream ended")?;

            let acknowledgement = DeltaDiscoveryRequest {
                type_url: response.type_url.clone(),
                response_nonce: response.nonce.clone(),
                ..DeltaDiscoveryRequest::default()
            };
            self.send(acknowledgement).await?;
            if response.type_url != type_url {
                continue;
            }

            for resource in response.resources {
                let any = resource.resource.ok_or("a resource without content")?;
                let json = codec
                    .any_to_json(&any.type_url, &any.value)
                    .map_err(|error| error.to_string())?;
                resources.insert(resource.name, json);
            }

            return Ok(resources.into_values().collect());
        }
    }

    async fn send(&self, request: DeltaDiscoveryRequest) -> Result<(), String> {
        self.requests
            .send(request)
            .await
            .map_err(|_| "the stream ended".to_owned())
    }
}

/// The type of a stream's first request.
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

pub(crate) fn node(proxy: &CaseProxy, codec: &Codec) -> Result<Node, String> {
    let metadata = codec
        .from_json(
            "type.googleapis.com/google.protobuf.Struct",
            &proxy.metadata(),
        )
        .map_err(|error| error.to_string())?;

    let metadata: prost_types::Struct =
        prost::Message::decode(metadata.as_slice()).map_err(|error| error.to_string())?;
    let mut parts = proxy.locality().splitn(3, '/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    let locality = Locality {
        region: next(),
        zone: next(),
        sub_zone: next(),
    };

    Ok(Node {
        id: proxy.node_id(),
        metadata: Some(metadata),
        locality: Some(locality),
        ..Node::default()
    })
}
