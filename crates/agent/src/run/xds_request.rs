//! A single request to the control plane over xDS, on a connection of its own: for what the agent
//! needs for the bootstrap, which cannot come over the streams of Envoy.

use std::time::Duration;

use navarch_proto::any::type_url;
use navarch_proto::envoy::config::core::v3::{Locality, Node};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost::Name;
use prost_types::value::Kind;
use prost_types::{Any, ListValue, Struct};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::{Request, Status};

use crate::upstream::{Upstream, UpstreamConfig, UpstreamError};

/// Timeout of one request. A control plane that does not know the type may not respond at all.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of a response. A bootstrap has about 20 KiB.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum XdsRequestError {
    /// Connecting failed, or there are no credentials.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The control plane rejected the request.
    #[error("{}", .0.message())]
    Rejected(Status),
    /// No response in time.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    /// The response has no resource, or several.
    #[error("the response has {0} resources in place of one")]
    Count(usize),
    /// The response has another type.
    #[error("the response has the type {0:?}")]
    Type(String),
}

/// Requests for one proxy.
#[derive(Debug)]
pub(super) struct XdsRequest {
    upstream: Upstream,
    node: Node,
}

impl XdsRequest {
    pub(super) fn new(control_plane: UpstreamConfig, node: Node) -> Self {
        Self {
            upstream: Upstream::new(control_plane),
            node,
        }
    }

    /// The node that requests are for.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Requests the resources of a type, and waits for the first response.
    pub(super) async fn send<M: Name>(
        &self,
        limit: Duration,
    ) -> Result<DiscoveryResponse, XdsRequestError> {
        let sent = timeout(limit, self.request(type_url::<M>())).await;
        sent.map_err(|_| XdsRequestError::Timeout(limit))?
    }

    async fn request(&self, type_url: String) -> Result<DiscoveryResponse, XdsRequestError> {
        let channel = self.upstream.connect().await?;
        let request = DiscoveryRequest {
            node: Some(self.node.clone()),
            type_url,
            ..DiscoveryRequest::default()
        };
        // Without more requests the stream stays open: its end would cancel the response.
        let mut requests = Request::new(tokio_stream::once(request).chain(tokio_stream::pending()));
        self.upstream.sign(requests.metadata_mut()).await?;

        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(MAX_RESPONSE_BYTES);
        let responses = client.stream_aggregated_resources(requests).await;
        let mut responses = responses.map_err(XdsRequestError::Rejected)?.into_inner();
        let response = responses.message().await;
        let response = response.map_err(XdsRequestError::Rejected)?;
        response.ok_or(XdsRequestError::Count(0))
    }
}

/// The resource of a response, if it has one.
///
/// # Errors
/// If it has several, or another type.
pub(super) fn resource<M: Name>(
    response: &DiscoveryResponse,
) -> Result<Option<&Any>, XdsRequestError> {
    let resource = match response.resources.as_slice() {
        [] => return Ok(None),
        [resource] => resource,
        several => return Err(XdsRequestError::Count(several.len())),
    };

    let wanted = type_url::<M>();
    for found in [&response.type_url, &resource.type_url] {
        if *found != wanted {
            return Err(XdsRequestError::Type(found.clone()));
        }
    }
    Ok(Some(resource))
}

/// The node message of its JSON in the bootstrap.
pub(super) fn node(json: &Value) -> Node {
    let text = |pointer: &str| {
        let text = json.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let metadata = json.get("metadata").and_then(Value::as_object);
    Node {
        id: text("/id"),
        cluster: text("/cluster"),
        metadata: metadata.map(to_struct),
        locality: Some(Locality {
            region: text("/locality/region"),
            zone: text("/locality/zone"),
            sub_zone: text("/locality/sub_zone"),
        }),
        ..Node::default()
    }
}

fn to_struct(fields: &Map<String, Value>) -> Struct {
    Struct {
        fields: fields
            .iter()
            .map(|(key, value)| (key.clone(), to_value(value)))
            .collect(),
    }
}

fn to_value(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue {
            values: values.iter().map(to_value).collect(),
        }),
        Value::Object(fields) => Kind::StructValue(to_struct(fields)),
    };
    prost_types::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_request_has_the_whole_node() {
        let node = node(&json!({
            "id": "sidecar~a", "cluster": "web.shop", "locality": { "region": "r", "sub_zone": "s" },
            "metadata": { "NAME": "web-1", "PORT": 15020, "LABELS": { "app": "web" }, "IPS": [true, null] },
        }));
        assert_eq!(
            (node.id.as_str(), node.cluster.as_str()),
            ("sidecar~a", "web.shop")
        );
        let locality = node.locality.unwrap();
        assert_eq!(
            (locality.region.as_str(), locality.sub_zone.as_str()),
            ("r", "s")
        );

        let fields = node.metadata.unwrap().fields;
        assert_eq!(fields["PORT"].kind, Some(Kind::NumberValue(15020.0)));
        let Some(Kind::StructValue(labels)) = &fields["LABELS"].kind else {
            panic!("not an object")
        };
        assert_eq!(
            labels.fields["app"].kind,
            Some(Kind::StringValue("web".to_owned()))
        );
    }
}
