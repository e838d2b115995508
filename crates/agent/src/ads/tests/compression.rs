//! Responses that the control plane compresses.

use tonic::Code;

use super::*;

/// A response with one resource of this many zeros.
fn response(bytes: usize) -> DiscoveryResponse {
    DiscoveryResponse {
        resources: vec![Any {
            type_url: CLUSTER.to_owned(),
            value: vec![0; bytes],
        }],
        type_url: CLUSTER.to_owned(),
        ..DiscoveryResponse::default()
    }
}

#[tokio::test]
async fn envoy_gets_compressed_responses_in_plain() {
    let mut world = world().await;
    let mut envoy = world.open(CLUSTER).await;
    let accepted = envoy.visit.headers.get("grpc-accept-encoding").unwrap();
    assert_eq!(accepted, "zstd,gzip,identity");

    let sent = response(1 << 20);
    envoy.visit.answers.send(Ok(sent.clone())).await.unwrap();
    assert_eq!(envoy.answers.message().await.unwrap().unwrap(), sent);
}

#[tokio::test]
async fn a_response_that_expands_beyond_the_limit_ends_the_stream() {
    let mut world = world().await;
    let mut envoy = world.open(CLUSTER).await;
    let bomb = response(2 * MAX_TEST_RESPONSE);
    envoy.visit.answers.send(Ok(bomb)).await.unwrap();
    let status = envoy.answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
}
