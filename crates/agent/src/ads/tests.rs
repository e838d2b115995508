//! The ADS proxy between a client on its socket and a control plane on a port.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE};
use navarch_net::grpc_target::Keepalive;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use navarch_proto::istio::networking::nds::v1::NameTable;
use navarch_proto::istio::networking::nds::v1::name_table::NameInfo;
use prost_types::Any;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::credentials::TokenSource;
use crate::dns::TableConfig;
use crate::socket;
use crate::upstream::{Transport, UpstreamConfig};

mod compression;
mod debug;
mod peers;
mod routes_held;
mod versions;

/// The agent's limit for responses in these tests.
const MAX_TEST_RESPONSE: usize = 32 << 20;
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// The requests that arrived on a control plane's stream, and the sender of its responses.
struct Visit<Q, A> {
    headers: MetadataMap,
    requests: Streaming<Q>,
    answers: mpsc::Sender<Result<A, Status>>,
}

impl<Q, A> Visit<Q, A> {
    /// Waits for the next request.
    async fn next_request(&mut self) -> Q {
        self.requests.message().await.unwrap().unwrap()
    }
}

/// A control plane that passes its streams to the test.
struct ControlPlane {
    state: mpsc::Sender<Visit<DiscoveryRequest, DiscoveryResponse>>,
    delta: mpsc::Sender<Visit<DeltaDiscoveryRequest, DeltaDiscoveryResponse>>,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for ControlPlane {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (answers, receiver) = mpsc::channel(8);
        let visit = Visit {
            headers: request.metadata().clone(),
            requests: request.into_inner(),
            answers,
        };
        self.state
            .send(visit)
            .await
            .map_err(|_| Status::internal("the test is over"))?;
        Ok(tonic::Response::new(ReceiverStream::new(receiver)))
    }

    async fn delta_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (answers, receiver) = mpsc::channel(8);
        let visit = Visit {
            headers: request.metadata().clone(),
            requests: request.into_inner(),
            answers,
        };
        self.delta
            .send(visit)
            .await
            .map_err(|_| Status::internal("the test is over"))?;

        let mut response = tonic::Response::new(ReceiverStream::new(receiver));
        let omits = MetadataValue::from_static(OMIT_VERSIONS_VALUE);
        response.metadata_mut().insert(OMIT_VERSIONS, omits);
        Ok(response)
    }
}

/// A client, a proxy and a control plane.
struct World {
    state: mpsc::Receiver<Visit<DiscoveryRequest, DiscoveryResponse>>,
    delta: mpsc::Receiver<Visit<DeltaDiscoveryRequest, DeltaDiscoveryResponse>>,
    envoy: AggregatedDiscoveryServiceClient<Channel>,
    names: NameTableSink,
    health: watch::Sender<Option<Health>>,
    debug: DebugClient,
    folder: tempfile::TempDir,
    stop: CancellationToken,
    metrics: AgentMetrics,
    _running: tokio::task::JoinSet<()>,
}

/// A stream of a client, and the control plane's end of it.
struct OpenStream<Q, A> {
    asks: mpsc::Sender<Q>,
    answers: Streaming<A>,
    visit: Visit<Q, A>,
    /// The first request, as the control plane received it.
    first: Q,
}

/// One in the state of the world.
type StateStream = OpenStream<DiscoveryRequest, DiscoveryResponse>;

type DeltaStream = OpenStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

impl World {
    /// Opens a stream in the state of the world whose first request is of this type.
    async fn open(&mut self, type_url: &str) -> StateStream {
        let (asks, receiver) = mpsc::channel(8);
        asks.send(ask(type_url)).await.unwrap();
        let answers = self
            .envoy
            .stream_aggregated_resources(ReceiverStream::new(receiver))
            .await
            .unwrap()
            .into_inner();

        let mut visit = self.state.recv().await.unwrap();
        let first = visit.next_request().await;
        StateStream {
            asks,
            answers,
            visit,
            first,
        }
    }

    /// Opens a delta stream with this request.
    async fn open_delta(&mut self, request: DeltaDiscoveryRequest) -> DeltaStream {
        let (asks, receiver) = mpsc::channel(8);
        asks.send(request).await.unwrap();
        let answers = self
            .envoy
            .delta_aggregated_resources(ReceiverStream::new(receiver))
            .await
            .unwrap()
            .into_inner();

        let mut visit = self.delta.recv().await.unwrap();
        let first = visit.next_request().await;
        DeltaStream {
            asks,
            answers,
            visit,
            first,
        }
    }
}

async fn world() -> World {
    world_with(None).await
}

/// With metrics from Envoy's access logs.
async fn world_with(mesh_metrics: Option<MeshMetrics>) -> World {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (state_sender, state) = mpsc::channel(1);
    let (delta_sender, delta) = mpsc::channel(1);
    let service = AggregatedDiscoveryServiceServer::new(ControlPlane {
        state: state_sender,
        delta: delta_sender,
    })
    .send_compressed(CompressionEncoding::Zstd);

    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move {
        let server = tonic::transport::Server::builder().add_service(service);
        server
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
            .unwrap();
    });

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("XDS");
    std::fs::write(folder.path().join("token"), "first\n").unwrap();
    let names = NameTableSink::new(TableConfig::default());
    let (health, receiver) = watch::channel(None);
    let upstream = UpstreamConfig {
        address,
        transport: Transport::Plain,
        token: Some(TokenSource::File(folder.path().join("token"))),
        cluster: "here".to_owned(),
        headers: BTreeMap::from([("x-more".to_owned(), "1".to_owned())]),
        keepalive: Keepalive::default(),
    };

    let metrics = AgentMetrics::default();
    let upstream = Upstream::new(upstream);
    let connections = OpenConnections::default();
    let debug = DebugClient::new(upstream.clone(), connections.clone());
    let config = AdsConfig {
        upstream,
        names: Some(names.clone()),
        trust: None,
        health: Some(receiver),
        modules: None,
        mesh_metrics,
        side_by_side: false,
        envoys: EnvoyStreams::default(),
        connections,
        max_response: MAX_TEST_RESPONSE,
        metrics: metrics.clone(),
    };

    let stop = CancellationToken::new();
    let serving = serve(socket::listen(&path).unwrap(), config, stop.clone());
    running.spawn(async move { serving.await.unwrap() });
    let channel = Endpoint::from_shared(format!("unix://{}", path.display()))
        .unwrap()
        .connect()
        .await
        .unwrap();

    let envoy =
        AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    World {
        state,
        delta,
        envoy,
        names,
        health,
        debug,
        folder,
        stop,
        metrics,
        _running: running,
    }
}

fn ask(type_url: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: type_url.to_owned(),
        ..DiscoveryRequest::default()
    }
}

/// A delta request for all resources of a type.
fn ask_delta(type_url: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: type_url.to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}

fn table(host: &str) -> Any {
    let info = NameInfo {
        ips: vec!["10.0.0.1".to_owned()],
        ..NameInfo::default()
    };
    let table = NameTable {
        table: BTreeMap::from([(host.to_owned(), info)]),
    };
    navarch_proto::any::pack(&table)
}

#[tokio::test]
#[allow(
    clippy::too_many_lines,
    reason = "it is one exchange from start to end"
)]
async fn the_agent_handles_its_own_types_and_forwards_the_rest() {
    let mut world = world().await;
    let StateStream {
        asks,
        mut answers,
        mut visit,
        first,
    } = world.open(CLUSTER).await;
    assert_eq!(first, ask(CLUSTER));
    assert_eq!(visit.headers.get("authorization").unwrap(), "Bearer first");
    assert_eq!(visit.headers.get("clusterid").unwrap(), "here");
    assert_eq!(visit.headers.get("x-more").unwrap(), "1");

    // A large response with unknown fields arrives unchanged.
    let large = DiscoveryResponse {
        version_info: "v".to_owned(),
        resources: vec![Any {
            type_url: CLUSTER.to_owned(),
            value: vec![7; 16 << 20],
        }],
        canary: true,
        type_url: CLUSTER.to_owned(),
        nonce: "n".to_owned(),
        ..DiscoveryResponse::default()
    };

    visit.answers.send(Ok(large.clone())).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap(), large);

    // Health information and the agent's own subscriptions are held back until Envoy subscribes to
    // listeners.
    world
        .health
        .send_replace(Some(Health::NotReady("it is ill".to_owned())));
    asks.send(ask(own::LISTENER)).await.unwrap();
    let mut types = Vec::new();

    for _ in 0..3 {
        let request = visit.next_request().await;
        types.push((
            request.type_url,
            request.error_detail.map(|error| error.message),
        ));
    }

    let health = "type.googleapis.com/istio.v1.HealthInformation".to_owned();
    assert_eq!(
        types,
        [
            (own::LISTENER.to_owned(), None),
            (own::NAME_TABLE.to_owned(), None),
            (health.clone(), Some("it is ill".to_owned())),
        ]
    );

    world.health.send_replace(Some(Health::Ready));
    let request = visit.next_request().await;
    assert_eq!((request.type_url, request.error_detail), (health, None));

    let names = DiscoveryResponse {
        version_info: "t1".to_owned(),
        nonce: "n1".to_owned(),
        type_url: own::NAME_TABLE.to_owned(),
        resources: vec![table("web.example")],
        ..DiscoveryResponse::default()
    };

    visit.answers.send(Ok(names.clone())).await.unwrap();
    let ack = visit.next_request().await;
    assert_eq!(
        (
            ack.version_info.as_str(),
            ack.response_nonce.as_str(),
            ack.error_detail
        ),
        ("t1", "n1", None)
    );

    assert!(world.names.table().is_some());
    let mut broken = names;
    broken.resources[0].value = vec![0xff];
    visit.answers.send(Ok(broken)).await.unwrap();
    assert!(visit.next_request().await.error_detail.is_some());

    // Requests of istioctl are forwarded, and do not replace Envoy's stream.
    let mut debug = world.open(own::DEBUG).await;
    assert_eq!(debug.first.type_url, own::DEBUG);

    let dump = DiscoveryResponse {
        type_url: own::DEBUG.to_owned(),
        ..DiscoveryResponse::default()
    };
    debug.visit.answers.send(Ok(dump.clone())).await.unwrap();
    assert_eq!(debug.answers.message().await.unwrap().unwrap(), dump);

    // If the control plane closes the stream, so does the proxy; Envoy's next stream uses the
    // current token.
    drop(visit);
    assert!(answers.message().await.unwrap().is_none());
    std::fs::write(world.folder.path().join("token"), "second").unwrap();
    let mut previous = world.open(CLUSTER).await;
    let headers = &previous.visit.headers;
    assert_eq!(headers.get("authorization").unwrap(), "Bearer second");

    // A new stream of Envoy replaces the previous one.
    let _next = world.open(CLUSTER).await;
    assert_eq!(
        previous.answers.message().await.unwrap_err().code(),
        tonic::Code::Cancelled
    );
    world.stop.cancel();
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_an_error_of_envoys_stream() {
    let world = world().await;
    let path = format!("unix://{}", world.folder.path().join("XDS").display());
    let channel = Endpoint::from_shared(path)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut envoy = tonic::client::Grpc::new(channel);
    envoy.ready().await.unwrap();

    let asks = tokio_stream::once(bytes::Bytes::from_static(&[0xff]));
    let path = http::uri::PathAndQuery::from_static(Protocol::State.path());
    let answers = envoy
        .streaming(tonic::Request::new(asks), path, wire::Opaque)
        .await;
    let answers: Result<Option<bytes::Bytes>, Status> = match answers {
        Ok(answers) => answers.into_inner().message().await,
        Err(status) => Err(status),
    };
    assert_eq!(answers.unwrap_err().code(), tonic::Code::InvalidArgument);

    let mut registry = prometheus_client::registry::Registry::default();
    let mut text = String::new();
    world.metrics.register(&mut registry);
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(
        text.contains("istio_agent_envoy_connection_terminations{type=\"error\"} 1"),
        "{text}"
    );

    assert!(
        !text.contains("istio_agent_istiod_connection_terminations{"),
        "{text}"
    );
    world.stop.cancel();
}

#[tokio::test]
async fn delta_streams_pass_too() {
    let mut world = world().await;
    let DeltaStream {
        asks: _asks,
        mut answers,
        mut visit,
        mut first,
    } = world.open_delta(ask_delta(own::LISTENER)).await;
    assert_eq!(routes_held::said_in(&mut first), "nothing");
    assert_eq!(first, ask_delta(own::LISTENER));
    assert_eq!(visit.next_request().await.type_url, own::NAME_TABLE);
    let resource = navarch_proto::envoy::service::discovery::v3::Resource {
        name: "table".to_owned(),
        resource: Some(table("web.example")),
        ..Default::default()
    };

    let names = DeltaDiscoveryResponse {
        type_url: own::NAME_TABLE.to_owned(),
        nonce: "n1".to_owned(),
        resources: vec![resource],
        ..DeltaDiscoveryResponse::default()
    };

    visit.answers.send(Ok(names)).await.unwrap();
    let ack = visit.next_request().await;
    assert_eq!(
        (ack.response_nonce.as_str(), ack.error_detail),
        ("n1", None)
    );
    let removed = DeltaDiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        removed_resources: vec!["gone".to_owned()],
        ..DeltaDiscoveryResponse::default()
    };
    visit.answers.send(Ok(removed.clone())).await.unwrap();

    assert_eq!(answers.message().await.unwrap().unwrap(), removed);

    // A rejection is forwarded with its reason.
    visit
        .answers
        .send(Err(Status::permission_denied("not you")))
        .await
        .unwrap();
    assert_eq!(
        answers.message().await.unwrap_err().code(),
        tonic::Code::PermissionDenied
    );

    world.stop.cancel();
}

#[tokio::test]
async fn envoys_stream_fails_while_the_control_plane_is_unreachable() {
    let world = world().await;
    let path = world.folder.path().join("away");
    let upstream = UpstreamConfig {
        address: "127.0.0.1:1".to_owned(),
        transport: Transport::Plain,
        token: None,
        cluster: String::new(),
        headers: BTreeMap::new(),
        keepalive: Keepalive::default(),
    };

    let config = AdsConfig {
        upstream: Upstream::new(upstream),
        names: None,
        trust: None,
        health: None,
        modules: None,
        mesh_metrics: None,
        side_by_side: false,
        envoys: EnvoyStreams::default(),
        connections: OpenConnections::default(),
        max_response: MAX_TEST_RESPONSE,
        metrics: AgentMetrics::default(),
    };

    let stop = CancellationToken::new();
    let mut running = tokio::task::JoinSet::new();
    let serving = serve(socket::listen(&path).unwrap(), config, stop.clone());
    running.spawn(async move { serving.await.unwrap() });
    let channel = Endpoint::from_shared(format!("unix://{}", path.display()))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let (_asks, receiver) = mpsc::channel::<DiscoveryRequest>(8);

    let mut envoy = AggregatedDiscoveryServiceClient::new(channel);
    let mut answers = envoy
        .stream_aggregated_resources(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let status = tokio::time::timeout(Duration::from_secs(10), answers.message())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);

    stop.cancel();
    running.join_all().await;
}
