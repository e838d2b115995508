//! Requests of operators' tools, and pushing all resources again.

use std::sync::Arc;

use navarch_proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use prost_types::Any;
use tonic::{Code, Status};

use super::bench::*;
use crate::{DebugPages, DebugRequest, DebugResponse, DebugResponseFuture};

/// Responds with the request; denies access to secrets.
#[derive(Debug)]
struct Echo;

impl DebugPages for Echo {
    fn answer(&self, question: DebugRequest) -> DebugResponseFuture<'_> {
        Box::pin(async move {
            let name = question.names.first().cloned().unwrap_or_default();
            if name == "secret" {
                return Err(Status::permission_denied("not for you"));
            }

            let text = format!("{} {name} {}", question.type_url, question.proxy.name);
            let value = if name == "large" {
                vec![b'x'; 100_000]
            } else {
                text.into_bytes()
            };

            let resource = Any {
                type_url: "istio.io/debug".to_owned(),
                value,
            };

            Ok(DebugResponse {
                resources: vec![(name, resource)],
                control_plane: None,
            })
        })
    }
}

fn question(name: &str, nonce: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: "istio.io/debug".to_owned(),
        resource_names_subscribe: vec![name.to_owned()],
        response_nonce: nonce.to_owned(),
        ..DeltaDiscoveryRequest::default()
    }
}

#[test]
fn each_question_has_one_answer_and_a_rejection_ends_the_stream() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1"))]).await;
        mesh.ads.set_debug_pages(Arc::new(Echo));
        let mut client = mesh.delta().await;
        // istioctl sends a nonce that the server has never used.
        client.send(question("syncz", "made up")).await;
        let got = client.get().await;
        assert_eq!(got.resources.len(), 1);
        assert!(!got.nonce.is_empty());
        // A request with the response's nonce gets no response; the subscriptions on the same
        // stream continue.
        client.send(question("syncz", &got.nonce)).await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1"], &[]);
        client.send(question("secret", "")).await;
        assert_eq!(client.end().await.code(), Code::PermissionDenied);
    });
}

#[test]
fn a_large_answer_is_paid_for() {
    run(async {
        let mesh = Mesh::with_memory(&[], 150_000).await;
        mesh.ads.set_debug_pages(Arc::new(Echo));
        let mut client = mesh.delta().await;
        client.send(question("large", "")).await;
        assert_eq!(client.end().await.code(), Code::ResourceExhausted);
    });
}

#[test]
fn a_forced_push_resends_everything() {
    run(async {
        let mesh = Mesh::new(&[(LDS, "a", body("1")), (LDS, "b", body("2"))]).await;
        let mut client = mesh.delta().await;
        client.subscribe(LDS, &[]).await;
        client.take().await.is(LDS, &["a=1", "b=2"], &[]);
        mesh.until(|streams| {
            streams
                .iter()
                .all(|one| one.types.iter().all(|watch| watch.in_sync))
        })
        .await;
        assert_eq!(mesh.ads.connections().resend(), 1);
        client.take().await.is(LDS, &["a=1", "b=2"], &[]);
    });
}
