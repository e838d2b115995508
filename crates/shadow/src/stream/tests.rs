#![expect(clippy::disallowed_methods, reason = "the server ends with the test")]

use std::net::{Ipv4Addr, SocketAddr};

use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use navarch_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Response;
use tonic::transport::{Endpoint, Server};

use super::*;

/// The time between two responses.
const PAUSE: Duration = Duration::from_millis(20);

/// A control plane that sends routes for ever, for subscriptions to any type, and reads no request.
struct Endless;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Endless {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("shadows ask in the other protocol"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (responses, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            // Dropped unread requests would end the stream.
            let _requests = request.into_inner();
            loop {
                let response = DeltaDiscoveryResponse {
                    type_url: ResourceType::Route.type_url().to_owned(),
                    ..DeltaDiscoveryResponse::default()
                };
                if responses.send(Ok(response)).await.is_err() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Serves until the runtime ends.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(AggregatedDiscoveryServiceServer::new(Endless));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

#[tokio::test]
async fn a_control_plane_that_sends_other_types_for_ever_is_left_at_the_timeout() {
    let address = serve().await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let config = StreamConfig {
        authorization: None,
        timeout: 10 * PAUSE,
    };
    let channel = endpoint.connect().await.unwrap();
    let codec = Codec::new();

    let types = [ResourceType::Cluster];
    let asking = ask(channel, &config, Node::default(), &types, &codec);
    let answered = tokio::time::timeout(Duration::from_secs(10), asking).await;
    let error = answered.expect("the deadline ends it").unwrap_err();
    assert!(
        matches!(
            error,
            StreamError::Slow {
                types: "clusters",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_resource_without_a_name_in_its_message_is_wrapped() {
    let table = to_json(ResourceType::NameTable, "", json!({ "table": {} }));
    let cluster = to_json(ResourceType::Cluster, "c", json!({ "name": "c" }));
    assert_eq!(table["name"], "nametable");
    assert_eq!(cluster, json!({ "name": "c" }));
}
