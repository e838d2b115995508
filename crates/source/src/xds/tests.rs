//! A source with a server whose responses the test chooses.

#![expect(
    clippy::disallowed_methods,
    reason = "server and source end with the test"
)]

use std::net::SocketAddr;
use std::time::Duration;

use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use prost_types::Any;
use prost_types::value::Kind as ValueKind;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::*;
use navarch_api::decode::{Outcome, decode_value};

/// Timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum response size of these sources.
const LARGEST: usize = 64 << 10;

const VIRTUAL_SERVICES: &str = "networking.istio.io/v1/VirtualService";

/// A stream that a source has opened.
struct Opened {
    requests: Streaming<DiscoveryRequest>,
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
}

/// Passes the streams of clients to the test.
struct Server(mpsc::Sender<Opened>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Server {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (responses, stream) = mpsc::channel(64);
        let opened = Opened {
            requests: request.into_inner(),
            responses,
        };
        self.0
            .send(opened)
            .await
            .map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("sources ask in the other protocol"))
    }
}

/// A server and its source.
struct Rig {
    address: SocketAddr,
    opened: mpsc::Sender<Opened>,
    streams: mpsc::Receiver<Opened>,
    events: mpsc::Receiver<Batch>,
    metrics: XdsMetrics,
    serve: JoinHandle<()>,
    run: JoinHandle<()>,
}

/// Serves until the task is aborted, which closes all connections.
fn serve(listener: TcpListener, opened: mpsc::Sender<Opened>) -> JoinHandle<()> {
    let service = AggregatedDiscoveryServiceServer::new(Server(opened));
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(async move {
        drop(
            server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await,
        )
    })
}

impl Rig {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (opened, streams) = mpsc::channel(4);
        let serve = serve(listener, opened.clone());
        let (sender, events) = mpsc::channel(16);
        let metrics = XdsMetrics::default();
        let mut source = XdsSource::new(XdsSourceConfig {
            address: address.to_string(),
            tls: None,
            services_alone: false,
            scope: KubernetesScope {
                revision: "canary".to_owned(),
                ..KubernetesScope::default()
            },
            pod: Arc::from("istiod-1"),
            secrets: None,
            metrics: metrics.clone(),
        });

        source.max_response = LARGEST;
        let run = tokio::spawn(source.run(sender));
        Self {
            address,
            opened,
            streams,
            events,
            metrics,
            serve,
            run,
        }
    }

    /// The next stream that the source opens.
    async fn stream(&mut self) -> Opened {
        timeout(TIMEOUT, self.streams.recv())
            .await
            .unwrap()
            .unwrap()
    }

    /// The next events in brief.
    async fn next(&mut self) -> Vec<String> {
        let batch = timeout(TIMEOUT, self.events.recv()).await.unwrap().unwrap();
        batch.into_iter().map(brief).collect()
    }

    /// The numbers of accepted and rejected responses.
    fn answered(&self) -> [u64; 2] {
        ["ack", "nack"].map(|answer| {
            self.metrics
                .count(&format!("xds://{}", self.address), answer)
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serve.abort();
        self.run.abort();
    }
}

impl Opened {
    async fn request(&mut self) -> DiscoveryRequest {
        timeout(TIMEOUT, self.requests.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap()
    }

    /// Receives one request for each type.
    async fn all_types(&mut self) -> Vec<DiscoveryRequest> {
        let mut all = Vec::new();
        for _ in mcp::kinds() {
            all.push(self.request().await);
        }
        all
    }

    /// Sends all resources of a type.
    async fn tell(&self, type_url: &str, version: &str, resources: Vec<Any>) {
        let type_url = type_url.to_owned();
        let version_info = version.to_owned();
        let nonce = format!("nonce of {version}");
        let response = DiscoveryResponse {
            type_url,
            version_info,
            resources,
            nonce,
            ..DiscoveryResponse::default()
        };
        self.responses.send(Ok(response)).await.unwrap();
    }

    /// Sends all resources of a type; returns the version that the source has accepted, and its
    /// error if it rejects the response.
    async fn send(
        &mut self,
        type_url: &str,
        version: &str,
        resources: Vec<Any>,
    ) -> (String, Option<String>) {
        self.tell(type_url, version, resources).await;
        let answer = self.request().await;
        assert_eq!(
            (answer.type_url.as_str(), answer.response_nonce),
            (type_url, format!("nonce of {version}"))
        );
        (
            answer.version_info,
            answer.error_detail.map(|detail| detail.message),
        )
    }

    /// As [`Opened::send`] of VirtualServices.
    async fn routes(&mut self, version: &str, resources: Vec<Any>) -> (String, Option<String>) {
        self.send(VIRTUAL_SERVICES, version, resources).await
    }
}

/// An event in brief: of problems the object and the first problem. Problems of the source as a
/// whole have no object.
fn brief(event: SourceEvent) -> String {
    match event {
        SourceEvent::Added(object) => format!("+{}", object.meta().key()),
        SourceEvent::Updated(object) => format!("~{}", object.meta().key()),
        SourceEvent::Deleted(name) => format!("-{}", name.name),
        SourceEvent::Problems { place, problems } => {
            let object = place
                .strip_prefix("xds://")
                .unwrap()
                .split_once('/')
                .map_or("", |(_, object)| object);
            let problem = problems
                .first()
                .map_or("well".to_owned(), |problem| problem.fault.to_string());
            format!("{object}: {problem}")
        }
        SourceEvent::FullSync => "synced".to_owned(),
        event @ (SourceEvent::MeshConfig(_)
        | SourceEvent::MeshNetworks(_)
        | SourceEvent::Keys(..)) => {
            panic!("not of this source: {event:?}")
        }
    }
}

/// A VirtualService as a resource.
fn virtual_service(name: &str, host: &str, labels: Value) -> Any {
    let route = json!([{ "route": [{ "destination": { "host": "reviews" } }] }]);
    let (_, outcome) = decode_value(&json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": name, "namespace": "shop", "labels": labels }, "spec": { "hosts": [host], "http": route },
    }));
    let Outcome::Read { object, .. } = outcome else {
        panic!("{outcome:?}")
    };
    Any {
        type_url: mcp::RESOURCE_URL.to_owned(),
        value: mcp::encode(&object).unwrap().into(),
    }
}

/// A VirtualService for this host.
fn route(name: &str, host: &str) -> Any {
    virtual_service(name, host, json!({}))
}

/// A resource of another type.
fn stranger() -> Any {
    Any {
        type_url: "type.googleapis.com/google.protobuf.Empty".to_owned(),
        value: Vec::new(),
    }
}

#[tokio::test]
async fn valid_resources_are_accepted_and_others_rejected_with_name_and_field() {
    let mut rig = Rig::start().await;
    let mut stream = rig.stream().await;
    let requests = stream.all_types().await;
    let node = requests[0].node.clone().unwrap();
    assert_eq!(
        node.id,
        "sidecar~127.0.0.1~istiod-1.istio-system~istio-system.svc.cluster.local"
    );

    let metadata = node.metadata.unwrap().fields;
    assert_eq!(
        metadata["GENERATOR"].kind,
        Some(ValueKind::StringValue("api".to_owned()))
    );
    assert_eq!(
        metadata["ISTIO_REVISION"].kind,
        Some(ValueKind::StringValue("canary".to_owned()))
    );

    assert!(
        requests[1..].iter().all(|request| request.node.is_none()),
        "the problem is reported once"
    );

    let of_another_revision =
        virtual_service("other", "o.com", json!({ "istio.io/rev": "stable" }));
    let answer = stream
        .routes(
            "1",
            vec![
                route("good", "a.com"),
                route("bad", "b.com"),
                of_another_revision,
            ],
        )
        .await;

    assert_eq!(answer, ("1".to_owned(), None));
    assert_eq!(rig.next().await, ["+shop/good", "+shop/bad"]);

    let (version, nack) = stream
        .routes("2", vec![route("good", "c.com"), route("bad", "*.*")])
        .await;
    let nack = nack.unwrap();
    assert!(
        nack.starts_with("VirtualService shop/bad: spec.hosts"),
        "{nack}"
    );

    assert_eq!(
        version, "1",
        "the previous version is still the accepted one"
    );
    let reason = nack.strip_prefix("VirtualService shop/bad: ").unwrap();
    assert_eq!(
        rig.next().await,
        [
            "~shop/good".to_owned(),
            format!("VirtualService/shop/bad: {reason}")
        ]
    );

    assert_eq!(rig.answered(), [1, 1]);

    // An invalid resource is rejected as long as it is invalid, and its last valid version stays;
    // then the problem is resolved.
    let (version, nack) = stream
        .routes("3", vec![route("good", "c.com"), route("bad", "*.*")])
        .await;
    assert_eq!(
        (version.as_str(), nack.as_deref()),
        (
            "1",
            Some(format!("VirtualService shop/bad: {reason}").as_str())
        )
    );

    assert_eq!(
        rig.next().await,
        [format!("VirtualService/shop/bad: {reason}")]
    );
    assert_eq!(
        stream.routes("4", vec![route("bad", "b.com")]).await,
        ("4".to_owned(), None)
    );

    assert_eq!(
        rig.next().await,
        ["VirtualService/shop/bad: well", "-shop/good"]
    );
    assert_eq!(rig.answered(), [2, 2]);
}

#[tokio::test]
async fn unnamed_resources_prevent_deletions() {
    let mut rig = Rig::start().await;
    let mut stream = rig.stream().await;
    stream.all_types().await;
    stream
        .routes("1", vec![route("a", "a.com"), route("b", "b.com")])
        .await;
    assert_eq!(rig.next().await, ["+shop/a", "+shop/b"]);

    let (version, nack) = stream
        .routes("2", vec![route("a", "c.com"), stranger(), stranger()])
        .await;
    assert_eq!(version, "1");
    assert_eq!(
        nack.unwrap(),
        "2 resources are not of type type.googleapis.com/istio.mcp.v1alpha1.Resource"
    );

    assert_eq!(
        rig.next().await,
        ["~shop/a"],
        "either of the other resources may be b"
    );

    let garbled = Any {
        type_url: mcp::RESOURCE_URL.to_owned(),
        value: vec![0xff; 9],
    };
    let (_, nack) = stream.routes("3", vec![route("a", "d.com"), garbled]).await;
    let nack = nack.unwrap();
    assert!(
        nack.starts_with(
            "VirtualService: is not a type.googleapis.com/istio.mcp.v1alpha1.Resource: "
        ),
        "{nack}"
    );

    let events = rig.next().await;
    assert_eq!(events[0], "~shop/a");
    assert!(
        events.len() == 2 && events[1].starts_with("VirtualService: is not a "),
        "{events:?}"
    );

    assert_eq!(
        stream.routes("4", vec![route("a", "d.com")]).await,
        ("4".to_owned(), None)
    );
    assert_eq!(rig.next().await, ["VirtualService: well", "-shop/b"]);
}

#[tokio::test]
async fn resources_of_a_wrong_type_are_rejected_and_unrequested_types_ignored() {
    let mut rig = Rig::start().await;
    let mut stream = rig.stream().await;
    stream.all_types().await;
    let (_, nack) = stream
        .send(
            "networking.istio.io/v1/Gateway",
            "1",
            vec![route("a", "a.com")],
        )
        .await;

    let nack = nack.unwrap();
    assert!(
        nack.starts_with("Gateway shop/a: body: must be a istio.networking.v1alpha3.Gateway, is a"),
        "{nack}"
    );
    let events = rig.next().await;
    assert!(
        events.len() == 1 && events[0].starts_with("Gateway/shop/a: body: "),
        "{events:?}"
    );

    // A response without a subscription gets no acknowledgement: the next request is about the next
    // response.
    stream
        .tell(
            "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "1",
            vec![stranger()],
        )
        .await;

    stream
        .tell(
            "networking.istio.io/v1beta1/VirtualService",
            "1",
            vec![route("a", "a.com")],
        )
        .await;

    assert_eq!(
        stream.routes("2", vec![route("a", "a.com")]).await,
        ("2".to_owned(), None)
    );
    assert_eq!(rig.next().await, ["+shop/a"]);
}

#[tokio::test]
async fn configuration_survives_a_disconnect_and_the_source_reconnects() {
    let mut rig = Rig::start().await;
    let mut stream = rig.stream().await;
    let requests = stream.all_types().await;
    stream
        .routes("1", vec![route("a", "a.com"), route("b", "b.com")])
        .await;
    assert_eq!(rig.next().await, ["+shop/a", "+shop/b"]);
    let others = requests
        .iter()
        .filter(|request| request.type_url != VIRTUAL_SERVICES);

    for request in others {
        assert_eq!(
            stream.send(&request.type_url, "1", Vec::new()).await,
            ("1".to_owned(), None)
        );
    }

    assert_eq!(rig.next().await, ["synced"], "once all types are answered");

    // The stream ends, and on the next one only differences are reported.
    stream
        .responses
        .send(Err(Status::unavailable("going away")))
        .await
        .unwrap();
    assert_eq!(
        rig.next().await,
        [": cannot be read: the server ended the stream with Unavailable: \"going away\""]
    );

    let mut stream = rig.stream().await;
    let again = stream.all_types().await;
    assert!(again[0].node.is_some() && again.len() == requests.len());
    stream
        .routes("9", vec![route("a", "a.com"), route("b", "*.*")])
        .await;
    let events = rig.next().await;
    assert!(
        events[0].starts_with("VirtualService/shop/b: spec.hosts"),
        "its last valid version stays: {events:?}"
    );

    assert_eq!(events[1..], [": well"]);

    // The server stops and closes its port.
    rig.serve.abort();
    drop(stream);
    let mut events = rig.next().await;
    while !events[0].starts_with(": cannot be read: failed to connect") {
        assert!(
            events.len() == 1 && events[0].starts_with(": cannot be read: "),
            "{events:?}"
        );
        events = rig.next().await;
    }

    let listener = TcpListener::bind(rig.address).await.unwrap();
    rig.serve = serve(listener, rig.opened.clone());
    let mut stream = rig.stream().await;
    stream.all_types().await;
    stream
        .routes("1", vec![route("b", "b.com"), route("c", "c.com")])
        .await;
    let mut events = rig.next().await;
    while events.len() == 1 && events[0].starts_with(": cannot be read: ") {
        events = rig.next().await;
    }

    assert_eq!(
        events,
        [
            "VirtualService/shop/b: well",
            "+shop/c",
            "-shop/a",
            ": well"
        ]
    );
}

#[tokio::test]
async fn a_response_that_is_too_large_ends_the_stream_and_keeps_all_objects() {
    let mut rig = Rig::start().await;
    let mut stream = rig.stream().await;
    stream.all_types().await;
    stream.routes("1", vec![route("a", "a.com")]).await;
    assert_eq!(rig.next().await, ["+shop/a"]);
    let large = Any {
        type_url: mcp::RESOURCE_URL.to_owned(),
        value: vec![0; LARGEST],
    };
    stream.tell(VIRTUAL_SERVICES, "2", vec![large]).await;

    let events = rig.next().await;
    assert!(
        events.len() == 1
            && events[0].starts_with(": cannot be read: the server ended the stream with"),
        "{events:?}"
    );
    assert!(events[0].contains("message length too large"), "{events:?}");

    let mut stream = rig.stream().await;
    stream.all_types().await;
    assert_eq!(
        stream.routes("3", vec![route("a", "a.com")]).await,
        ("3".to_owned(), None)
    );
    assert_eq!(rig.next().await, [": well"], "no object was lost");
}
