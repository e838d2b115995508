//! Behaviour that both protocols share.

use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tonic::Code;

use super::bench::*;
use crate::{Limits, Protocol};

#[test]
fn a_stream_without_a_node_is_rejected() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        let mut client = mesh.delta().await.nameless();
        client.subscribe(CDS, &[]).await;
        assert_eq!(client.end().await.code(), Code::InvalidArgument);
        assert!(mesh.ads.connections().list().is_empty());
    });
}

#[test]
fn a_health_report_is_no_first_request_and_has_no_answer() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        let health = || DiscoveryRequest {
            type_url: "type.googleapis.com/istio.v1.HealthInformation".to_owned(),
            ..DiscoveryRequest::default()
        };
        let mut client = mesh.state().await;
        let mut named = mesh.state().await;
        client.send(health()).await;
        named.subscribe(LDS, &[]).await;
        named.take(&[]).await.is(LDS, &[], &[]);
        named.send(health()).await;
        named.subscribe(CDS, &[]).await;
        named.take(&[]).await.is(CDS, &[], &[]);
    });
}

#[test]
fn an_unsupported_type_gets_one_empty_response() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        let mut client = mesh.delta().await;
        let request = |nonce: &str| DeltaDiscoveryRequest {
            type_url: "type.googleapis.com/envoy.service.runtime.v3.Runtime".to_owned(),
            response_nonce: nonce.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        client.send(request("")).await;
        let got = client.get().await;
        assert_eq!((got.resource_type, got.resources.len()), ("unserved", 0));
        client.send(request(&got.nonce)).await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &[], &[]);
    });
}

#[test]
fn too_large_requests_end_the_stream() {
    run(async {
        let mesh = Mesh::with_limits(
            &[],
            Limits {
                request_bytes: 10_000,
                ..Limits::default()
            },
        )
        .await;
        let mut client = mesh.delta().await;
        let long = "x".repeat(20_000);
        client.subscribe(EDS, &[&long]).await;
        assert_eq!(client.end().await.code(), Code::OutOfRange);
        let mut client = mesh.delta().await;
        client.subscribe(EDS, &[&"x".repeat(5000)]).await;
        assert_eq!(client.end().await.code(), Code::InvalidArgument);

        mesh.until(|streams| streams.is_empty()).await;
    });
}

#[test]
fn a_drain_ends_streams_with_status_unavailable() {
    run(async {
        let mesh = Mesh::new(&[]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await;
        mesh.drain.cancel();
        assert_eq!(client.end().await.code(), Code::Unavailable);
        soon(mesh.ads.ended()).await;
        assert_eq!(mesh.ads.connections().count(), 0);
    });
}

#[test]
fn open_streams_can_be_looked_at_and_ended() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        let got = client.take().await;
        mesh.until(|streams| {
            streams
                .iter()
                .any(|stream| stream.types.iter().all(|one| one.in_sync))
        })
        .await;
        let streams = mesh.ads.connections().list();
        let [stream] = &*streams else {
            panic!("{streams:?}")
        };

        assert_eq!(
            (&*stream.id, stream.protocol),
            ("web.shop-1", Protocol::Delta)
        );
        let [listeners] = &*stream.types else {
            panic!("{stream:?}")
        };

        assert!(listeners.wildcard);
        assert_eq!(
            listeners.acked.as_ref().map(|mark| &*mark.nonce),
            Some(&*got.nonce)
        );
        assert!(got.nonce.ends_with(".1"), "{}", got.nonce);

        assert_eq!(
            listeners.resources.as_ref().map(|all| all.resources.len()),
            Some(1)
        );
        assert!(mesh.ads.connections().disconnect("web.shop-1"));
        assert_eq!(client.end().await.code(), Code::Unavailable);
        assert!(!mesh.ads.connections().disconnect("web.shop-1"));
    });
}

#[test]
fn too_many_concurrent_streams_are_rejected() {
    run(async {
        let mesh = Mesh::with_limits(
            &[],
            Limits {
                streams_per_second: 0.5,
                ..Limits::default()
            },
        )
        .await;
        let mut first = mesh.delta().await;
        first.subscribe(LDS, &[]).await;
        first.take().await.is(LDS, &[], &[]);
        let rejected = mesh
            .client()
            .delta_aggregated_resources(tokio_stream::empty())
            .await
            .unwrap_err();
        assert_eq!(rejected.code(), Code::ResourceExhausted);
    });
}

#[test]
fn xds_metrics_have_istios_names() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await;
        assert_eq!(
            mesh.metric("pilot_xds{"),
            ["pilot_xds{version=\"unknown\"} 1"]
        );

        mesh.edit(&[(LDS, "a", body("2"))]).await;
        client.take().await;
        mesh.until(|streams| streams[0].types[0].in_sync).await;
        assert_eq!(
            mesh.metric("pilot_xds_pushes{"),
            ["pilot_xds_pushes{type=\"lds\"} 2"]
        );
        assert_eq!(
            mesh.metric("pilot_proxy_convergence_time_count"),
            ["pilot_proxy_convergence_time_count 1"]
        );

        drop(client);

        // The stream leaves the list before the metric is decremented.
        mesh.until(|streams| streams.is_empty() && mesh.metric("pilot_xds{").is_empty())
            .await;
    });
}
