//! The state-of-the-world protocol.

use super::bench::*;

#[test]
fn wildcard_types_are_sent_in_full_and_named_types_by_change() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("a1")), (LDS, "b", body("b1"))]).await;
        mesh.edit(&[(RDS, "r", body("r1")), (RDS, "s", body("s1"))])
            .await;
        let mut client = mesh.state().await;
        client.subscribe(LDS, &[]).await;
        client.take(&[]).await.is(LDS, &["a1", "b1"], &[]);
        client.subscribe(RDS, &["r", "s"]).await;
        client.take(&["r", "s"]).await.is(RDS, &["r1", "s1"], &[]);

        mesh.edit(&[(LDS, "b", body("b2")), (RDS, "s", body("s2"))])
            .await;
        client.take(&[]).await.is(LDS, &["a1", "b2"], &[]);
        client.take(&["r", "s"]).await.is(RDS, &["s2"], &[]);
        mesh.edit(&[(LDS, "a", None), (RDS, "r", None)]).await;
        client.take(&[]).await.is(LDS, &["b2"], &[]);

        // A removed route is not part of the response.
        mesh.edit(&[(RDS, "s", body("s3"))]).await;
        client.take(&["r", "s"]).await.is(RDS, &["s3"], &[]);
    });
}

#[test]
fn only_added_names_get_a_response() {
    run(async {
        let mesh = Mesh::new(&[(EDS, "a", body("a1")), (EDS, "b", body("b1"))]).await;
        let mut client = mesh.state().await;
        client.subscribe(EDS, &["a"]).await;
        let first = client.take(&["a"]).await.is(EDS, &["a1"], &[]);
        client.request(EDS, &["a", "b"], &first.nonce, None).await;
        let second = client.take(&["a", "b"]).await.is(EDS, &["b1"], &[]);
        client.request(EDS, &["b"], &second.nonce, None).await;
        mesh.until(|streams| streams[0].types[0].names.len() == 1)
            .await;

        mesh.edit(&[(EDS, "a", body("a2"))]).await;
        mesh.edit(&[(EDS, "b", body("b2"))]).await;
        let third = client.take(&["b"]).await.is(EDS, &["b2"], &[]);

        // Without names the client unsubscribes from the type, and a later subscription starts
        // anew.
        client.request(EDS, &[], &third.nonce, None).await;
        mesh.until(|streams| streams[0].types.is_empty()).await;
        client.request(EDS, &["a"], &third.nonce, None).await;
        client.take(&["a"]).await.is(EDS, &["a2"], &[]);
    });
}

#[test]
fn an_empty_list_unsubscribes_after_named_requests() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("a1")), (LDS, "b", body("b1"))]).await;
        let mut client = mesh.state().await;
        client.subscribe(LDS, &["a"]).await;
        let first = client.take(&["a"]).await.is(LDS, &["a1"], &[]);
        client.request(LDS, &[], &first.nonce, None).await;
        mesh.until(|streams| streams[0].types.is_empty()).await;
        mesh.edit(&[(LDS, "a", body("a2"))]).await;
        client.request(LDS, &[], &first.nonce, None).await;
        client.request(LDS, &["b"], &first.nonce, None).await;
        client.take(&["b"]).await.is(LDS, &["b1"], &[]);
    });
}

#[test]
fn a_stale_request_is_ignored() {
    run(async {
        let mesh = Mesh::new(&[(EDS, "a", body("a1")), (EDS, "b", body("b1"))]).await;
        let mut client = mesh.state().await;
        client.subscribe(EDS, &["a"]).await;
        let first = client.take(&["a"]).await;
        mesh.edit(&[(EDS, "a", body("a2"))]).await;
        let second = client.get().await.is(EDS, &["a2"], &[]);
        client.request(EDS, &["a", "b"], &first.nonce, None).await;
        client.request(EDS, &["a"], &second.nonce, None).await;
        mesh.edit(&[(EDS, "a", body("a3"))]).await;
        client.get().await.is(EDS, &["a3"], &[]);
        assert_eq!(
            mesh.metric("pilot_xds_expired_nonce{"),
            ["pilot_xds_expired_nonce{type=\"eds\"} 1"]
        );
    });
}

#[test]
fn a_request_without_nonce_restarts_the_subscription() {
    run(async {
        let mesh = Mesh::new(&[(EDS, "a", body("a1")), (EDS, "b", body("b1"))]).await;
        let mut client = mesh.state().await;
        client.subscribe(EDS, &["a"]).await;
        client.take(&["a"]).await;
        client.subscribe(EDS, &["a", "b"]).await;
        client.take(&["a", "b"]).await.is(EDS, &["a1", "b1"], &[]);
    });
}

#[test]
fn a_rejected_response_waits_for_a_change() {
    run(async {
        let mesh = Mesh::new(&[(RDS, "r", body("r1")), (RDS, "s", body("s1"))]).await;
        let mut client = mesh.state().await;
        client.subscribe(RDS, &["r", "s"]).await;
        client.take(&["r", "s"]).await;
        mesh.edit(&[(RDS, "r", body("bad")), (RDS, "s", body("s2"))])
            .await;
        let bad = client.get().await;
        client
            .request(RDS, &["r", "s"], &bad.nonce, Some("no"))
            .await;
        client.subscribe(SDS, &["cert"]).await;
        client.take(&["cert"]).await.is(SDS, &[], &[]);
        mesh.edit(&[(RDS, "r", body("r3"))]).await;
        client.take(&["r", "s"]).await.is(RDS, &["r3", "s2"], &[]);
    });
}

#[test]
fn clusters_stay_until_no_route_names_them() {
    run(async {
        let mesh = Mesh::new(&[
            (CDS, "old", eds_cluster("old", "1")),
            (RDS, "r", body("old")),
        ])
        .await;
        let mut client = mesh.state().await;
        client.subscribe(CDS, &[]).await;
        client.take(&[]).await.is(CDS, &["1"], &[]);

        client.subscribe(RDS, &["r"]).await;
        client.take(&["r"]).await;
        mesh.edit(&[
            (CDS, "old", None),
            (CDS, "new", eds_cluster("new", "2")),
            (RDS, "r", body("new")),
        ])
        .await;

        client.take(&[]).await.is(CDS, &["2", "1"], &[]);
        client.take(&["r"]).await.is(RDS, &["new"], &[]);
        client.take(&[]).await.is(CDS, &["2"], &[]);
    });
}

#[test]
fn a_reconnecting_client_gets_its_endpoints_again_after_its_clusters() {
    run(async {
        let mesh = Mesh::new(&[(CDS, "a", eds_cluster("a", "1")), (EDS, "a", body("x"))]).await;
        let mut client = mesh.state().await;
        client.subscribe(EDS, &["a"]).await;
        client.take(&["a"]).await.is(EDS, &["x"], &[]);
        client.subscribe(CDS, &[]).await;
        client.take(&[]).await.is(CDS, &["1"], &[]);
        client.take(&["a"]).await.is(EDS, &["x"], &[]);
    });
}
