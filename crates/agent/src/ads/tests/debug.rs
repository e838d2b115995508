//! Debug requests beside Envoy's stream.

use super::*;

const SYNCZ: &str = "istio.io/debug/syncz";

/// Sends a debug request.
async fn syncz(world: &World) -> Result<DiscoveryResponse, Status> {
    let node = navarch_proto::envoy::config::core::v3::Node::default();
    world
        .debug
        .send(node, SYNCZ.to_owned(), vec!["web-1.shop".to_owned()])
        .await
}

/// Envoy's stream goes on: it gets the next response of the control plane.
async fn expect_response(envoy: &mut StateStream) {
    let clusters = DiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        ..DiscoveryResponse::default()
    };
    let sent = envoy.visit.answers.send(Ok(clusters.clone())).await;
    sent.unwrap();

    let received = envoy.answers.message().await.unwrap();
    assert_eq!(received, Some(clusters), "Envoy's stream goes on");
}

#[tokio::test]
async fn a_debug_request_has_a_stream_of_its_own_while_envoy_has_one() {
    let mut world = world().await;
    let status = syncz(&world).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "Envoy has none");
    let mut envoy = world.open(CLUSTER).await;

    let debug = world.debug.clone();
    let node = navarch_proto::envoy::config::core::v3::Node::default();
    let asked = debug.send(node, SYNCZ.to_owned(), Vec::new());
    let answering = async {
        let mut visit = world.state.recv().await.unwrap();
        assert_eq!(visit.headers.get("authorization").unwrap(), "Bearer first");
        let request = visit.next_request().await;
        assert_eq!(request.type_url, SYNCZ);
        let rejected = Err(Status::permission_denied("not you"));
        visit.answers.send(rejected).await.unwrap();
    };
    let (status, ()) = tokio::join!(asked, answering);
    assert_eq!(
        status.unwrap_err().code(),
        tonic::Code::PermissionDenied,
        "the control plane's status"
    );

    expect_response(&mut envoy).await;

    drop(envoy.visit);
    assert!(envoy.answers.message().await.unwrap().is_none());
    let status = syncz(&world).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "its stream ended");
    world.stop.cancel();
}

#[tokio::test]
async fn a_stream_of_debug_requests_does_not_replace_envoys() {
    let mut world = world().await;
    let mut envoy = world.open(CLUSTER).await;
    let debug = world.open(SYNCZ).await;
    assert_eq!(debug.first.type_url, SYNCZ);

    expect_response(&mut envoy).await;
    world.stop.cancel();
}
