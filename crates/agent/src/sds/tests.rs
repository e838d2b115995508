//! The SDS server over a real socket.

use std::path::Path;
use std::time::Duration;

use navarch_proto::envoy::config::core::v3::{Extension, Node};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use navarch_proto::envoy::service::secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient;
use prost::Message as _;
use prost_types::Any;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::metrics::AgentMetrics;
use crate::secrets::tests::{clock, config, put};
use crate::socket;

/// Connects a client to a socket.
async fn client(path: &Path) -> SecretDiscoveryServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    SecretDiscoveryServiceClient::new(endpoint.connect().await.unwrap())
}

/// The content of a response, as text.
fn text(resource: &Any) -> String {
    String::from_utf8_lossy(&Secret::decode(&resource.value[..]).unwrap().encode_to_vec())
        .into_owned()
}

/// An SDS server for the workload's certificate, with a private key provider; it stops with the
/// token.
struct Serving {
    client: SecretDiscoveryServiceClient<Channel>,
    stop: CancellationToken,
    running: TaskTracker,
}

async fn begin(folder: &Path, hardware: Option<PrivateKeyProvider>) -> Serving {
    let stop = CancellationToken::new();
    let (secrets, task) = Secrets::new(
        config(folder),
        None,
        clock,
        AgentMetrics::default(),
        stop.clone(),
    );

    let running = TaskTracker::new();
    running.spawn(task.run());
    let path = folder.join("sds");
    let config = SdsConfig {
        hardware,
        ..SdsConfig::default()
    };
    let serving = serve(
        socket::listen(&path).unwrap(),
        secrets,
        config,
        stop.clone(),
    );

    running.spawn(async move { serving.await.unwrap() });
    Serving {
        client: client(&path).await,
        stop,
        running,
    }
}

impl Serving {
    async fn end(self) {
        self.stop.cancel();
        self.running.close();
        self.running.wait().await;
    }
}

#[tokio::test]
async fn hardware_handles_keys_of_an_envoy_that_can_use_it() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("certs"), "first");
    let hardware: PrivateKeyProvider =
        serde_json::from_str(r#"{"cryptomb": {"pollDelay": "10ms"}}"#).unwrap();
    let mut serving = begin(folder.path(), Some(hardware)).await;

    for (extensions, is_handled) in [
        (&["cryptomb"][..], true),
        (&["envoy.filters.http.router"], false),
        (&[], true),
    ] {
        let extensions = extensions.iter().map(|name| Extension {
            name: (*name).to_owned(),
            ..Extension::default()
        });
        let node = Some(Node {
            extensions: extensions.collect(),
            ..Node::default()
        });
        let ask = DiscoveryRequest {
            resource_names: vec!["default".to_owned()],
            node,
            ..DiscoveryRequest::default()
        };
        let asks = tokio_stream::iter([ask]).chain(tokio_stream::pending());
        let mut answers = serving
            .client
            .stream_secrets(asks)
            .await
            .unwrap()
            .into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        let secret = Secret::decode(&answer.resources[0].value[..]).unwrap();
        let Some(secret::Type::TlsCertificate(certificate)) = secret.r#type else {
            panic!("a certificate")
        };
        assert!(certificate.certificate_chain.is_some());
        assert_eq!(certificate.private_key.is_none(), is_handled);
        assert_eq!(
            certificate
                .private_key_provider
                .is_some_and(|one| one.provider_name == "cryptomb"),
            is_handled
        );
    }

    serving.end().await;
}

#[tokio::test]
async fn both_xds_protocols_send_initial_and_changed_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let (first, _) = put(&certs, "first");
    let mut serving = begin(folder.path(), None).await;
    let client = &mut serving.client;

    let (asks, receiver) = mpsc::channel(4);
    let ask = |names: &[&str], version: &str, nonce: &str| DiscoveryRequest {
        resource_names: names.iter().map(ToString::to_string).collect(),
        version_info: version.to_owned(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    };

    asks.send(ask(&["default"], "", "")).await.unwrap();
    let mut answers = client
        .stream_secrets(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert!(text(&answer.resources[0]).contains(&first));

    asks.send(ask(&["default"], &answer.version_info, &answer.nonce))
        .await
        .unwrap();
    let quiet = tokio::time::timeout(Duration::from_millis(200), answers.message()).await;
    assert!(quiet.is_err(), "an ACK is not answered");

    let (delta_asks, receiver) = mpsc::channel(4);
    let delta = |names: &[&str]| DeltaDiscoveryRequest {
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    delta_asks.send(delta(&["ROOTCA"])).await.unwrap();
    let mut delta_answers = client
        .delta_secrets(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let answer = delta_answers.message().await.unwrap().unwrap();

    assert_eq!(
        (
            answer.resources[0].name.as_str(),
            answer.removed_resources.len()
        ),
        ("ROOTCA", 0)
    );

    delta_asks
        .send(delta(&["kubernetes://none"]))
        .await
        .unwrap();
    assert_eq!(
        delta_answers
            .message()
            .await
            .unwrap()
            .unwrap()
            .removed_resources,
        ["kubernetes://none"]
    );

    let (second, _) = put(&certs, "second");
    let answer = answers.message().await.unwrap().unwrap();
    assert!(text(&answer.resources[0]).contains(&second));
    let answer = delta_answers.message().await.unwrap().unwrap();
    assert_eq!(answer.resources[0].name, "ROOTCA");

    // An unknown name closes the stream, as the protocol has no way to report a missing resource.
    asks.send(ask(&["kubernetes://none"], "", ""))
        .await
        .unwrap();
    assert_eq!(
        answers.message().await.unwrap_err().code(),
        tonic::Code::NotFound
    );

    serving.end().await;
}
