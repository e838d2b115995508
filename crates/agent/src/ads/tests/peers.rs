//! The agent's own subscriptions to peers on Envoy's stream.

use super::*;
use crate::mesh_metrics::{WORKLOAD, Workload};

const BUYER: &str = "spiffe://td/ns/shop/sa/buyer";

/// Envoy's stream, which has subscribed to listeners, and that of the control plane.
async fn open(world: &mut World) -> DeltaStream {
    let mut stream = world.open_delta(ask_delta(own::LISTENER)).await;
    assert_eq!(stream.first.type_url, own::LISTENER);
    let second = stream.visit.next_request().await;
    assert_eq!(second.type_url, own::NAME_TABLE);
    stream
}

/// Waits until entries of this client wait for its workload, and the control plane has the
/// subscription.
async fn requested(
    metrics: &MeshMetrics,
    visit: &mut Visit<DeltaDiscoveryRequest, DeltaDiscoveryResponse>,
) -> Vec<String> {
    while !metrics.look_up_client("10.0.0.1", BUYER) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let request = visit.next_request().await;
    assert_eq!(request.type_url, WORKLOAD);
    request.resource_names_subscribe
}

fn response(removed: &str) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        type_url: WORKLOAD.to_owned(),
        removed_resources: vec![removed.to_owned()],
        nonce: "n1".to_owned(),
        ..DeltaDiscoveryResponse::default()
    }
}

#[tokio::test]
async fn peers_are_requested_on_envoys_stream_and_not_forwarded_to_envoy() {
    let metrics = MeshMetrics::in_network(Workload::default(), "1", "net");
    let mut world = world_with(Some(metrics.clone())).await;
    let mut envoy = open(&mut world).await;
    assert_eq!(
        requested(&metrics, &mut envoy.visit).await,
        ["net/10.0.0.1"]
    );
    envoy
        .visit
        .answers
        .send(Ok(response("net/10.0.0.1")))
        .await
        .unwrap();

    let ack = envoy.visit.next_request().await;
    assert_eq!(
        (
            ack.type_url.as_str(),
            ack.response_nonce.as_str(),
            ack.error_detail
        ),
        (WORKLOAD, "n1", None)
    );

    assert!(
        !metrics.look_up_client("10.0.0.1", BUYER),
        "the absence of a workload is cached"
    );

    // The subscription is repeated on a new stream.
    envoy
        .visit
        .answers
        .send(Err(Status::unavailable("it restarts")))
        .await
        .unwrap();
    assert_eq!(
        envoy.answers.message().await.unwrap_err().code(),
        tonic::Code::Unavailable
    );

    let mut envoy = open(&mut world).await;
    let again = envoy.visit.next_request().await;
    assert_eq!(
        (again.type_url.as_str(), again.resource_names_subscribe),
        (WORKLOAD, vec!["net/10.0.0.1".to_owned()])
    );
    world.stop.cancel();
}

#[tokio::test]
async fn peers_are_not_requested_again_after_unimplemented() {
    let metrics = MeshMetrics::in_network(Workload::default(), "1", "");
    let mut world = world_with(Some(metrics.clone())).await;
    let mut envoy = open(&mut world).await;
    assert_eq!(requested(&metrics, &mut envoy.visit).await, ["/10.0.0.1"]);
    envoy
        .visit
        .answers
        .send(Err(Status::unimplemented("what is that")))
        .await
        .unwrap();

    assert_eq!(
        envoy.answers.message().await.unwrap_err().code(),
        tonic::Code::Unimplemented
    );
    let mut envoy = open(&mut world).await;
    assert!(
        !metrics.look_up_client("10.0.0.1", BUYER) && !metrics.look_up_client("10.0.0.2", BUYER)
    );

    envoy.asks.send(ask_delta(CLUSTER)).await.unwrap();
    assert_eq!(envoy.visit.next_request().await.type_url, CLUSTER);
    envoy
        .visit
        .answers
        .send(Ok(DeltaDiscoveryResponse {
            type_url: CLUSTER.to_owned(),
            ..Default::default()
        }))
        .await
        .unwrap();

    assert_eq!(
        envoy.answers.message().await.unwrap().unwrap().type_url,
        CLUSTER
    );
    world.stop.cancel();
}

#[tokio::test]
async fn workloads_that_envoy_requests_are_forwarded_to_envoy() {
    let metrics = MeshMetrics::in_network(Workload::default(), "1", "");
    let mut world = world_with(Some(metrics.clone())).await;
    let mut envoy = open(&mut world).await;
    envoy.asks.send(ask_delta(WORKLOAD)).await.unwrap();
    assert_eq!(envoy.visit.next_request().await.type_url, WORKLOAD);

    envoy.visit.answers.send(Ok(response("x"))).await.unwrap();
    assert_eq!(
        envoy.answers.message().await.unwrap().unwrap(),
        response("x")
    );
    metrics.look_up_client("10.0.0.1", BUYER);
    envoy.asks.send(ask_delta(CLUSTER)).await.unwrap();
    assert_eq!(
        envoy.visit.next_request().await.type_url,
        CLUSTER,
        "the agent subscribes to no peer"
    );

    world.stop.cancel();
}
