//! Two replicas send the same bytes, and a stopping replica closes the streams of its proxies,
//! which reconnect to the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_testkit::navarch::Navarch;
use prost_types::value::Kind;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::edge::{self, Edge};
use super::{cluster, program};

/// The types to subscribe to.
const TYPES: [&str; 2] = [
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
];

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A stream that subscribes as the gateway does.
pub(super) struct Stream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Stream {
    pub(super) async fn open(server: SocketAddr) -> Result<Self> {
        let mut client =
            AggregatedDiscoveryServiceClient::connect(format!("http://{server}")).await?;
        let (requests, outgoing) = mpsc::channel(8);
        let text = |text: &str| prost_types::Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let labels = prost_types::Struct {
            fields: [("istio".to_owned(), text("ingressgateway"))].into(),
        };

        let metadata = prost_types::Struct {
            fields: [
                ("NAMESPACE".to_owned(), text("edge")),
                ("CLUSTER_ID".to_owned(), text("Kubernetes")),
                (
                    "LABELS".to_owned(),
                    prost_types::Value {
                        kind: Some(Kind::StructValue(labels)),
                    },
                ),
            ]
            .into(),
        };

        let id = "router~10.0.0.9~gateway-9.edge~edge.svc.cluster.local".to_owned();
        let node = Some(Node {
            id,
            metadata: Some(metadata),
            ..Node::default()
        });

        requests
            .send(DeltaDiscoveryRequest {
                node,
                type_url: TYPES[0].to_owned(),
                ..Default::default()
            })
            .await?;

        let responses = client
            .delta_aggregated_resources(ReceiverStream::new(outgoing))
            .await?
            .into_inner();

        Ok(Self {
            requests,
            responses,
        })
    }

    /// All resources of the types, by name.
    async fn resources(&mut self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut resources = BTreeMap::new();
        for (index, type_url) in TYPES.iter().enumerate() {
            if index > 0 {
                let ask = DeltaDiscoveryRequest {
                    type_url: (*type_url).to_owned(),
                    ..Default::default()
                };
                self.requests.send(ask).await?;
            }
            resources.extend(self.take(type_url).await?);
        }
        Ok(resources)
    }

    /// Subscribes to a route configuration, and acknowledges it.
    pub(super) async fn route(&mut self, name: &str) -> Result<()> {
        self.take(TYPES[0]).await?;
        let type_url = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
        let resource_names_subscribe = vec![name.to_owned()];
        let ask = DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names_subscribe,
            ..Default::default()
        };
        self.requests.send(ask).await?;
        self.take(type_url).await.map(drop)
    }

    /// The next response, not acknowledged yet.
    pub(super) async fn response(&mut self) -> Result<DeltaDiscoveryResponse> {
        timeout(TIMEOUT, self.responses.message())
            .await??
            .context("the stream ended")
    }

    pub(super) async fn acknowledge(&self, response: &DeltaDiscoveryResponse) -> Result<()> {
        let response_nonce = response.nonce.clone();
        let type_url = response.type_url.clone();
        let taken = DeltaDiscoveryRequest {
            type_url,
            response_nonce,
            ..Default::default()
        };
        self.requests.send(taken).await.context("the stream ended")
    }

    /// Acknowledges responses until one of a type arrives, and returns that.
    async fn take(&mut self, type_url: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        loop {
            let response = self.response().await?;
            self.acknowledge(&response).await?;
            if response.type_url == type_url {
                let named = response.resources.into_iter().map(|resource| {
                    let any = resource.resource.context("a resource without content")?;
                    Ok((
                        format!("{} {}", any.type_url, resource.name),
                        any.value.to_vec(),
                    ))
                });
                return named.collect();
            }
        }
    }
}

/// What a replica sends on a new stream.
async fn resources_of(replica: &Navarch) -> Result<BTreeMap<String, Vec<u8>>> {
    Stream::open(replica.xds).await?.resources().await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_serve_the_same_bytes_and_send_proxies_on_when_they_end() -> Result<()> {
    let guard = cluster().await?;
    let cluster = guard.as_ref().context("a cluster")?;
    let edge = Edge::open(cluster.writer().await?).await?;
    for (name, status) in [("a", 201), ("b", 202), ("c", 203)] {
        edge.answer(name, status).await?;
    }

    let first =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &[]).await?;
    let mut stream = Stream::open(first.xds).await?;
    let served = stream.resources().await?;
    ensure!(
        served.keys().any(|name| name.contains("Listener")),
        "the first replica sent resources: {:?}",
        served.keys()
    );

    // The first replica has received the objects one by one; the second reads them all at its
    // start.
    edge.answer("d", 204).await?;
    edge.writer.delete(&edge::answer("b", 202)).await?;
    let second =
        Navarch::start_on_kubernetes(program(), &cluster.admin_kubeconfig(), &[], &[]).await?;
    let of_second = resources_of(&second).await?;
    // A removed object stays in force for a moment.
    edge::eventually("both replicas send the same bytes", async || {
        let of_first = resources_of(&first).await;
        of_first.is_ok_and(|of_first| of_first == of_second)
    })
    .await;

    // On SIGTERM the first replica closes its streams, then exits, while the second keeps serving.
    let begun = Instant::now();
    let ending = tokio::spawn(first.stop());
    while let Ok(Some(_)) = timeout(TIMEOUT, stream.responses.message()).await? {}
    println!("SIGTERM: the stream was closed after {:?}", begun.elapsed());

    ensure!(ending.await??, "the first replica exits by itself");
    println!("SIGTERM: the process ended after {:?}", begun.elapsed());
    let again = resources_of(&second).await?;
    ensure!(
        again == of_second,
        "the second replica still sends the same bytes"
    );
    ensure!(second.stop().await?, "navarch exits on SIGTERM");

    Ok(())
}
