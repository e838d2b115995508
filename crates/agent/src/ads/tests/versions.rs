//! Versions of resources that the control plane leaves to the agent.

use navarch_base::resource_version::{OMIT_VERSIONS, OMIT_VERSIONS_VALUE, Version};
use navarch_proto::envoy::service::discovery::v3::Resource;

use super::*;

#[tokio::test]
async fn envoy_gets_the_versions_that_the_control_plane_omits() {
    let mut world = world().await;
    let request = DeltaDiscoveryRequest {
        type_url: CLUSTER.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    let mut envoy = world.open_delta(request).await;
    let asked = envoy.visit.headers.get(OMIT_VERSIONS).unwrap();
    assert_eq!(asked, OMIT_VERSIONS_VALUE);

    for bytes in [3, 1 << 20] {
        let body = vec![7; bytes];
        let mut sent = DeltaDiscoveryResponse {
            resources: vec![Resource {
                name: "a".to_owned(),
                resource: Some(Any {
                    type_url: CLUSTER.to_owned(),
                    value: body.clone(),
                }),
                ..Resource::default()
            }],
            type_url: CLUSTER.to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        envoy.visit.answers.send(Ok(sent.clone())).await.unwrap();

        sent.resources[0].version = Version::of(&body).to_string();
        assert_eq!(envoy.answers.message().await.unwrap().unwrap(), sent);
    }
}

#[tokio::test]
async fn streams_without_versions_of_resources_do_not_ask() {
    let mut world = world().await;
    let envoy = world.open(CLUSTER).await;
    assert!(envoy.visit.headers.get(OMIT_VERSIONS).is_none());
}
