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
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;

use super::clients::VersionsAsked;
use crate::metrics::Metrics;
use crate::{Ads, AdsParts, Limits, Served};
use navarch_api::any_object::AnyObject;
use navarch_api::kubernetes::ConfigMap;
use navarch_api::names::{Namespace, ResourceName};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_api::settings::Settings;
use navarch_net::budget::Budget;
use navarch_net::rejections::Rejections;
use navarch_push::mesh_state::Change;
use navarch_push::resource::ResourceType;
use navarch_push::view::{Translator, View};
use navarch_push::worker::{self, Debounce, PushHandle};

pub(super) use super::clients::{DeltaClient, StateClient, strings};
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
        let client = AggregatedDiscoveryServiceClient::new(channel);
        DeltaClient::open(client, VersionsAsked::Sent).await
    }

    /// A delta client whose requests are compressed, and that accepts compressed responses.
    pub(super) async fn compressed_delta(&self, encoding: CompressionEncoding) -> DeltaClient {
        let client = self.client();
        let client = client.accept_compressed(encoding).send_compressed(encoding);
        DeltaClient::open(client, VersionsAsked::Sent).await
    }

    /// A delta client that asks for resources without versions.
    pub(super) async fn delta_without_versions(&self) -> DeltaClient {
        DeltaClient::open(self.client(), VersionsAsked::Omitted).await
    }

    pub(super) async fn state(&self) -> StateClient {
        StateClient::open(self.client()).await
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
