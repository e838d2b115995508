//! A proxyless gRPC application with the state-of-the-world protocol: it subscribes to listeners by
//! name, then to the resources that these refer to.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use navarch::push::resource::ResourceType;
use navarch_proto::envoy::service::discovery::v3::DiscoveryRequest;
use navarch_proto::envoy::service::discovery::v3::DiscoveryResponse;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::json::Codec;
use navarch_shadow::subscriptions::{collect, eds_name};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::ads::node;
use super::case::CaseProxy;
use super::run::{Answers, text};

/// Timeout of a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

struct Client {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
}

/// Subscribes as the cases of the area `grpc` were recorded: listeners, their routes, the clusters
/// of these, their endpoints.
pub(crate) async fn ask_all(
    server: SocketAddr,
    proxy: &CaseProxy,
    codec: &Codec,
) -> Result<Answers, String> {
    let mut client = Client::connect(server, proxy, codec).await?;
    let mut answers = Answers::new();
    let subscribed = |kind: &str| proxy.subscribe.get(kind).cloned().unwrap_or_default();
    let listeners = client
        .ask(ResourceType::Listener, &subscribed("listeners"), codec)
        .await?;
    let mut names = BTreeSet::new();
    listeners
        .iter()
        .for_each(|listener| collect(listener, "routeConfigName", &mut names));

    answers.insert("listeners".into(), listeners);

    if !names.is_empty() {
        let routes = client.ask(ResourceType::Route, &names, codec).await?;
        let mut clusters = subscribed("clusters");
        routes
            .iter()
            .for_each(|routes| collect(routes, "cluster", &mut clusters));
        routes
            .iter()
            .for_each(|routes| weighted(routes, &mut clusters));

        answers.insert("routes".into(), routes);
        let clusters = client.ask(ResourceType::Cluster, &clusters, codec).await?;
        let endpoints: BTreeSet<String> = clusters.iter().filter_map(eds_name).collect();
        answers.insert("clusters".into(), clusters);

        if !endpoints.is_empty() {
            answers.insert(
                "endpoints".into(),
                client
                    .ask(ResourceType::Endpoint, &endpoints, codec)
                    .await?,
            );
        }
    }

    Ok(answers)
}

/// Collects the clusters to which routes split their requests.
fn weighted(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let split = map
                .get("weightedClusters")
                .and_then(|split| split.get("clusters"))
                .and_then(Value::as_array);
            let names = split
                .into_iter()
                .flatten()
                .filter_map(|cluster| cluster.get("name")?.as_str());
            into.extend(names.map(str::to_owned));
            map.values().for_each(|value| weighted(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| weighted(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Client {
    async fn connect(server: SocketAddr, proxy: &CaseProxy, codec: &Codec) -> Result<Self, String> {
        let service = AggregatedDiscoveryServiceClient::connect(format!("http://{server}"))
            .await
            .map_err(text)?;
        let mut service = service.max_decoding_message_size(64 << 20);
        let (requests, outgoing) = mpsc::channel(16);
        let hello = DiscoveryRequest {
            node: Some(node(proxy, codec)?),
            ..DiscoveryRequest::default()
        };

        // A server may report an error before the first request, so send it at once.
        let first = DiscoveryRequest {
            type_url: ResourceType::Listener.type_url().to_owned(),
            resource_names: proxy
                .subscribe
                .get("listeners")
                .cloned()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            ..hello
        };

        requests.send(first).await.map_err(text)?;
        let responses = service
            .stream_aggregated_resources(ReceiverStream::new(outgoing))
            .await
            .map_err(text)?;

        Ok(Self {
            requests,
            responses: responses.into_inner(),
        })
    }

    /// Subscribes to names, acknowledges the response and returns its resources as JSON.
    async fn ask(
        &mut self,
        resource_type: ResourceType,
        names: &BTreeSet<String>,
        codec: &Codec,
    ) -> Result<Vec<Value>, String> {
        let request = DiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            resource_names: names.iter().cloned().collect(),
            ..DiscoveryRequest::default()
        };

        // The first request, with the node, has already subscribed to listeners.
        if resource_type != ResourceType::Listener {
            self.requests.send(request.clone()).await.map_err(text)?;
        }

        loop {
            let response = tokio::time::timeout(ANSWER_TIMEOUT, self.responses.message());
            let response = response
                .await
                .map_err(|_| format!("no answer for {}", resource_type.short_name()))?
                .map_err(text)?;
            let response = response.ok_or("the stream ended")?;
            if response.type_url != resource_type.type_url() {
                continue;
            }

            let accepted = DiscoveryRequest {
                response_nonce: response.nonce.clone(),
                version_info: response.version_info.clone(),
                ..request
            };
            self.requests.send(accepted).await.map_err(text)?;
            let json =
                |any: &prost_types::Any| codec.any_to_json(&any.type_url, &any.value).map_err(text);
            return response.resources.iter().map(json).collect();
        }
    }
}
