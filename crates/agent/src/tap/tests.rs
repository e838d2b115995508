//! The debug port before a control plane that answers some types.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderValue, header};
use navarch_net::grpc_target::Keepalive;
use navarch_net::rejections::Rejections;
use navarch_proto::any::pack;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest,
};
use navarch_testkit::wait::until;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use super::*;
use crate::ads::OpenConnections;
use crate::local_http::LocalRequest;
use crate::node::Addresses;
use crate::upstream::{Transport, Upstream, UpstreamConfig};

const SYNCZ: &str = "istio.io/debug/syncz";
/// A type that the control plane rejects.
const DENIED: &str = "istio.io/debug";
/// A type that the control plane does not answer.
const SILENT: &str = "istio.io/debug/silent";

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A control plane that remembers requests.
#[derive(Clone, Default)]
struct ControlPlane {
    requests: Arc<Mutex<Vec<DiscoveryRequest>>>,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for ControlPlane {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: tonic::Request<Streaming<DiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::StreamAggregatedResourcesStream>, Status> {
        let mut requests = request.into_inner();
        let request = requests.message().await?.unwrap();
        self.requests.lock().push(request.clone());

        let responses: Responses<DiscoveryResponse> = match request.type_url.as_str() {
            DENIED => return Err(Status::permission_denied("not you")),
            SILENT => Box::pin(tokio_stream::pending()),
            _ => {
                let proxy = Node {
                    id: "web-1.shop".to_owned(),
                    ..Node::default()
                };
                let response = DiscoveryResponse {
                    type_url: request.type_url,
                    resources: vec![pack(&proxy)],
                    ..DiscoveryResponse::default()
                };
                Box::pin(tokio_stream::once(Ok(response)))
            }
        };
        Ok(tonic::Response::new(responses))
    }

    async fn delta_aggregated_resources(
        &self,
        _: tonic::Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<tonic::Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("not delta"))
    }
}

/// A control plane, and the debug port of an agent.
struct World {
    control_plane: ControlPlane,
    address: String,
    connections: OpenConnections,
    tap: Tap,
    port: u16,
    client: AggregatedDiscoveryServiceClient<Channel>,
    _running: JoinSet<()>,
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy()
}

async fn world() -> World {
    let control_plane = ControlPlane::default();
    let (listener, address) = listen().await;
    let address = address.to_string();
    let service = AggregatedDiscoveryServiceServer::new(control_plane.clone());
    let mut running = JoinSet::new();
    running.spawn(async move {
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await
            .unwrap();
    });

    let upstream = Upstream::new(UpstreamConfig {
        address: address.clone(),
        transport: Transport::Plain,
        token: None,
        cluster: "here".to_owned(),
        headers: BTreeMap::new(),
        keepalive: Keepalive::default(),
    });
    let connections = OpenConnections::default();
    let identity = NodeIdentity {
        kind: "sidecar".to_owned(),
        addresses: Addresses(Vec::new()),
        pod: "web-1".to_owned(),
        namespace: "shop".to_owned(),
        domain: String::new(),
    };
    let tap = Tap::new(DebugClient::new(upstream, connections.clone()), &identity);
    let (listener, tapped) = listen().await;
    running.spawn(serve(listener, tap.clone(), Rejections::default()));

    World {
        control_plane,
        address,
        connections,
        tap,
        port: tapped.port(),
        client: AggregatedDiscoveryServiceClient::new(channel(&tapped.to_string())),
        _running: running,
    }
}

/// The response to a request over gRPC, after which the stream has ended.
async fn ask(
    mut client: AggregatedDiscoveryServiceClient<Channel>,
    type_url: &'static str,
) -> Result<DiscoveryResponse, Status> {
    let request = DiscoveryRequest {
        node: Some(Node {
            id: "router~10.0.0.1~other.bank~bank.svc.cluster.local".to_owned(),
            ..Node::default()
        }),
        type_url: type_url.to_owned(),
        resource_names: vec!["web-1.shop".to_owned()],
        ..DiscoveryRequest::default()
    };
    let responses = client
        .stream_aggregated_resources(tokio_stream::once(request))
        .await?;
    let mut responses = responses.into_inner();
    let response = responses.message().await?.unwrap();
    assert_eq!(responses.message().await?, None);
    Ok(response)
}

impl World {
    fn requests(&self) -> Vec<DiscoveryRequest> {
        self.control_plane.requests.lock().clone()
    }

    async fn ask(&self, type_url: &'static str) -> Result<DiscoveryResponse, Status> {
        ask(self.client.clone(), type_url).await
    }

    /// Status and body of a page.
    async fn get(&self, path: &str) -> (u16, String) {
        let response = LocalRequest::get("127.0.0.1", self.port, path, Duration::from_secs(20))
            .send()
            .await
            .unwrap();
        let body = String::from_utf8(response.body.to_vec()).unwrap();
        (response.status.as_u16(), body)
    }
}

#[tokio::test]
async fn a_debug_request_is_answered_by_the_control_plane_of_envoy() {
    let world = world().await;
    let _envoy = world.connections.add(channel(&world.address));

    let response = world.ask(SYNCZ).await.unwrap();
    assert_eq!(response.type_url, SYNCZ);
    assert_eq!(response.resources.len(), 1);

    let (status, body) = world.get("/debug/syncz?resourceName=web-1.shop").await;
    assert_eq!(status, 200, "{body}");
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["resources"][0]["id"], "web-1.shop");

    for request in world.requests() {
        assert_eq!(request.type_url, SYNCZ);
        assert_eq!(request.resource_names, ["web-1.shop"]);
        let id = request.node.unwrap().id;
        assert_eq!(
            id, "sidecar~127.0.0.1~debug.shop~shop.svc.cluster.local",
            "the node is the agent's, whatever the tool calls itself"
        );
    }
}

#[tokio::test]
async fn other_types_and_paths_do_not_reach_the_control_plane() {
    let world = world().await;
    let _envoy = world.connections.add(channel(&world.address));

    for type_url in [
        "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "istio.io/debugger",
        "istio.io/connections",
        "",
    ] {
        let status = world.ask(type_url).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{type_url}");
    }
    for path in ["/", "/connections", "/debugger"] {
        assert_eq!(world.get(path).await.0, 404, "{path}");
    }
    let mut client = world.client.clone();
    let delta = tokio_stream::once(DeltaDiscoveryRequest::default());
    let status = client.delta_aggregated_resources(delta).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);

    assert!(world.requests().is_empty());
}

#[tokio::test]
async fn pages_of_other_sites_in_a_browser_do_not_reach_the_control_plane() {
    let world = world().await;
    let _envoy = world.connections.add(channel(&world.address));
    let timeout = Duration::from_secs(20);
    let status = async |request: LocalRequest| {
        let stream = TcpStream::connect(("127.0.0.1", world.port)).await.unwrap();
        request.send_over(stream).await.unwrap().status.as_u16()
    };

    let page = |host: &str| LocalRequest::get(host, world.port, "/debug/syncz", timeout);
    assert_eq!(status(page("evil.example")).await, 403);
    let mut foreign = page("localhost");
    foreign.headers.insert(
        header::ORIGIN,
        HeaderValue::from_static("http://evil.example"),
    );
    assert_eq!(status(foreign).await, 403);

    // A page can send this type of content, but not by HTTP/2.
    let stream = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    let mut grpc = LocalRequest::post("localhost", world.port, stream, timeout);
    grpc.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    assert_eq!(status(grpc).await, 404);
    assert!(world.requests().is_empty());

    assert_eq!(status(page("localhost")).await, 200);
}

#[tokio::test]
async fn a_rejection_of_the_control_plane_is_passed_on() {
    let world = world().await;
    let _envoy = world.connections.add(channel(&world.address));

    let status = world.ask(DENIED).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::PermissionDenied, "not you")
    );
    let (status, body) = world.get("/debug").await;
    assert_eq!((status, body.as_str()), (403, "not you\n"));
}

#[tokio::test]
async fn without_a_stream_of_envoy_requests_fail_at_once() {
    let world = world().await;
    drop(world.connections.add(channel(&world.address)));

    let status = world.ask(SYNCZ).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(world.get("/debug/syncz").await.0, 503);
    assert!(world.requests().is_empty());
}

#[tokio::test]
async fn too_many_concurrent_requests_are_rejected() {
    let world = world().await;
    let _envoy = world.connections.add(channel(&world.address));
    let mut waiting = JoinSet::new();
    for _ in 0..MAX_CONCURRENT_REQUESTS {
        waiting.spawn(ask(world.client.clone(), SILENT));
    }
    until("all requests are in progress", async || {
        world.requests().len() == MAX_CONCURRENT_REQUESTS
    })
    .await;

    let status = world.ask(SYNCZ).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(world.get("/debug/syncz").await.0, 429);

    waiting.shutdown().await;
    until("requests are forwarded again", async || {
        world.ask(SYNCZ).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_control_plane_that_does_not_respond_is_not_waited_for_forever() {
    let world = world().await;
    let _envoy = world.connections.add(channel(&world.address));
    let limit = Duration::from_millis(200);
    let answered = world.tap.forward(SILENT.to_owned(), Vec::new(), limit);
    assert_eq!(answered.await.unwrap_err().code(), Code::DeadlineExceeded);
}
