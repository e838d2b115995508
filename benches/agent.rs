//! The agent's cost: responses of its DNS server (throughput and the 99th percentile), and a push
//! of 1,000 clusters through its ADS proxy. Its memory is measured by `scripts/bench-agent`. The
//! whole run takes half a minute.

#![allow(
    missing_docs,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::missing_docs_in_private_items,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the macros of criterion generate functions without docs, and a failing bench must report it"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use navarch::agent::ads::{self, AdsConfig, OpenConnections};
use navarch::agent::dns::{
    self, BeforeTable, Carrier, DnsAnswer, DnsConfig, DnsServer, NameTableSink, Table, TableConfig,
    answer,
};
use navarch::agent::metrics::AgentMetrics;
use navarch::agent::socket;
use navarch::agent::upstream::{Transport, Upstream, UpstreamConfig};
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
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

/// The server's allocator, which is part of the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Hosts in the table.
const HOSTS: usize = 10_000;
/// Queries whose latency is measured.
const QUESTIONS: usize = 20_000;
/// Pushes whose latency is measured.
const PUSHES: usize = 500;
/// Clusters in a push, and the size of one in bytes, as a sidecar gets it.
const CLUSTERS: (usize, usize) = (1_000, 1_200);

fn wire() -> NameTable {
    let host = |number: usize| {
        let info = NameInfo {
            ips: vec![format!("10.{}.{}.1", number / 250, number % 250)],
            registry: "Kubernetes".to_owned(),
            shortname: format!("svc-{number}"),
            namespace: "shop".to_owned(),
            ..NameInfo::default()
        };
        (format!("svc-{number}.shop.svc.cluster.local"), info)
    };
    NameTable {
        table: (0..HOSTS).map(host).collect(),
    }
}

fn config() -> TableConfig {
    let search = vec!["shop.svc.cluster.local".to_owned()];
    TableConfig {
        namespace: "shop".to_owned(),
        domain: "shop.svc.cluster.local".to_owned(),
        search,
    }
}

fn question(name: &str) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

fn names(c: &mut Criterion) {
    let wire = wire();
    let config = config();
    c.bench_function("name table of 10,000 hosts prepared", |b| {
        b.iter(|| Table::new(&wire, &config))
    });
    let table = Table::new(&wire, &config);

    for (what, name) in [
        ("answer", "svc-4711.shop.svc.cluster.local."),
        (
            "answer for an alias",
            "svc-4711.shop.svc.cluster.local.shop.svc.cluster.local.",
        ),
        ("a name that is forwarded", "www.example.com."),
    ] {
        let bytes = question(name);
        c.bench_function(what, |b| {
            b.iter(|| {
                let answered = answer(&bytes, Carrier::Udp, Some(&table), 7, false);
                assert!(answered != DnsAnswer::Nothing);
            });
        });
    }

    over_udp(c, wire, config);
}

/// The server as pods reach it: over UDP, on the agent's single thread.
fn over_udp(c: &mut Criterion, wire: NameTable, config: TableConfig) {
    let agent = single_thread();
    let runtime = single_thread();
    let stop = CancellationToken::new();
    let sink = NameTableSink::new(config);
    sink.replace(wire);
    let server = agent.block_on(async {
        let config = DnsConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            resolvers: Vec::new(),
            parallel: false,
            timeout: Duration::from_secs(5),
            before_table: BeforeTable::Fail,
        };
        DnsServer::bind(config, sink).await.unwrap()
    });

    let address = server.addresses().unwrap()[0];
    let stopped = stop.clone();
    let serving = std::thread::spawn(move || agent.block_on(dns::serve(server, stopped)));
    let socket = runtime.block_on(async {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(address).await.unwrap();
        socket
    });

    let bytes = question("svc-4711.shop.svc.cluster.local.");
    let ask = async |count: usize| {
        let mut buffer = [0; 512];
        for _ in 0..count {
            socket.send(&bytes).await.unwrap();
        }
        for _ in 0..count {
            socket.recv(&mut buffer).await.unwrap();
        }
    };

    let mut group = c.benchmark_group("over UDP");
    group.throughput(Throughput::Elements(32));
    group.bench_function("32 queries at a time", |b| {
        b.iter(|| runtime.block_on(ask(32)))
    });
    group.finish();
    latencies(&runtime, async || ask(1).await);
    stop.cancel();

    serving.join().unwrap();
}

/// Runs `one` this number of times in sequence, and returns the durations in ascending order.
async fn times(count: usize, one: impl AsyncFn()) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        one().await;
        times.push(begun.elapsed());
    }
    times.sort();
    times
}

/// Prints the latency of single queries, sent one at a time.
fn latencies(runtime: &Runtime, ask: impl AsyncFn()) {
    let times = runtime.block_on(times(QUESTIONS, ask));
    let second = times.iter().sum::<Duration>().as_secs_f64();
    let [half, most, nearly_all] =
        [2, 100, 1000].map(|part| times[QUESTIONS - 1 - QUESTIONS / part]);
    eprintln!(
        "over UDP/one query at a time: {:.0} responses a second, p50 {half:?}, p99 {most:?}, p99.9 {nearly_all:?}\n",
        QUESTIONS as f64 / second
    );
}

/// The agent's runtime.
fn single_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// A control plane that sends the same response to every request.
struct ControlPlane(DiscoveryResponse);

#[tonic::async_trait]
impl AggregatedDiscoveryService for ControlPlane {
    type StreamAggregatedResourcesStream = std::pin::Pin<
        Box<dyn tokio_stream::Stream<Item = Result<DiscoveryResponse, Status>> + Send>,
    >;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let answer = self.0.clone();
        let answers = request
            .into_inner()
            .map(move |request| request.map(|_| answer.clone()));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

fn pass_through(c: &mut Criterion) {
    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let runtime = Runtime::new().unwrap();
    let any = prost_types::Any {
        type_url: CLUSTER.to_owned(),
        value: vec![7; CLUSTERS.1],
    };
    let push = DiscoveryResponse {
        version_info: "1".to_owned(),
        nonce: "1".to_owned(),
        type_url: CLUSTER.to_owned(),
        resources: vec![any; CLUSTERS.0],
        ..DiscoveryResponse::default()
    };

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("XDS");
    let stop = CancellationToken::new();
    let server = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = AggregatedDiscoveryServiceServer::new(ControlPlane(push));
        runtime.spawn(async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });

        let upstream = UpstreamConfig {
            address: address.to_string(),
            transport: Transport::Plain,
            token: None,
            cluster: String::new(),
            headers: BTreeMap::new(),
            keepalive: Keepalive::default(),
        };

        let upstream = Upstream::new(upstream);
        let metrics = AgentMetrics::default();
        let config = AdsConfig {
            upstream,
            names: None,
            trust: None,
            health: None,
            modules: None,
            mesh_metrics: None,
            side_by_side: false,
            envoys: ads::EnvoyStreams::default(),
            connections: OpenConnections::default(),
            max_response: ads::MAX_RESPONSE_BYTES,
            metrics,
        };

        runtime.spawn(ads::serve(
            socket::listen(&path).unwrap(),
            config,
            stop.clone(),
        ));

        address
    });

    let ways = [
        ("without the agent", format!("http://{server}")),
        ("through the agent", format!("unix://{}", path.display())),
    ];
    let mut group = c.benchmark_group("a push of 1,000 clusters");
    let mut half = Vec::new();

    for (what, url) in ways {
        let envoy = runtime.block_on(Subscriber::connect(url, CLUSTER));
        let envoy = tokio::sync::Mutex::new(envoy);
        let pushed = async || envoy.lock().await.pushed().await;
        group.bench_function(what, |b| b.iter(|| runtime.block_on(pushed())));
        half.push(runtime.block_on(times(PUSHES, pushed))[PUSHES / 2]);
    }

    group.finish();
    let added = half[1].saturating_sub(half[0]);
    eprintln!(
        "a push of 1,000 clusters: the agent adds {added:?} to {:?} (p50 of {PUSHES})\n",
        half[0]
    );
    stop.cancel();
}

/// A client that subscribes to clusters again and again.
struct Subscriber {
    ask: DiscoveryRequest,
    asks: mpsc::Sender<DiscoveryRequest>,
    answers: Streaming<DiscoveryResponse>,
}

impl Subscriber {
    async fn connect(url: String, type_url: &str) -> Self {
        let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
        let (asks, receiver) = mpsc::channel(1);
        let mut client =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let answers = client
            .stream_aggregated_resources(ReceiverStream::new(receiver))
            .await
            .unwrap()
            .into_inner();
        Self {
            ask: DiscoveryRequest {
                type_url: type_url.to_owned(),
                ..DiscoveryRequest::default()
            },
            asks,
            answers,
        }
    }

    async fn pushed(&mut self) {
        self.asks.send(self.ask.clone()).await.unwrap();
        let answer = self.answers.message().await.unwrap().unwrap();
        assert_eq!(answer.resources.len(), CLUSTERS.0);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = names, pass_through
}
criterion_main!(benches);
