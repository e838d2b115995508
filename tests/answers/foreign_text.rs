//! Text chosen by clients, everywhere operators read it: it can neither forge log lines, nor
//! control a terminal, nor extend a suggested command.

use std::net::SocketAddr;
use std::path::Path;

use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_proto::google::rpc::Status as ErrorDetail;
use navarch_testkit::navarch::Navarch;
use navarch_testkit::wait::until;
use prost_types::value::Kind;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::command_output;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const NODE_ID: &str = "sidecar~10.0.0.9~web-1.shop~shop.svc.cluster.local";

/// Clears a terminal, sets its title, reverses the direction of text, and starts a new line.
const HOSTILE: &str =
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\r\n2026-11-27T00:00:00Z ERROR forged";

/// An open stream, and its first response.
struct Stream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    first: DeltaDiscoveryResponse,
}

/// Subscribes to clusters as a node with these texts in its metadata.
async fn subscribe(
    server: SocketAddr,
    id: &str,
    cluster: &str,
    metadata: &[(&str, &str)],
) -> Result<Stream, Status> {
    let mut service = AggregatedDiscoveryServiceClient::connect(format!("http://{server}"))
        .await
        .unwrap();
    let fields = metadata.iter().map(|(key, value)| {
        let kind = Some(Kind::StringValue((*value).to_owned()));
        ((*key).to_owned(), prost_types::Value { kind })
    });
    let node = Node {
        id: id.to_owned(),
        cluster: cluster.to_owned(),
        metadata: Some(prost_types::Struct {
            fields: fields.collect(),
        }),
        ..Node::default()
    };

    let (requests, outgoing) = mpsc::channel(4);
    let first = DeltaDiscoveryRequest {
        node: Some(node),
        type_url: CDS.to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(first).await.unwrap();

    let outgoing = ReceiverStream::new(outgoing);
    let mut responses = service
        .delta_aggregated_resources(outgoing)
        .await?
        .into_inner();
    let first = responses.message().await?.expect("a response");
    Ok(Stream {
        requests,
        responses,
        first,
    })
}

/// Whether a text has no control characters for terminals except line breaks and tabs.
fn is_harmless(text: &str) -> bool {
    let is_hostile = |character: char| {
        (character.is_control() && character != '\n' && character != '\t')
            || character == '\u{202e}'
    };
    !text.chars().any(is_hostile)
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_clients_is_escaped_in_logs_and_on_terminals() {
    let bookshop = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/samples/bookshop");
    let program = Path::new(env!("CARGO_BIN_EXE_navarch"));
    let server = Navarch::start(program, &bookshop, &[]).await.unwrap();
    let xds = server.addresses().xds;

    // The fields of a node that are displayed are validated when the stream starts.
    let long = "x".repeat(2000);
    for (id, cluster, metadata) in [
        (
            &*format!("sidecar~10.0.0.9~a{HOSTILE}.evil~evil.svc"),
            "",
            None,
        ),
        ("sidecar~10.0.0.9~x;reboot;#.evil~evil.svc", "", None),
        ("sidecar~10.0.0.9~$(id).evil~evil.svc", "", None),
        (&*format!("sidecar~10.0.0.9~{long}.evil~evil.svc"), "", None),
        (NODE_ID, HOSTILE, None),
        (NODE_ID, "", Some("ISTIO_VERSION")),
        (NODE_ID, "", Some("CLUSTER_ID")),
        (NODE_ID, "", Some("NAMESPACE")),
        (NODE_ID, "", Some("SERVICE_ACCOUNT")),
        (NODE_ID, "", Some("WORKLOAD_NAME")),
    ] {
        let metadata: Vec<_> = metadata.into_iter().map(|key| (key, HOSTILE)).collect();
        let error = subscribe(xds, id, cluster, &metadata).await.err();
        let code = error.as_ref().map(Status::code);
        assert_eq!(
            code,
            Some(Code::InvalidArgument),
            "{id:?} {cluster:?} {metadata:?}"
        );
    }

    // The message of a NACK may be any text.
    let open = subscribe(xds, NODE_ID, "web.shop", &[("ISTIO_VERSION", "1.31.0")]);
    let stream = open.await.unwrap();
    let rejection = DeltaDiscoveryRequest {
        type_url: CDS.to_owned(),
        response_nonce: stream.first.nonce.clone(),
        error_detail: Some(ErrorDetail {
            code: 13,
            message: format!("bad cluster: {HOSTILE}"),
            details: Vec::new(),
        }),
        ..DeltaDiscoveryRequest::default()
    };
    stream.requests.send(rejection).await.unwrap();
    until("the rejection is logged", async || {
        server.output().contains("bad cluster")
    })
    .await;

    let http = server.addresses().http;
    let doctor = spawn_blocking(move || command_output(&["doctor", &format!("--address={http}")]));
    let (doctor, _) = doctor.await.unwrap();
    assert!(doctor.contains("bad cluster"), "{doctor}");
    assert!(is_harmless(&doctor), "{doctor:?}");

    let log = server.output();
    assert!(is_harmless(&log), "{log:?}");
    let forged = log.lines().filter(|line| line.contains("ERROR forged"));
    for line in forged {
        assert!(!line.starts_with("2026-11-27T00:00:00Z"), "{line:?}");
    }

    for page in ["syncz", "adsz", "push_status", "doctor", "connections"] {
        let text = server.page(&format!("/debug/{page}")).await.unwrap();
        assert!(is_harmless(&text), "{page}: {text:?}");
    }
    drop(stream.responses);
}
