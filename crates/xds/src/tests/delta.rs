//! The delta protocol.

use std::collections::BTreeMap;

use super::bench::*;

#[test]
fn a_wildcard_subscription_gets_everything_then_only_changes() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1")), (LDS, "b", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1", "b=1"], &[]);
        mesh.edit(&[(LDS, "b", body("2")), (LDS, "c", body("1"))])
            .await;
        client.take().await.is(LDS, &["b=2", "c=1"], &[]);
        mesh.edit(&[(LDS, "a", None)]).await;
        client.take().await.is(LDS, &[], &["a"]);
    });
}

#[test]
fn the_first_response_is_sent_even_if_it_is_empty() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        let mut client = mesh.delta().await;
        client.subscribe(CDS, &["*"]).await;
        client.take().await.is(CDS, &[], &[]);
        client.subscribe(EDS, &["nobody"]).await;
        client.take().await.is(EDS, &[], &["nobody"]);
    });
}

#[test]
fn names_may_be_subscribed_and_unsubscribed() {
    run(async {
        let mesh = Mesh::new(&[(EDS, "a", body("1")), (EDS, "b", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(EDS, &["a"]).await;
        client.take().await.is(EDS, &["a=1"], &[]);
        client.subscribe(EDS, &["b", "nobody"]).await;
        client.take().await.is(EDS, &["b=1"], &["nobody"]);
        client.change(EDS, &[], &["a"]).await;
        mesh.until(|streams| streams[0].types[0].names.len() == 2)
            .await;

        mesh.edit(&[(EDS, "a", body("2"))]).await;
        mesh.edit(&[(EDS, "b", body("2"))]).await;
        client.take().await.is(EDS, &["b=2"], &[]);

        // A resource that is unsubscribed and subscribed again is sent again, changed or not.
        client.change(EDS, &[], &["b"]).await;
        client.subscribe(EDS, &["b"]).await;
        client.take().await.is(EDS, &["b=2"], &[]);
        mesh.edit(&[(EDS, "nobody", body("came"))]).await;
        client.take().await.is(EDS, &["nobody=came"], &[]);
    });
}

#[test]
fn a_reconnecting_proxy_gets_only_changed_resources() {
    run(async {
        let mesh = Mesh::new(&[
            (LDS, "a", body("1")),
            (LDS, "b", body("1")),
            (RDS, "r", body("1")),
        ])
        .await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;

        client.subscribe(RDS, &["r"]).await;
        let listeners = client.take().await.versions;
        let routes = client.take().await.versions;
        drop(client);

        let mut client = mesh.delta().await;
        client.come_back(LDS, &[], &listeners).await;
        client.take().await.is(LDS, &[], &[]);
        client.come_back(RDS, &["r"], &routes).await;
        client.take().await.is(RDS, &[], &[]);
        drop(client);

        mesh.edit(&[
            (LDS, "a", body("2")),
            (LDS, "b", None),
            (LDS, "c", body("1")),
            (RDS, "r", None),
        ])
        .await;
        let mut client = mesh.delta().await;
        client.come_back(LDS, &[], &listeners).await;
        client.take().await.is(LDS, &["a=2", "c=1"], &["b"]);
        client.come_back(RDS, &["r"], &routes).await;
        client.take().await.is(RDS, &[], &["r"]);
    });
}

#[test]
fn unknown_initial_versions_are_ignored() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client
            .come_back(LDS, &[], &BTreeMap::from([("a".to_owned(), String::new())]))
            .await;
        client.take().await.is(LDS, &["a=1"], &[]);
    });
}

#[test]
fn a_stale_nonce_is_no_answer_but_its_names_count() {
    run(async {
        let mesh = Mesh::new(&[(EDS, "a", body("1")), (EDS, "b", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(EDS, &["a"]).await;
        let first = client.take().await;
        mesh.edit(&[(EDS, "a", body("2"))]).await;
        client.take().await.is(EDS, &["a=2"], &[]);
        client
            .send(
                navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest {
                    type_url: EDS.type_url().to_owned(),
                    response_nonce: first.nonce,
                    resource_names_subscribe: strings(&["b"]),
                    ..Default::default()
                },
            )
            .await;

        client.take().await.is(EDS, &["b=1"], &[]);
        assert_eq!(
            mesh.metric("pilot_xds_expired_nonce{"),
            ["pilot_xds_expired_nonce{type=\"eds\"} 1"]
        );
    });
}

#[test]
fn what_is_rejected_is_not_sent_again_until_it_changes() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1")), (LDS, "b", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1", "b=1"], &[]);
        mesh.edit(&[
            (LDS, "a", body("bad")),
            (LDS, "b", body("2")),
            (LDS, "c", body("bad")),
        ])
        .await;

        // Without a name in the error, halves are tried.
        for rejected in [
            &["a=bad", "b=2", "c=bad"][..],
            &["a=bad", "b=2"],
            &["a=bad"],
        ] {
            let bad = client.get().await.is(LDS, rejected, &[]);
            client.answer(LDS, &bad.nonce, Some("no such thing")).await;
        }
        client.take().await.is(LDS, &["b=2"], &[]);
        let bad = client.get().await.is(LDS, &["c=bad"], &[]);
        client.answer(LDS, &bad.nonce, Some("no such thing")).await;
        mesh.until(|streams| {
            streams[0].types[0]
                .rejected
                .as_ref()
                .is_some_and(|r| &*r.message == "no such thing")
        })
        .await;

        // Another type still works, and the rejected type was not sent again.
        client.subscribe(RDS, &["r"]).await;
        client.take().await.is(RDS, &[], &["r"]);

        mesh.edit(&[(LDS, "a", body("3")), (LDS, "c", None)]).await;
        client.take().await.is(LDS, &["a=3"], &["c"]);
        mesh.until(|streams| streams[0].types[0].in_sync).await;
        assert_eq!(
            mesh.metric("pilot_total_xds_rejects{"),
            ["pilot_total_xds_rejects{type=\"lds\"} 4"]
        );
    });
}

#[test]
fn clusters_are_removed_after_the_routes_that_name_them() {
    run(async {
        let mesh = Mesh::new(&[
            (CDS, "old", eds_cluster("old", "1")),
            (RDS, "r", body("old")),
        ])
        .await;
        mesh.edit(&[(EDS, "old", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(CDS, &[]).await;

        client.take().await.is(CDS, &["old=1"], &[]);
        client.subscribe(EDS, &["old"]).await;
        client.take().await.is(EDS, &["old=1"], &[]);
        client.subscribe(RDS, &["r"]).await;
        client.take().await.is(RDS, &["r=old"], &[]);
        mesh.edit(&[
            (CDS, "old", None),
            (EDS, "old", None),
            (CDS, "new", eds_cluster("new", "1")),
            (EDS, "new", body("1")),
            (RDS, "r", body("new")),
        ])
        .await;

        // First the new cluster, then its endpoints, then the route; the old cluster is removed
        // last.
        client.take().await.is(CDS, &["new=1"], &[]);
        client.subscribe(EDS, &["new"]).await;
        client.take().await.is(EDS, &["new=1"], &[]);
        let route = client.get().await.is(RDS, &["r=new"], &[]);
        client.answer(RDS, &route.nonce, None).await;
        client.take().await.is(CDS, &[], &["old"]);
        client.take().await.is(EDS, &[], &["old"]);
    });
}

#[test]
fn a_changed_cluster_resends_its_endpoints() {
    run(async {
        let clusters = [
            (CDS, "a", eds_cluster("a", "1")),
            (CDS, "b", eds_cluster("b", "1")),
        ];
        let mesh = Mesh::new(&clusters).await;
        mesh.edit(&[(EDS, "a", body("x")), (EDS, "b", body("x"))])
            .await;
        let mut client = mesh.delta().await;
        client.subscribe(CDS, &[]).await;
        client.take().await;
        client.subscribe(EDS, &["a", "b"]).await;
        client.take().await.is(EDS, &["a=x", "b=x"], &[]);
        mesh.edit(&[(CDS, "b", eds_cluster("b", "2"))]).await;
        client.take().await.is(CDS, &["b=2"], &[]);
        client.take().await.is(EDS, &["b=x"], &[]);
    });
}

#[test]
fn extension_configs_are_never_removed() {
    run(async {
        let mesh = Mesh::new(&[(ECDS, "lua", body("1")), (CDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(ECDS, &["lua"]).await;
        client.take().await.is(ECDS, &["lua=1"], &[]);
        client.subscribe(CDS, &[]).await;
        client.take().await.is(CDS, &["a=1"], &[]);
        mesh.edit(&[(ECDS, "lua", None), (CDS, "a", None)]).await;
        client.take().await.is(CDS, &[], &["a"]);
    });
}

#[test]
fn an_unauthenticated_proxy_gets_no_secrets() {
    run(async {
        let mesh = Mesh::new(&[(SDS, "cert", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(SDS, &["cert"]).await;
        client.take().await.is(SDS, &[], &["cert"]);
    });
}

#[test]
fn wildcard_and_named_subscriptions_can_be_combined() {
    run(async {
        let mesh = Mesh::new(&[(CDS, "a", body("1")), (CDS, "b", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(CDS, &["*", "a", "far"]).await;
        client.take().await.is(CDS, &["a=1", "b=1"], &["far"]);
        // The client cannot know whether the wildcard contains `a`: it is sent.
        client.change(CDS, &[], &["a"]).await;
        client.take().await.is(CDS, &["a=1"], &[]);
        client.change(CDS, &["b"], &["*"]).await;
        client.take().await.is(CDS, &["b=1"], &[]);
        mesh.edit(&[(CDS, "a", eds_cluster("a", "2"))]).await;
        mesh.edit(&[(CDS, "b", eds_cluster("b", "2"))]).await;
        client.take().await.is(CDS, &["b=2"], &[]);
    });
}
