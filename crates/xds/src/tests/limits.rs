//! Limits of the memory that a client can occupy, and for how long.

use std::future::ready;
use std::time::Duration;

use jiff::Timestamp;
use navarch_proto::envoy::config::core::v3::Node;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::Channel;

use super::bench::*;
use crate::connections::TypeInfo;
use crate::transport::plain_connections;
use crate::{Ads, Limits};
use navarch_api::identity::{Caller, Identity};
use navarch_net::port::Port;

#[test]
fn a_stream_without_a_request_times_out() {
    run(async {
        let limits = Limits {
            first_request: Duration::from_millis(50),
            ..Limits::default()
        };
        let mesh = Mesh::with_limits(&[(LDS, "a", body("1"))], limits).await;
        let mut talks = mesh.delta().await;
        talks.subscribe(LDS, &[]).await;
        talks.take().await.is(LDS, &["a=1"], &[]);
        let silent = mesh.delta().await;
        assert_eq!(silent.end().await.code(), Code::DeadlineExceeded);
        assert_eq!(mesh.rejections.counted("grpc", "first_request_timeout"), 1);
        mesh.edit(&[(LDS, "a", body("2"))]).await;
        talks.take().await.is(LDS, &["a=2"], &[]);
    });
}

#[test]
fn a_stream_ends_when_the_credential_of_its_client_expires() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;

        // On the test's clock the server started in 1970.
        let caller = Caller {
            identities: vec![Identity::parse("spiffe://td/ns/shop/sa/web").unwrap()],
            expires: Some(Timestamp::from_millisecond(1000).unwrap()),
            ..Caller::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());

        let ads = mesh.ads.clone();
        let server =
            mesh.ads
                .server("secure-grpc")
                .add_streams(Ads::NAME, move |mut request, call| {
                    request.extensions_mut().insert(caller.clone());
                    ready(ads.start(request, &call))
                });

        tokio::task::spawn_local(server.serve(
            plain_connections(listener, Port::unlimited("test")),
            std::future::pending(),
        ));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        let mut client = mesh.delta_on(channel).await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1"], &[]);

        let status = client.end().await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert!(status.message().contains("expired"), "{status}");
        mesh.until(<[_]>::is_empty).await;
    });
}

#[test]
fn a_client_without_an_identity_may_watch_so_many_names() {
    run(async {
        let mesh = Mesh::with_limits(
            &[],
            Limits {
                unproved_names: 3,
                ..Limits::default()
            },
        )
        .await;
        let mut client = mesh.delta().await;
        client.subscribe(EDS, &["a", "b"]).await;
        client.take().await.is(EDS, &[], &["a", "b"]);
        client.subscribe(RDS, &["c", "d"]).await;
        assert_eq!(client.end().await.code(), Code::ResourceExhausted);
        assert_eq!(mesh.rejections.counted("grpc", "resource_names"), 1);
    });
}

#[test]
fn the_history_of_streams_is_as_long_as_it_may_be_and_counted() {
    run(async {
        let bytes = |mesh: &Mesh| {
            let [line] = mesh
                .metric("navarch_push_history_bytes ")
                .try_into()
                .unwrap();
            line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
        };

        let mut taken = Vec::new();

        for push_history in [0, 20] {
            let mesh = Mesh::with_limits(
                &[(LDS, "a", body("1"))],
                Limits {
                    push_history,
                    ..Limits::default()
                },
            )
            .await;
            assert_eq!(bytes(&mesh), 0);
            let mut client = mesh.delta().await;
            client.subscribe(LDS, &["a"]).await;
            client.take().await.is(LDS, &["a=1"], &[]);
            taken.push(bytes(&mesh));
        }

        let [without, with] = taken.try_into().unwrap();
        assert!(
            without > 0 && with > without && with < 2000,
            "{without}, {with}"
        );
    });
}

#[test]
fn memory_of_clients_is_bounded_and_released() {
    run(async {
        let memory = 256 << 10;
        let mesh = Mesh::with_memory(&[], memory).await;

        // Names that many streams share are stored once.
        let names: Vec<String> = (0..50).map(|number| format!("service-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut alike = Vec::new();

        for _ in 0..10 {
            let mut client = mesh.delta().await;
            client.subscribe(EDS, &names).await;
            client.take().await;
            alike.push(client);
        }

        assert!(mesh.memory.held() < memory / 2, "{}", mesh.memory.held());
        let others: Vec<String> = (0..200).map(|number| format!("other-{number}")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let mut greedy = mesh.delta().await;
        greedy.subscribe(EDS, &others).await;
        assert_eq!(greedy.end().await.code(), Code::ResourceExhausted);
        assert_eq!(mesh.rejections.counted("grpc", "memory"), 1);
        drop(alike);

        mesh.until(<[_]>::is_empty).await;
        soon(async {
            while mesh.memory.held() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    });
}

#[test]
fn unsupported_proxies_and_types_are_rejected_with_a_reason() {
    run(async {
        let mesh = Mesh::new(&[]).await;

        for kind in ["waypoint", "ztunnel", "agentgateway"] {
            let id = format!("{kind}~10.0.0.1~w.shop~shop.svc.cluster.local");
            let mut client = mesh.delta().await.of(Node {
                id,
                ..Node::default()
            });
            client.subscribe(CDS, &[]).await;
            let status = client.end().await;
            assert_eq!(status.code(), Code::Unimplemented);
            assert!(status.message().contains(kind), "{status}");
        }

        for url in [
            "type.googleapis.com/istio.workload.Address",
            "istio.io/debug/syncz",
        ] {
            let mut client = mesh.delta().await;
            client.ask(url).await;
            let status = client.end().await;
            assert_eq!(status.code(), Code::Unimplemented);
            assert!(status.message().contains(url), "{status}");
        }
    });
}

#[test]
fn a_stream_has_one_row_of_rejections_for_each_type() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;

        for code in 1..=16 {
            let got = client.get().await;
            client.reject(LDS, &got.nonce, code).await;
            let is_rejected = |one: &TypeInfo| {
                one.rejected
                    .as_ref()
                    .is_some_and(|rejected| rejected.code == code)
            };
            mesh.until(|streams| streams[0].types.iter().all(is_rejected))
                .await;
            mesh.edit(&[(LDS, "a", body(&format!("after {code}")))])
                .await;
        }

        client.take().await;
        assert_eq!(mesh.metric("pilot_xds_lds_reject{").len(), 1);
        drop(client);
        mesh.until(<[_]>::is_empty).await;
        assert_eq!(mesh.metric("pilot_xds_lds_reject{"), [""; 0]);
    });
}

#[test]
fn config_kinds_of_another_version_get_an_empty_response() {
    run(async {
        let mesh = Mesh::new(&[]).await;

        for url in [
            "example.com/v1/Widget",
            "core/v1alpha1/MeshConfig",
            "gateway.networking.k8s.io/v1/HTTPRoute",
        ] {
            let text = |text: &str| prost_types::Value {
                kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
            };
            let metadata = prost_types::Struct {
                fields: [("GENERATOR".to_owned(), text("api"))].into(),
            };
            let id =
                "sidecar~10.0.0.1~istiod-1.istio-system~istio-system.svc.cluster.local".to_owned();
            let node = Node {
                id,
                metadata: Some(metadata),
                ..Node::default()
            };
            // Plain-text clients cannot authenticate as a control plane.
            let mut client = mesh.delta().await.of(node);
            client.ask(url).await;
            let status = client.end().await;
            assert_eq!(status.code(), Code::Unauthenticated, "{url}");
        }

        let mut client = mesh.delta().await;
        client.ask("example.com/v1/Widget").await;
        assert_eq!(
            client.end().await.code(),
            Code::Unimplemented,
            "proxies are not affected"
        );
    });
}
