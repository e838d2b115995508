//! Proxies that reject what contains a text.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use navarch_proto::envoy::config::core::v3::Node;
use navarch_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use navarch_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use navarch_proto::google::rpc::Status;
use parking_lot::Mutex;
use prost_types::value::Kind;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

use crate::grpc::CLUSTERS;
use crate::issuer::Issuer;
use crate::network::{self, channel};
use crate::plane::{self, Plane};

const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const LISTENERS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// The message of an attacker's NACK.
const NOISE: &str = "no\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J";

/// A proxy.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    /// `sidecar` or `router`.
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) pod: &'a str,
    pub(super) account: &'a str,
    pub(super) at: Ipv4Addr,
    pub(super) labels: &'a [(&'a str, &'a str)],
    /// Whether it authenticates.
    pub(super) is_proved: bool,
    /// It rejects responses that contain this text; if it is patient, only after it has accepted
    /// the first response of the type.
    pub(super) rejects: Option<&'a str>,
    pub(super) is_patient: bool,
    /// The delay before it responds.
    pub(super) delay: Duration,
    /// Whether it subscribes to a Secret alone, so that no object reaches it.
    pub(super) is_decoy: bool,
    /// How often it sends each rejection.
    pub(super) rejections: Repetition,
}

/// How often something is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    Once,
    WithoutEnd,
}

impl Default for Client<'_> {
    fn default() -> Self {
        Self {
            kind: "sidecar",
            namespace: "bookshop",
            pod: "web-0",
            account: "web",
            at: network::client(1, 0),
            labels: &[],
            is_proved: true,
            rejects: None,
            is_patient: false,
            delay: Duration::ZERO,
            is_decoy: false,
            rejections: Repetition::Once,
        }
    }
}

/// A connected proxy. It disconnects when dropped.
pub(super) struct Connected {
    task: JoinHandle<()>,
    /// The names of its resources. Listeners with a Lua filter are added a second time.
    pub(super) has: Arc<Mutex<BTreeSet<String>>>,
    /// The number of responses that it has rejected, and of all that it has answered.
    rejections: Arc<Mutex<usize>>,
    answers: Arc<Mutex<usize>>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connected {
    pub(super) fn has(&self, part: &str) -> bool {
        self.has.lock().iter().any(|one| one.contains(part))
    }

    /// How many responses it has rejected.
    pub(super) fn rejected(&self) -> usize {
        *self.rejections.lock()
    }

    /// How many responses it has answered.
    pub(super) fn answered(&self) -> usize {
        *self.answers.lock()
    }
}

impl Client<'_> {
    pub(super) fn pod(&self) -> String {
        let Self {
            namespace,
            pod,
            account,
            at,
            labels,
            ..
        } = self;
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        let labels = labels.join(", ");
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}, namespace: {namespace}, labels: {{{labels}}}}}\n\
             spec: {{serviceAccountName: {account}, containers: [{{name: app, image: app}}]}}\n\
             status: {{phase: Running, podIP: {at}, podIPs: [{{ip: {at}}}], conditions: [{{type: Ready, status: \"True\"}}]}}\n---\n"
        )
    }

    fn node(&self) -> Node {
        let text = |text: &str| prost_types::Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let labels = prost_types::Struct {
            fields: self
                .labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), text(value)))
                .collect(),
        };
        let labels = prost_types::Value {
            kind: Some(Kind::StructValue(labels)),
        };

        let fields = [
            ("NAMESPACE", text(self.namespace)),
            ("SERVICE_ACCOUNT", text(self.account)),
            ("CLUSTER_ID", text("Kubernetes")),
            ("LABELS", labels),
        ];

        let Self {
            kind,
            namespace,
            pod,
            at,
            ..
        } = self;

        Node {
            id: format!("{kind}~{at}~{pod}.{namespace}~{namespace}.svc.cluster.local"),
            metadata: Some(prost_types::Struct {
                fields: fields.map(|(key, value)| (key.to_owned(), value)).into(),
            }),
            ..Node::default()
        }
    }

    pub(super) async fn connect(&self, plane: &Plane) -> Result<Connected> {
        let to = if self.is_proved {
            plane::SECURE
        } else {
            plane::XDS
        };
        self.connect_to(to, &plane.issuer).await
    }

    /// Connects to a port of any control plane that trusts an issuer of tokens.
    pub(super) async fn connect_to(&self, to: SocketAddr, issuer: &Issuer) -> Result<Connected> {
        let channel = channel(self.at, to, self.is_proved).await?;
        let (requests, outgoing) = mpsc::channel(64);
        let ask = |url: &str| DeltaDiscoveryRequest {
            type_url: url.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        let first = if self.is_decoy {
            DeltaDiscoveryRequest {
                node: Some(self.node()),
                resource_names_subscribe: vec!["default".to_owned()],
                ..ask(SECRETS)
            }
        } else {
            DeltaDiscoveryRequest {
                node: Some(self.node()),
                ..ask(CLUSTERS)
            }
        };
        requests.send(first).await?;
        if !self.is_decoy {
            requests.send(ask(LISTENERS)).await?;
        }

        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        if self.is_proved {
            let sub = format!("system:serviceaccount:{}:{}", self.namespace, self.account);
            let token = issuer.token(json!({ "sub": sub }));
            request
                .metadata_mut()
                .insert("authorization", format!("Bearer {token}").parse()?);
        }
        let mut responses = AggregatedDiscoveryServiceClient::new(channel)
            .delta_aggregated_resources(request)
            .await?
            .into_inner();

        let has = Arc::<Mutex<BTreeSet<String>>>::default();
        let rejections = Arc::<Mutex<usize>>::default();
        let answers = Arc::<Mutex<usize>>::default();
        let names = has.clone();
        let rejected = rejections.clone();
        let answered = answers.clone();
        let rejects = self.rejects.map(ToOwned::to_owned);
        let delay = self.delay;
        let is_patient = self.is_patient;
        let floods = self.rejections == Repetition::WithoutEnd;
        let task = tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            while let Ok(Some(response)) = responses.message().await {
                let is_first = seen.insert(response.type_url.clone());
                let is_bad = rejects
                    .as_deref()
                    .is_some_and(|text| holds(&response, text) && !(is_first && is_patient));
                sleep(delay).await;

                if is_bad {
                    *rejected.lock() += 1;
                } else {
                    let mut names = names.lock();
                    for name in &response.removed_resources {
                        names.remove(name);
                    }
                    names.extend(response.resources.iter().map(|one| one.name.clone()));
                    for one in &response.resources {
                        if contains(one, "filters.http.lua") {
                            names.insert(format!("{} with the filter", one.name));
                        } else {
                            names.remove(&format!("{} with the filter", one.name));
                        }
                    }
                }

                let answer = DeltaDiscoveryRequest {
                    type_url: response.type_url,
                    response_nonce: response.nonce,
                    error_detail: is_bad.then(|| Status {
                        code: 13,
                        message: NOISE.to_owned(),
                        ..Status::default()
                    }),
                    ..DeltaDiscoveryRequest::default()
                };
                if is_bad && floods {
                    let requests = requests.clone();
                    let again = answer.clone();
                    // Until the stream ends.
                    tokio::spawn(
                        async move { while requests.send(again.clone()).await.is_ok() {} },
                    );
                }
                if requests.send(answer).await.is_err() {
                    return;
                }
                *answered.lock() += 1;
            }
        });

        Ok(Connected {
            task,
            has,
            rejections,
            answers,
        })
    }
}

/// Whether a resource of a response has this text in its name or content.
fn holds(response: &DeltaDiscoveryResponse, text: &str) -> bool {
    response
        .resources
        .iter()
        .any(|one| one.name.contains(text) || contains(one, text))
}

fn contains(one: &Resource, text: &str) -> bool {
    one.resource.as_ref().is_some_and(|body| {
        body.value
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}
