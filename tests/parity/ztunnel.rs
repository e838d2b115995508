//! A ztunnel of a case: subscribes to the types of the case, one request each, and lists the
//! received resources by name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use navarch::push::resource::ResourceType;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_proto::json::Codec;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::ads;
use super::case::CaseProxy;
use super::run::{Answers, text};

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The resources of a case's ztunnel, by type.
pub(crate) async fn ask_all(
    server: SocketAddr,
    proxy: &CaseProxy,
    codec: &Codec,
) -> Result<Answers, String> {
    let mut service = AggregatedDiscoveryServiceClient::connect(format!("http://{server}"))
        .await
        .map_err(text)?;
    let (requests, outgoing) = mpsc::channel(16);
    let responses = service
        .delta_aggregated_resources(ReceiverStream::new(outgoing))
        .await
        .map_err(text)?;
    let mut responses = responses.into_inner();
    let mut node = Some(ads::node(proxy, codec)?);
    let mut answers = Answers::new();

    for name in &proxy.types {
        let resource_type =
            resource_type(name).ok_or_else(|| format!("{name} is no type for ztunnel"))?;
        let names = proxy.subscribe.get(name).into_iter().flatten().cloned();
        let request = DeltaDiscoveryRequest {
            node: node.take(),
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: names.collect(),
            ..DeltaDiscoveryRequest::default()
        };

        requests
            .send(request)
            .await
            .map_err(|_| "the stream ended".to_owned())?;
        answers.insert(
            name.clone(),
            items(answer(&mut responses, resource_type).await?, codec)?,
        );
    }

    Ok(answers)
}

/// The type of a name in `proxies.yaml`.
fn resource_type(name: &str) -> Option<ResourceType> {
    match name {
        "addresses" => Some(ResourceType::Address),
        "workloads" => Some(ResourceType::Workload),
        "authorizations" => Some(ResourceType::Authorization),
        _ => None,
    }
}

/// The next response of a type.
async fn answer(
    responses: &mut Streaming<DeltaDiscoveryResponse>,
    resource_type: ResourceType,
) -> Result<DeltaDiscoveryResponse, String> {
    loop {
        let response = tokio::time::timeout(TIMEOUT, responses.message()).await;
        let response = response
            .map_err(|_| format!("no answer for {}", resource_type.type_url()))?
            .map_err(text)?;
        let response = response.ok_or("the stream ended")?;
        if response.type_url == resource_type.type_url() {
            return Ok(response);
        }
    }
}

/// The resources in a response, in the form of the cases.
fn items(response: DeltaDiscoveryResponse, codec: &Codec) -> Result<Vec<Value>, String> {
    let mut items: BTreeMap<String, Value> = BTreeMap::new();
    for name in response.removed_resources {
        items.insert(name.clone(), json!({ "name": name, "removed": true }));
    }
    for resource in response.resources {
        let any = resource.resource.ok_or("a resource without content")?;
        let content = codec.any_to_json(&any.type_url, &any.value).map_err(text)?;
        let mut item = json!({ "name": resource.name, "resource": content });
        if !resource.aliases.is_empty() {
            let mut aliases = resource.aliases;
            aliases.sort_unstable();
            item["aliases"] = json!(aliases);
        }
        items.insert(resource.name, item);
    }
    Ok(items.into_values().collect())
}
