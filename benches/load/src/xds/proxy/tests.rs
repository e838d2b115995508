//! Proxies against a tonic server on real sockets.

use std::sync::atomic::{AtomicUsize, Ordering};

use navarch_proto::envoy::config::cluster::v3::{Cluster, cluster};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::AggregatedDiscoveryServiceServer;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;

use super::*;
use crate::xds::answering::{Answer, Answering};
use crate::xds::resource_type::ResourceType;

/// The number of the server's clusters: their names exceed its flow-control window.
const CLUSTERS: usize = 3_000;

/// A server of the delta protocol that sends the resources of each subscription, and breaks streams
/// on demand.
#[derive(Clone, Debug, Default)]
struct Server {
    /// The number of acknowledgements.
    answers: Arc<AtomicUsize>,
    /// The number of `initial_resource_versions` from proxies.
    versions: Arc<AtomicUsize>,
    /// Streams that are still to be broken after the first request.
    breaks: Arc<AtomicUsize>,
}

impl Server {
    /// The outcome of a request.
    fn take(&self, request: &DeltaDiscoveryRequest) -> Answer {
        let take = |left: usize| left.checked_sub(1);
        match self
            .breaks
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
        {
            Ok(_) => ControlFlow::Break(()),
            Err(_) => ControlFlow::Continue(self.answer(request)),
        }
    }

    /// The response to a request.
    fn answer(&self, request: &DeltaDiscoveryRequest) -> Option<DeltaDiscoveryResponse> {
        self.versions
            .fetch_add(request.initial_resource_versions.len(), Ordering::SeqCst);

        if !request.response_nonce.is_empty() {
            self.answers.fetch_add(1, Ordering::SeqCst);
            return None;
        }

        let resource_type = ResourceType::of(request.type_url.as_bytes()).unwrap();
        let resource = |name: String, content: Vec<u8>| {
            let any = prost_types::Any {
                type_url: request.type_url.clone(),
                value: content,
            };
            Resource {
                name,
                version: "1".to_owned(),
                resource: Some(any),
                ..Resource::default()
            }
        };

        let resources = match resource_type {
            ResourceType::Clusters => {
                let discovery =
                    cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds.into());
                let name = |n| {
                    format!("outbound|80||a-service-of-a-long-name-{n}.namespace.svc.cluster.local")
                };
                let content = |name: String| {
                    let kind = Some(discovery.clone());
                    Cluster {
                        name,
                        cluster_discovery_type: kind,
                        ..Cluster::default()
                    }
                    .encode_to_vec()
                };

                (0..CLUSTERS)
                    .map(|n| resource(name(n), content(name(n))))
                    .collect()
            }
            ResourceType::Endpoints => {
                let names = request.resource_names_subscribe.iter();
                names
                    .map(|name| resource(name.clone(), vec![b'x'; 300]))
                    .collect()
            }
            ResourceType::Listeners | ResourceType::Routes | ResourceType::VirtualHosts => {
                Vec::new()
            }
        };

        let nonce = "n".to_owned();
        Some(DeltaDiscoveryResponse {
            resources,
            type_url: request.type_url.clone(),
            nonce,
            ..Default::default()
        })
    }
}

/// Waits until a condition holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    navarch_testkit::wait::until(what, async || holds()).await;
}

/// The state that proxies share, and the sender of their phase.
fn shared(
    server: SocketAddr,
    protocol: Protocol,
    proxies: usize,
) -> (Arc<Shared>, watch::Sender<Phase>) {
    let (sender, phase) = watch::channel(Phase::Connected(0));
    let names = Names::default();
    let tally = Tally::new(proxies);
    (
        Arc::new(Shared {
            server,
            protocol,
            encoding: Some(Encoding::Zstd),
            omits_versions: false,
            names,
            tally,
            phase,
        }),
        sender,
    )
}

#[tokio::test]
async fn proxies_follow_disconnect_and_reconnect_with_their_state() {
    const PROXIES: usize = 3;
    let server = Server {
        breaks: Arc::new(AtomicUsize::new(1)),
        ..Server::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();

    // HTTP/2's default windows, which the names of all clusters exceed.
    let taking = server.clone();
    let service =
        AggregatedDiscoveryServiceServer::new(Answering(move |request: &_| taking.take(request)))
            .send_compressed(CompressionEncoding::Zstd);
    let serving = tonic::transport::Server::builder()
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .add_service(service.max_decoding_message_size(64 << 20))
        .serve_with_incoming(TcpListenerStream::new(listener));

    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { serving.await.unwrap() });
    let (shared, phase) = shared(address, Protocol::Delta, PROXIES);
    let mut proxies = tokio::task::JoinSet::new();

    for number in 0..PROXIES {
        // One proxy delays each response.
        let pause = Duration::from_millis(if number == 0 { 50 } else { 0 });
        proxies.spawn(
            Proxy {
                shared: shared.clone(),
                number,
                node: Node::default(),
                pause,
            }
            .run(),
        );
    }

    until("the first sync", || shared.tally.in_sync() == PROXIES).await;
    until("an answer to each response", || {
        server.answers.load(Ordering::SeqCst) == 3 * PROXIES
    })
    .await;
    let counts = shared.tally.counts();

    for resource_type in [ResourceType::Clusters, ResourceType::Endpoints] {
        let count = counts[resource_type.index()];
        assert_eq!(
            (count.responses, count.resources),
            (PROXIES as u64, (PROXIES * CLUSTERS) as u64),
            "{resource_type:?}"
        );
    }

    assert_eq!(
        (
            server.versions.load(Ordering::SeqCst),
            shared.tally.troubles()
        ),
        (0, (1, 0))
    );

    shared.tally.reset_sync();
    phase.send_replace(Phase::Connected(1));
    until("the second sync", || shared.tally.in_sync() == PROXIES).await;
    until("all versions", || {
        server.versions.load(Ordering::SeqCst) == PROXIES * 2 * CLUSTERS
    })
    .await;
    assert_eq!(shared.tally.troubles(), (1, 0));

    phase.send_replace(Phase::Ended);
    tokio::time::timeout(Duration::from_secs(60), proxies.join_all())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_server_with_another_protocol_breaks_the_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (shared, phase) = shared(listener.local_addr().unwrap(), Protocol::Sotw, 1);
    let mut proxies = tokio::task::JoinSet::new();
    let node = Node::default();
    proxies.spawn(
        Proxy {
            shared: shared.clone(),
            number: 0,
            node,
            pause: Duration::ZERO,
        }
        .run(),
    );

    for broken in 1..=2 {
        let (socket, _) = listener.accept().await.unwrap();
        socket.writable().await.unwrap();
        socket
            .try_write(b"HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n")
            .unwrap();
        until("the end of the stream", || {
            shared.tally.troubles().0 == broken
        })
        .await;
    }

    phase.send_replace(Phase::Ended);
    tokio::time::timeout(Duration::from_secs(60), async {
        let _held = listener;
        proxies.join_all().await;
    })
    .await
    .unwrap();
}
