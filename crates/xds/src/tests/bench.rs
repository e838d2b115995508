//! A mesh whose resources are ConfigMaps: namespace is the type's short name, name the resource's,
//! `body` its body. A ConfigMap without a body is no resource.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use navarch_proto::google::rpc::Status as ErrorDetail;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::metrics::Metrics;
use crate::{Ads, AdsParts, Limits, Served};
use navarch_api::any_object::AnyObject;
use navarch_api::kubernetes::ConfigMap;
use navarch_api::names::{Namespace, ResourceName};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_api::settings::Settings;
use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE};
use navarch_net::budget::Budget;
use navarch_net::rejections::Rejections;
use navarch_push::mesh_state::Change;
use navarch_push::resource::ResourceType;
use navarch_push::view::{Translator, View};
use navarch_push::worker::{self, Debounce, PushHandle};

pub(super) use ResourceType::{
    Cluster as CDS, Endpoint as EDS, ExtensionConfig as ECDS, Listener as LDS, Route as RDS,
    Secret as SDS,
};

/// No step takes this long unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Creates resources from ConfigMaps.
#[derive(Debug)]
struct Toy;

impl Translator for Toy {
    fn names(&self, resource_type: ResourceType, view: &View<'_>) -> Vec<ResourceName> {
        let namespace = Namespace::new(resource_type.short_name());
        let maps = view.list::<ConfigMap>(&namespace);
        maps.filter(|map| map.spec.data.contains_key("body"))
            .map(|map| ResourceName::new(&*map.meta.key.name))
            .collect()
    }

    fn resource(
        &self,
        resource_type: ResourceType,
        name: &ResourceName,
        view: &View<'_>,
    ) -> Option<Bytes> {
        let map = view.object::<ConfigMap>(&NamespacedName::new(
            resource_type.short_name(),
            name.as_str(),
        ))?;
        map.spec.data.get("body").cloned()
    }
}

/// A running server.
pub(super) struct Mesh {
    pub(super) ads: Ads,
    pub(super) push: PushHandle,
    pub(super) drain: CancellationToken,
    pub(super) registry: Registry,
    pub(super) rejections: Rejections,
    pub(super) memory: Arc<Budget>,
    pub(super) address: SocketAddr,
    channel: Channel,
}

/// Resources to create (`Some`) or remove.
pub(super) type Edit<'a> = (ResourceType, &'a str, Option<Bytes>);

/// Fails instead of hanging.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("it hangs")
}

/// Text as a resource's body.
pub(super) fn body(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

/// A cluster whose endpoints come from EDS, in some version.
pub(super) fn eds_cluster(name: &str, version: &str) -> Option<Bytes> {
    let cluster = Cluster {
        name: name.to_owned(),
        alt_stat_name: version.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        ..Cluster::default()
    };
    Some(cluster.encode_to_vec().into())
}

pub(super) fn node(pod: &str) -> Option<Node> {
    Some(node_of("sidecar", pod))
}

/// The node of a client of some kind.
pub(super) fn node_of(kind: &str, pod: &str) -> Node {
    Node {
        id: format!("{kind}~10.0.0.1~{pod}.shop~shop.svc.cluster.local"),
        ..Node::default()
    }
}

impl Mesh {
    pub(super) async fn new(edits: &[Edit<'_>]) -> Self {
        Self::with_limits(edits, Limits::default()).await
    }

    pub(super) async fn with_limits(edits: &[Edit<'_>], limits: Limits) -> Self {
        Self::with(edits, limits, 1 << 30, Served::Envoys).await
    }

    /// An empty mesh in ambient mode.
    pub(super) async fn ambient() -> Self {
        Self::with(&[], Limits::default(), 1 << 30, Served::Ambient).await
    }

    /// Limit of the memory of all clients, in bytes.
    pub(super) async fn with_memory(edits: &[Edit<'_>], bytes: usize) -> Self {
        Self::with(edits, Limits::default(), bytes, Served::Envoys).await
    }

    async fn with(edits: &[Edit<'_>], limits: Limits, memory: usize, served: Served) -> Self {
        let settings = Settings {
            ambient: served >= Served::Ambient,
            ..Settings::default()
        };
        let (push, _) = worker::start(settings, Debounce::default(), Arc::new(Toy)).unwrap();
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let drain = CancellationToken::new();
        let parts = AdsParts::new(push.clone(), metrics, Timestamp::UNIX_EPOCH, drain.clone());
        let rejections = parts.rejections.clone();

        let memory = Budget::new(memory);
        let ads = Ads::new(AdsParts {
            limits,
            memory: memory.clone(),
            served,
            ..parts
        });

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        tokio::task::spawn_local(ads.clone().serve(listener));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        let mesh = Self {
            ads,
            push,
            drain,
            registry,
            rejections,
            memory,
            address,
            channel,
        };

        mesh.edit(edits).await;
        mesh.push.full_sync().await.unwrap();
        mesh.push.wait_synced().await.unwrap();
        mesh
    }

    /// Changes the mesh in one push, which is under way or done then: after others it waits for a
    /// pause.
    pub(super) async fn edit(&self, edits: &[Edit<'_>]) {
        let changes = edits
            .iter()
            .map(|(resource_type, name, body)| change(*resource_type, name, body.clone()))
            .collect();
        let mut contexts = self.push.contexts();
        contexts.mark_unchanged();
        self.push.change(changes).await.unwrap();
        contexts.changed().await.unwrap();
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn client(&self) -> AggregatedDiscoveryServiceClient<Channel> {
        AggregatedDiscoveryServiceClient::new(self.channel())
    }

    pub(super) async fn delta(&self) -> DeltaClient {
        self.delta_on(self.channel()).await
    }

    /// A delta client on another connection.
    pub(super) async fn delta_on(&self, channel: Channel) -> DeltaClient {
        self.delta_of(AggregatedDiscoveryServiceClient::new(channel))
            .await
    }

    /// A delta client whose requests are compressed, and that accepts compressed responses.
    pub(super) async fn compressed_delta(&self, encoding: CompressionEncoding) -> DeltaClient {
        let client = self.client();
        let client = client.accept_compressed(encoding).send_compressed(encoding);
        self.delta_of(client).await
    }

    /// A delta client that asks for resources without versions.
    pub(super) async fn delta_without_versions(&self) -> DeltaClient {
        let mut client = self.client();
        let (sender, requests) = mpsc::channel(64);
        let mut request = tonic::Request::new(ReceiverStream::new(requests));
        let asked = MetadataValue::from_static(OMIT_VERSIONS_VALUE);
        request.metadata_mut().insert(OMIT_VERSIONS, asked);

        let responses = client.delta_aggregated_resources(request).await.unwrap();
        let confirmed = responses.metadata().get(OMIT_VERSIONS);
        assert_eq!(confirmed.unwrap(), OMIT_VERSIONS_VALUE);

        DeltaClient {
            sender,
            responses: responses.into_inner(),
            node: node("web"),
        }
    }

    async fn delta_of(&self, mut client: AggregatedDiscoveryServiceClient<Channel>) -> DeltaClient {
        let (sender, requests) = mpsc::channel(64);
        let responses = client
            .delta_aggregated_resources(ReceiverStream::new(requests))
            .await
            .unwrap();
        assert_eq!(responses.metadata().get(OMIT_VERSIONS), None);
        DeltaClient {
            sender,
            responses: responses.into_inner(),
            node: node("web"),
        }
    }

    pub(super) async fn state(&self) -> StateClient {
        let (sender, requests) = mpsc::channel(64);
        let responses = self
            .client()
            .stream_aggregated_resources(ReceiverStream::new(requests))
            .await
            .unwrap();
        StateClient {
            sender,
            responses: responses.into_inner(),
            node: node("web"),
        }
    }

    /// The lines of a metric.
    pub(super) fn metric(&self, name: &str) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines()
            .filter(|line| line.starts_with(name))
            .map(str::to_owned)
            .collect()
    }

    /// Waits until the streams look as expected.
    pub(super) async fn until(&self, fits: impl Fn(&[crate::connections::ConnectionInfo]) -> bool) {
        soon(async {
            while !fits(&self.ads.connections().list()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn change(resource_type: ResourceType, name: &str, body: Option<Bytes>) -> Change {
    let namespace = Namespace::new(resource_type.short_name());
    let meta = ObjectMeta {
        key: NamespacedName::of(namespace, Arc::from(name)),
        ..ObjectMeta::default()
    };
    let data: BTreeMap<Arc<str>, Bytes> = body
        .iter()
        .map(|body| (Arc::from("body"), body.clone()))
        .collect();
    // The removal of a ConfigMap would take effect later than the other edits.
    Change::Put(AnyObject::from(Object {
        meta,
        spec: ConfigMap { data },
    }))
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

/// Runs a test with a runtime on which servers may be spawned.
pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(test));
}
