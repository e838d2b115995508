//! Subscriptions to peers by address: who may have them, and which are rejected without ambient
//! mode.

use ResourceType::{Address as WDS, Authorization as WADS, Workload as WLDS};
use navarch_push::resource::ResourceType;
use tonic::Code;

use super::bench::*;

#[test]
fn peers_are_indexed_on_the_first_address_request() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1"], &[]);
        assert!(!mesh.push.context().finds_peers);
        client.subscribe(WLDS, &["net/10.0.0.1", "/fd00::1"]).await;
        client
            .take()
            .await
            .is(WLDS, &[], &["/fd00::1", "net/10.0.0.1"]);

        assert!(mesh.push.context().finds_peers);

        // Some addresses are added, some removed.
        client.change(WLDS, &["/10.0.0.2"], &["/fd00::1"]).await;
        client.take().await.is(WLDS, &[], &["/10.0.0.2"]);

        // A wildcard would return the workloads of the whole mesh.
        client.subscribe(WLDS, &["*"]).await;
        assert_eq!(client.end().await.code(), Code::Unimplemented);
    });
}

#[test]
fn workload_resources_are_not_served_outside_ambient_mode() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        let names: [&[&str]; 4] = [
            &[],
            &["*"],
            &["Kubernetes//Pod/shop/web"],
            &["/10.0.0.1", "shop/web"],
        ];

        for names in names {
            let mut client = mesh.delta().await;
            client.subscribe(WLDS, names).await;
            assert_eq!(client.end().await.code(), Code::Unimplemented, "{names:?}");
        }

        for resource_type in [WDS, WADS] {
            let mut client = mesh.delta().await;
            client.subscribe(resource_type, &["/10.0.0.1"]).await;
            assert_eq!(
                client.end().await.code(),
                Code::Unimplemented,
                "{resource_type:?}"
            );
        }

        let mut client = mesh.state().await;
        client.subscribe(WLDS, &["/10.0.0.1"]).await;
        assert_eq!(client.end().await.code(), Code::Unimplemented);
        assert!(!mesh.push.context().finds_peers);
    });
}

#[test]
fn in_ambient_mode_peers_are_indexed_on_request_and_ztunnel_is_unaffected() {
    run(async {
        let mesh = Mesh::ambient().await;
        let mut ztunnel = mesh.delta().await.of(node_of("ztunnel", "z"));

        for (resource_type, names) in [(WLDS, &["/10.0.0.1"][..]), (WDS, &["shop/web"])] {
            ztunnel.subscribe(resource_type, names).await;
            ztunnel.take().await.is(resource_type, &[], names);
        }

        assert!(
            !mesh.push.context().finds_peers,
            "a ztunnel needs no index of remote clusters"
        );

        for kind in ["sidecar", "router", "waypoint"] {
            let mut client = mesh.delta().await.of(node_of(kind, kind));
            client.subscribe(WLDS, &["net/10.0.0.1"]).await;
            client.take().await.is(WLDS, &[], &["net/10.0.0.1"]);
            assert!(mesh.push.context().finds_peers);
            // With this setting all types are served as by istiod: Istio's Envoy may subscribe to
            // them.
            client.subscribe(WLDS, &["*"]).await;
            client.take().await.is(WLDS, &[], &[]);
        }
    });
}
