//! Machines outside of the cluster: proxies with a service account token and a stream.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use navarch::agent::credentials::TokenSource;
use navarch::agent::upstream::{Roots, Transport, Upstream, UpstreamConfig};
use navarch_net::grpc_target::Keepalive;
use navarch_proto::envoy::config::core::v3::{Locality, Node};
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_proto::google::rpc::Status as ErrorDetail;
use prost_types::value::Kind;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::Deployed;

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The type URL of agents' health reports.
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";
/// A type of which every proxy has resources.
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A token of a service account in the machines' namespace.
async fn token(deployed: &Deployed, account: &str) -> String {
    let path = format!("/api/v1/namespaces/vms/serviceaccounts/{account}/token");
    let ask = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "audiences": ["istio-ca"], "expirationSeconds": 3600 },
    });
    let answer = deployed
        .cluster
        .call("POST", &path, "application/json", &ask)
        .await
        .unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// A proxy's credentials.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// The directory of roots and tokens.
    folder: PathBuf,
    /// The service account of the token.
    account: &'static str,
}

impl Credentials {
    /// Issues a token for a service account in the machines' namespace.
    pub(crate) async fn issue(deployed: &Deployed, folder: &Path, account: &'static str) -> Self {
        std::fs::write(folder.join(account), token(deployed, account).await).unwrap();
        Self {
            folder: folder.to_owned(),
            account,
        }
    }

    /// The connection settings for a control plane.
    fn upstream(&self, server: SocketAddr) -> Upstream {
        Upstream::new(UpstreamConfig {
            address: server.to_string(),
            transport: Transport::Tls {
                roots: Roots::File(self.folder.join("root.pem")),
                certificate: None,
                server_name: Some("istiod.istio-system.svc".to_owned()),
            },
            token: Some(TokenSource::File(self.folder.join(self.account))),
            cluster: "Kubernetes".to_owned(),
            headers: BTreeMap::new(),
            keepalive: Keepalive::default(),
        })
    }
}

/// A machine's stream.
pub(crate) struct Machine {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Machine {
    /// Opens a stream, over TLS with credentials or else in plain text, and waits for the first
    /// response.
    pub(crate) async fn open(
        server: SocketAddr,
        papers: Option<&Credentials>,
        metadata: &Value,
    ) -> Result<Self, Status> {
        let (requests, outgoing) = mpsc::channel(8);
        let locality = Locality {
            region: "north".to_owned(),
            zone: "n1".to_owned(),
            ..Locality::default()
        };

        let node = Node {
            id: "sidecar~10.9.0.7~machine-7.vms~vms.svc.cluster.local".to_owned(),
            metadata: Some(fields(metadata)),
            locality: Some(locality),
            ..Node::default()
        };

        let hello = DeltaDiscoveryRequest {
            node: Some(node),
            type_url: CLUSTERS.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(hello).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        let channel = match papers {
            Some(papers) => {
                let upstream = papers.upstream(server);
                upstream.sign(request.metadata_mut()).await.unwrap();
                upstream.connect().await.unwrap()
            }
            None => tonic::transport::Channel::from_shared(format!("http://{server}"))
                .unwrap()
                .connect()
                .await
                .unwrap(),
        };

        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let mut responses = client
            .delta_aggregated_resources(request)
            .await?
            .into_inner();
        let first = tokio::time::timeout(TIMEOUT, responses.message())
            .await
            .expect("no answer")?;
        assert_eq!(first.expect("an answer").type_url, CLUSTERS);

        Ok(Self {
            requests,
            responses,
        })
    }

    /// The error of a stream that must be rejected.
    pub(crate) async fn rejected(
        server: SocketAddr,
        papers: Option<&Credentials>,
        metadata: &Value,
    ) -> (Code, String) {
        match Self::open(server, papers, metadata).await {
            Ok(_) => panic!("not rejected"),
            Err(status) => (status.code(), status.message().to_owned()),
        }
    }

    /// Reports the health of the workload.
    pub(crate) async fn report_health(&self, wrong: Option<&str>) {
        let error_detail = wrong.map(|message| ErrorDetail {
            code: 500,
            message: message.to_owned(),
            details: Vec::new(),
        });
        let report = DeltaDiscoveryRequest {
            type_url: HEALTH.to_owned(),
            error_detail,
            ..Default::default()
        };
        self.requests.send(report).await.unwrap();
    }

    /// Closes the stream, and waits until the server has closed it.
    pub(crate) async fn close(self) {
        let Self {
            requests,
            mut responses,
        } = self;
        drop(requests);
        while let Ok(Some(_)) = responses.message().await {}
    }
}

/// Node metadata as protobuf.
fn fields(object: &Value) -> prost_types::Struct {
    fn value(value: &Value) -> prost_types::Value {
        let kind = match value {
            Value::Object(_) => Kind::StructValue(fields(value)),
            Value::String(text) => Kind::StringValue(text.clone()),
            Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
            Value::Null | Value::Bool(_) | Value::Array(_) => panic!("not supported: {value}"),
        };
        prost_types::Value { kind: Some(kind) }
    }
    let members = object.as_object().unwrap().iter();
    prost_types::Struct {
        fields: members
            .map(|(name, member)| (name.clone(), value(member)))
            .collect(),
    }
}
