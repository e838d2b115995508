//! Simulated sidecars that accept, reject or ignore responses.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use navarch_proto::google::rpc::Status;
use parking_lot::Mutex;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Endpoint, Uri};

use crate::issuer::Issuer;

/// A sidecar's reaction to responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Acknowledges all.
    Accept,
    /// Rejects responses that contain the first text (all if it is empty), with the second one as
    /// error.
    Reject(&'static str, &'static str),
    /// Ignores all responses after the first of each type.
    Ignore,
}

/// A sidecar. It disconnects when dropped.
pub struct Sidecar {
    task: JoinHandle<()>,
    /// The last route configuration that it received.
    route: Arc<Mutex<Vec<u8>>>,
}

impl Sidecar {
    /// Whether the last route configuration contains this text.
    pub fn routes_by(&self, text: &str) -> bool {
        self.route
            .lock()
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The types to which it subscribes: clusters, listeners, and a route configuration by name.
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The issuer of the sidecars' tokens. Only control planes with the settings of [`identities`]
/// validate them.
static ISSUER: LazyLock<Issuer> = LazyLock::new(Issuer::with_new_key);

/// Environment variables of a control plane that authenticates the sidecars, although they use
/// plain text.
pub fn identities() -> [(&'static str, String); 2] {
    [
        ("XDS_AUTH_PLAINTEXT", "true".to_owned()),
        ("JWT_RULE", ISSUER.rule()),
    ]
}

/// The pod of a sidecar.
pub fn pod(name: &str, namespace: &str, ip: &str) -> String {
    let ip = source(ip);
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: web}}}}\n\
         spec: {{serviceAccountName: {name}, containers: [{{name: app, image: app}}]}}\n\
         status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: \"True\"}}]}}\n---\n"
    )
}

/// The source address of a sidecar's connection: each has its own loopback address.
fn source(ip: &str) -> IpAddr {
    let own = ip
        .strip_prefix("10.7.")
        .map(|rest| format!("127.7.{rest}").parse().unwrap());
    own.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Connects from a source address.
#[derive(Clone, Copy)]
struct Connector {
    from: IpAddr,
    to: SocketAddr,
}

impl tonic::codegen::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { from, to } = *self;
        Box::pin(async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            let stream = socket.connect(to).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// A request with the token of a service account.
pub fn authorized<T>(message: T, namespace: &str, account: &str) -> tonic::Request<T> {
    let subject = format!("system:serviceaccount:{namespace}:{account}");
    let token = ISSUER.token(serde_json::json!({ "sub": subject }));
    let bearer = format!("Bearer {token}").parse().unwrap();
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", bearer);
    request
}

/// Connects as a pod of a namespace, and waits for the first response: from then on the control
/// plane knows the proxy.
pub async fn connect(
    server: SocketAddr,
    pod: &str,
    namespace: &str,
    ip: &str,
    labels: &[(&str, &str)],
    reaction: Reaction,
) -> Sidecar {
    let connector = Connector {
        from: source(ip),
        to: server,
    };
    let channel = Endpoint::from_static("http://istiod.istio-system.svc")
        .connect_with_connector(connector)
        .await
        .unwrap();
    let mut service = AggregatedDiscoveryServiceClient::new(channel);
    let (requests, outgoing) = mpsc::channel(64);
    let text = |text: &str| prost_types::Value {
        kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
    };
    let labels = prost_types::Struct {
        fields: labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), text(value)))
            .collect(),
    };

    let labels = prost_types::Value {
        kind: Some(prost_types::value::Kind::StructValue(labels)),
    };
    let fields = [
        ("NAMESPACE", text(namespace)),
        ("LABELS", labels),
        ("SERVICE_ACCOUNT", text(pod)),
    ];

    let metadata = prost_types::Struct {
        fields: fields.map(|(key, value)| (key.to_owned(), value)).into(),
    };
    let id = format!("sidecar~{ip}~{pod}.{namespace}~{namespace}.svc.cluster.local");
    let node = Node {
        id,
        metadata: Some(metadata),
        ..Node::default()
    };

    let ask = |url: &str, names: &[&str]| DeltaDiscoveryRequest {
        type_url: url.to_owned(),
        resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DeltaDiscoveryRequest::default()
    };

    requests
        .send(DeltaDiscoveryRequest {
            node: Some(node),
            ..ask(CDS, &[])
        })
        .await
        .unwrap();

    requests.send(ask(LDS, &[])).await.unwrap();
    requests.send(ask(RDS, &["9080"])).await.unwrap();
    let clusters = [
        "outbound|9080|v1|reviews",
        "outbound|9080|v2|reviews",
        "outbound|9080||catalog",
    ];
    let clusters = clusters.map(|name| format!("{name}.{namespace}.svc.cluster.local"));

    requests
        .send(ask(EDS, &clusters.each_ref().map(String::as_str)))
        .await
        .unwrap();
    let request = authorized(ReceiverStream::new(outgoing), namespace, pod);
    let responses = service
        .delta_aggregated_resources(request)
        .await
        .unwrap()
        .into_inner();

    let route = Arc::<Mutex<Vec<u8>>>::default();
    let (is_known, known) = oneshot::channel();
    let stream = Stream {
        requests,
        reaction,
        route: route.clone(),
        is_known: Some(is_known),
    };
    let sidecar = Sidecar {
        task: tokio::spawn(stream.answer(responses)),
        route,
    };

    known
        .await
        .expect("the control plane responds before it ends the stream");
    sidecar
}

/// A sidecar's side of its stream.
struct Stream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    reaction: Reaction,
    /// Where the last route configuration goes.
    route: Arc<Mutex<Vec<u8>>>,
    /// Completed by the first response.
    is_known: Option<oneshot::Sender<()>>,
}

impl Stream {
    /// Handles responses until the stream ends.
    async fn answer(mut self, mut responses: Streaming<DeltaDiscoveryResponse>) {
        let mut seen = BTreeSet::new();

        while let Ok(Some(response)) = responses.message().await {
            if let Some(is_known) = self.is_known.take() {
                let _ = is_known.send(());
            }

            let is_first = seen.insert(response.type_url.clone());
            self.keep_route(&response);

            if self.reaction == Reaction::Ignore && !is_first {
                continue;
            }

            let answer = DeltaDiscoveryRequest {
                error_detail: self.rejection(&response),
                type_url: response.type_url,
                response_nonce: response.nonce,
                ..DeltaDiscoveryRequest::default()
            };

            if self.requests.send(answer).await.is_err() {
                return;
            }
        }
    }

    /// Keeps the route configuration of a response that has one.
    fn keep_route(&self, response: &DeltaDiscoveryResponse) {
        let mut bodies = response
            .resources
            .iter()
            .filter_map(|one| one.resource.as_ref());
        let first = bodies.next().filter(|body| body.type_url == RDS);

        if let Some(body) = first {
            self.route.lock().clone_from(&body.value.to_vec());
        }
    }

    /// The error with which the sidecar rejects a response, if it does.
    fn rejection(&self, response: &DeltaDiscoveryResponse) -> Option<Status> {
        let Reaction::Reject(text, words) = self.reaction else {
            return None;
        };
        let mut bodies = response
            .resources
            .iter()
            .filter_map(|one| one.resource.as_ref());
        let holds = |body: &prost_types::Any| {
            let mut parts = body.value.windows(text.len().max(1));
            text.is_empty() || parts.any(|part| part == text.as_bytes())
        };

        bodies.any(holds).then(|| Status {
            code: 13,
            message: words.to_owned(),
            ..Status::default()
        })
    }
}
