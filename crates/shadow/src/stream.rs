//! A delta xDS stream to istiod in place of a proxy. It acknowledges every response, and ends when
//! each type has been answered once.

use std::collections::BTreeMap;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_proto::json::{Codec, JsonError};
use navarch_push::resource::ResourceType;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::subscriptions::{ResourcesByType, names, plural};

/// The maximum size of a response: all endpoints of a large mesh.
const MAX_RESPONSE: usize = 512 << 20;
/// The number of requests that wait to be sent: a subscription and acknowledgements.
const REQUESTS: usize = 16;

/// Why a stream has no complete answer.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// istiod has ended the stream with an error.
    #[error("istiod ended the stream: {} ({:?})", .0.message(), .0.code())]
    Rejected(Box<Status>),
    /// istiod has ended the stream without an error.
    #[error("istiod ended the stream")]
    Ended,
    /// istiod has not answered all subscriptions in time.
    #[error("istiod did not answer for all types up to {types} within {timeout:?}")]
    Slow {
        /// The type that it has not answered, such as `clusters`.
        types: &'static str,
        /// The time for all of them.
        timeout: Duration,
    },
    /// A resource is empty.
    #[error("istiod sent the resource {0:?} without content")]
    NoContent(String),
    /// A resource has a type that is not known.
    #[error("istiod sent a resource that cannot be read")]
    Resource(#[from] JsonError),
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        Self::Rejected(Box::new(status))
    }
}

/// How a stream asks.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The header `authorization`, if the caller has a token.
    pub authorization: Option<AsciiMetadataValue>,
    /// The maximum time until all types are answered.
    pub timeout: Duration,
}

/// Subscribes to `types`, in this order, as the proxy of `node`, and returns what istiod sends.
///
/// # Errors
/// If istiod rejects the node, ends the stream or does not answer.
pub async fn ask(
    channel: Channel,
    config: &StreamConfig,
    node: Node,
    types: &[ResourceType],
    codec: &Codec,
) -> Result<ResourcesByType, StreamError> {
    let mut answers = ResourcesByType::new();
    let mut stream: Option<Stream> = None;
    let mut node = Some(node);
    // For all types: answers of others, and acknowledgements that are not read, do not extend it.
    let start = Instant::now();

    for resource_type in types {
        let Some(names) = names(*resource_type, &answers) else {
            continue;
        };
        let request = DeltaDiscoveryRequest {
            // Only the first request has the node.
            node: node.take(),
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: names.into_iter().collect(),
            ..DeltaDiscoveryRequest::default()
        };

        let exchange = async {
            let open = match stream.take() {
                Some(open) => {
                    open.send(request).await?;
                    open
                }
                None => Stream::open(channel.clone(), config, request).await?,
            };
            stream.insert(open).answer(*resource_type, codec).await
        };
        let left = config.timeout.saturating_sub(start.elapsed());
        let answered = timeout(left, exchange).await;
        let resources = answered.map_err(|_| StreamError::Slow {
            types: plural(*resource_type),
            timeout: config.timeout,
        })??;
        answers.insert(*resource_type, resources);
    }

    Ok(answers)
}

/// The JSON of a resource with its name. Types whose messages do not contain a name are wrapped.
pub(crate) fn to_json(resource_type: ResourceType, name: &str, content: Value) -> Value {
    let is_wrapped = matches!(
        resource_type,
        ResourceType::NameTable | ResourceType::Address | ResourceType::Authorization
    );
    if !is_wrapped {
        return content;
    }
    let name = if name.is_empty() {
        plural(resource_type)
    } else {
        name
    };
    json!({ "name": name, "resource": content })
}

/// One open stream.
struct Stream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Stream {
    /// Opens a stream with its first request: istiod sends nothing, not even headers, before it.
    async fn open(
        channel: Channel,
        config: &StreamConfig,
        first: DeltaDiscoveryRequest,
    ) -> Result<Self, StreamError> {
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        requests.send(first).await.map_err(|_| StreamError::Ended)?;

        let mut request = Request::new(ReceiverStream::new(outgoing));
        if let Some(value) = &config.authorization {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }

        let mut service =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE);
        let opened = service.delta_aggregated_resources(request).await?;
        Ok(Self {
            requests,
            responses: opened.into_inner(),
        })
    }

    /// Waits for the first response of a type, and acknowledges it and all others.
    async fn answer(
        &mut self,
        resource_type: ResourceType,
        codec: &Codec,
    ) -> Result<Vec<Value>, StreamError> {
        loop {
            let message = self.responses.message().await?;
            let response = message.ok_or(StreamError::Ended)?;

            self.send(DeltaDiscoveryRequest {
                type_url: response.type_url.clone(),
                response_nonce: response.nonce.clone(),
                ..DeltaDiscoveryRequest::default()
            })
            .await?;
            if response.type_url == resource_type.type_url() {
                return resources(resource_type, response, codec);
            }
        }
    }

    async fn send(&self, request: DeltaDiscoveryRequest) -> Result<(), StreamError> {
        let sent = self.requests.send(request).await;
        sent.map_err(|_| StreamError::Ended)
    }
}

/// The resources in a response.
fn resources(
    resource_type: ResourceType,
    response: DeltaDiscoveryResponse,
    codec: &Codec,
) -> Result<Vec<Value>, StreamError> {
    let mut resources = BTreeMap::new();
    for resource in response.resources {
        let name = resource.name;
        let Some(any) = resource.resource else {
            return Err(StreamError::NoContent(name));
        };
        let content = codec.any_to_json(&any.type_url, &any.value)?;
        resources.insert(name.clone(), to_json(resource_type, &name, content));
    }
    Ok(resources.into_values().collect())
}

#[cfg(test)]
mod tests;
