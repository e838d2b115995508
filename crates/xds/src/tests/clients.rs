//! Clients of the server under test that never act on their own.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use navarch_proto::google::rpc::Status as ErrorDetail;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::bench::{CDS, node, soon};
use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE};
use navarch_push::resource::ResourceType;

/// What a delta client asks of the versions of resources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionsAsked {
    Sent,
    Omitted,
}

/// A delta client that never acts on its own.
pub(super) struct DeltaClient {
    sender: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    node: Option<Node>,
}

/// A state-of-the-world client that never acts on its own.
pub(super) struct StateClient {
    sender: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    node: Option<Node>,
}

/// A response in short form: type, `name=body` of each resource, removed names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReceivedResponse {
    pub(super) resource_type: &'static str,
    pub(super) resources: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) nonce: String,
    pub(super) versions: BTreeMap<String, String>,
}

impl ReceivedResponse {
    /// Asserts the content, ignoring the nonce.
    #[track_caller]
    pub(super) fn is(
        self,
        resource_type: ResourceType,
        resources: &[&str],
        removed: &[&str],
    ) -> Self {
        assert_eq!(self.resource_type, resource_type.short_name(), "{self:?}");
        assert_eq!(
            (&*self.resources, &*self.removed),
            (&*strings(resources), &*strings(removed)),
            "{}",
            self.resource_type
        );
        self
    }
}

pub(super) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn short_name_of(url: &str) -> &'static str {
    ResourceType::from_type_url(url).map_or("unserved", ResourceType::short_name)
}

/// A body in the form of tests: text, or a cluster's version.
fn shown(url: &str, value: &[u8]) -> String {
    match ResourceType::from_type_url(url) {
        Some(CDS) => {
            Cluster::decode(value).map_or_else(|_| lossy(value), |cluster| cluster.alt_stat_name)
        }
        _ => lossy(value),
    }
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

impl DeltaClient {
    /// Opens a stream; asserts that the server confirms what was asked of versions, and nothing else.
    pub(super) async fn open(
        mut client: AggregatedDiscoveryServiceClient<Channel>,
        versions: VersionsAsked,
    ) -> Self {
        let (sender, requests) = mpsc::channel(64);
        let mut request = tonic::Request::new(ReceiverStream::new(requests));
        if versions == VersionsAsked::Omitted {
            let asked = MetadataValue::from_static(OMIT_VERSIONS_VALUE);
            request.metadata_mut().insert(OMIT_VERSIONS, asked);
        }

        let responses = client.delta_aggregated_resources(request).await.unwrap();
        let confirmed = responses.metadata().get(OMIT_VERSIONS);
        match versions {
            VersionsAsked::Sent => assert_eq!(confirmed, None),
            VersionsAsked::Omitted => assert_eq!(confirmed.unwrap(), OMIT_VERSIONS_VALUE),
        }

        Self {
            sender,
            responses: responses.into_inner(),
            node: node("web"),
        }
    }

    pub(super) async fn send(&mut self, mut request: DeltaDiscoveryRequest) {
        request.node = self.node.take();
        soon(self.sender.send(request)).await.unwrap();
    }

    /// The same without a node.
    pub(super) fn nameless(mut self) -> Self {
        self.node = None;
        self
    }

    /// The same of another node.
    pub(super) fn of(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }

    /// Subscribes to all resources of a type by its URL.
    pub(super) async fn ask(&mut self, url: &str) {
        self.send(DeltaDiscoveryRequest {
            type_url: url.to_owned(),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }

    /// Rejects a response with a gRPC code.
    pub(super) async fn reject(&mut self, resource_type: ResourceType, nonce: &str, code: i32) {
        self.send(DeltaDiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: Some(ErrorDetail {
                code,
                ..detail("no")
            }),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }

    pub(super) async fn subscribe(&mut self, resource_type: ResourceType, names: &[&str]) {
        self.change(resource_type, names, &[]).await;
    }

    pub(super) async fn change(
        &mut self,
        resource_type: ResourceType,
        subscribe: &[&str],
        unsubscribe: &[&str],
    ) {
        self.send(DeltaDiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: strings(subscribe),
            resource_names_unsubscribe: strings(unsubscribe),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }

    pub(super) async fn come_back(
        &mut self,
        resource_type: ResourceType,
        names: &[&str],
        versions: &BTreeMap<String, String>,
    ) {
        self.send(DeltaDiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            resource_names_subscribe: strings(names),
            initial_resource_versions: versions.clone(),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }

    pub(super) async fn answer(
        &mut self,
        resource_type: ResourceType,
        nonce: &str,
        error: Option<&str>,
    ) {
        self.send(DeltaDiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error.map(detail),
            ..DeltaDiscoveryRequest::default()
        })
        .await;
    }

    /// The next response, without a reaction to it.
    pub(super) async fn get(&mut self) -> ReceivedResponse {
        let response = soon(self.responses.message())
            .await
            .unwrap()
            .expect("the stream ended");
        let named = |resource: &navarch_proto::envoy::service::discovery::v3::Resource| {
            let value = resource
                .resource
                .as_ref()
                .map(|any| shown(&any.type_url, &any.value))
                .unwrap_or_default();
            format!("{}={value}", resource.name)
        };

        ReceivedResponse {
            resource_type: short_name_of(&response.type_url),
            resources: response.resources.iter().map(named).collect(),
            removed: response.removed_resources,
            nonce: response.nonce,
            versions: response
                .resources
                .into_iter()
                .map(|resource| (resource.name, resource.version))
                .collect(),
        }
    }

    /// The next response, acknowledged.
    pub(super) async fn take(&mut self) -> ReceivedResponse {
        let got = self.get().await;
        let resource_type = ResourceType::ALL
            .into_iter()
            .find(|resource_type| resource_type.short_name() == got.resource_type)
            .unwrap();
        self.answer(resource_type, &got.nonce, None).await;
        got
    }

    /// The status with which the stream ended.
    pub(super) async fn end(mut self) -> Status {
        loop {
            match soon(self.responses.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }
}

impl StateClient {
    pub(super) async fn open(mut client: AggregatedDiscoveryServiceClient<Channel>) -> Self {
        let (sender, requests) = mpsc::channel(64);
        let responses = client
            .stream_aggregated_resources(ReceiverStream::new(requests))
            .await
            .unwrap();

        Self {
            sender,
            responses: responses.into_inner(),
            node: node("web"),
        }
    }

    pub(super) async fn send(&mut self, mut request: DiscoveryRequest) {
        request.node = self.node.take();
        soon(self.sender.send(request)).await.unwrap();
    }

    pub(super) async fn request(
        &mut self,
        resource_type: ResourceType,
        names: &[&str],
        nonce: &str,
        error: Option<&str>,
    ) {
        self.send(DiscoveryRequest {
            type_url: resource_type.type_url().to_owned(),
            resource_names: strings(names),
            response_nonce: nonce.to_owned(),
            error_detail: error.map(detail),
            ..DiscoveryRequest::default()
        })
        .await;
    }

    /// The first request of a type.
    pub(super) async fn subscribe(&mut self, resource_type: ResourceType, names: &[&str]) {
        self.request(resource_type, names, "", None).await;
    }

    /// The next response, without a reaction to it. Resources have no names in this protocol.
    pub(super) async fn get(&mut self) -> ReceivedResponse {
        let response = soon(self.responses.message())
            .await
            .unwrap()
            .expect("the stream ended");
        ReceivedResponse {
            resource_type: short_name_of(&response.type_url),
            resources: response
                .resources
                .iter()
                .map(|any| shown(&any.type_url, &any.value))
                .collect(),
            removed: Vec::new(),
            nonce: response.nonce,
            versions: BTreeMap::new(),
        }
    }

    /// The status with which the stream ended, which must have sent no response.
    pub(super) async fn end(mut self) -> Status {
        soon(self.responses.message())
            .await
            .expect_err("an end with a reason")
    }

    /// The next response, acknowledged with a subscription to `names`.
    pub(super) async fn take(&mut self, names: &[&str]) -> ReceivedResponse {
        let got = self.get().await;
        let resource_type = ResourceType::ALL
            .into_iter()
            .find(|resource_type| resource_type.short_name() == got.resource_type)
            .unwrap();
        self.request(resource_type, names, &got.nonce, None).await;
        got
    }
}

fn detail(message: &str) -> ErrorDetail {
    ErrorDetail {
        code: 13,
        message: message.to_owned(),
        details: Vec::new(),
    }
}
