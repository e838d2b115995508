//! A kubelet whose pods are agents of the test: it forwards the status port, and shows annotations.
//! No container runs.

#![allow(
    clippy::result_large_err,
    reason = "the type of the handshake's callback is the library's"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use navarch_agent::upgrade::ANNOTATION;
use navarch_agent::upgrade::status::{SharedStatus, UpgradeState};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

/// The port that commands ask for.
const STATUS_PORT: u16 = 15020;
/// The protocol of port-forwards: frames begin with the number of their stream.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// The streams of the first port.
const DATA: u8 = 0;
const ERRORS: u8 = 1;
/// How soon an annotation is shown. A real kubelet needs a minute or two.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);
/// How long each state of a simulated agent lasts.
const STATE_DURATION: Duration = Duration::from_millis(200);

/// How an agent sees the annotation of its pod.
pub(super) enum Sight {
    /// By the file of the downward API.
    File(PathBuf),
    /// A simulated agent, which runs what it is asked for.
    Simulated(SimulatedAgent),
}

/// An agent that shows a status, and has no Envoy.
#[derive(Clone)]
pub(super) struct SimulatedAgent {
    pub(super) status: SharedStatus,
    /// The version of the image's Envoy.
    pub(super) original: String,
    /// That of any other program.
    pub(super) other: String,
}

/// An agent in a pod.
pub(super) struct PodAgent {
    pub(super) status_port: u16,
    pub(super) sight: Sight,
}

/// A running kubelet; ends when dropped.
pub(super) struct Kubelet {
    pub(super) port: u16,
    /// The pods whose annotation has changed, in order.
    patched: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

impl SimulatedAgent {
    /// Serves the status. Returns the port.
    pub(super) async fn serve(&self, tasks: &mut JoinSet<()>) -> Result<u16> {
        let status = self.status.clone();
        let page = move || async move { serde_json::to_string(&status.get()).unwrap() };
        let app = axum::Router::new().route("/navarch/proxy", axum::routing::get(page));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tasks.spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(port)
    }

    /// Goes through the states of an attempt that succeeds.
    async fn replace(self, wanted: String) {
        for state in [UpgradeState::Starting, UpgradeState::Judging] {
            self.begin(&wanted, state);
            sleep(STATE_DURATION).await;
        }
        let version = match wanted.is_empty() {
            true => self.original.clone(),
            false => self.other.clone(),
        };
        self.status.update(|status| {
            status.version = version;
            status.epoch += 1;
        });
        self.begin(&wanted, UpgradeState::Done);
    }

    fn begin(&self, wanted: &str, state: UpgradeState) {
        self.status
            .begin(wanted, state, "", std::time::SystemTime::now());
    }
}

impl Kubelet {
    /// Listens for the API server, for pods with these names.
    pub(super) async fn start(agents: &BTreeMap<String, PodAgent>) -> Result<Self> {
        let ports: BTreeMap<_, _> = agents
            .iter()
            .map(|(name, agent)| (name.clone(), agent.status_port))
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let acceptor = acceptor()?;

        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let ports = ports.clone();
                // Without a forwarded port the command names the pod and the error.
                connections.spawn(async move { drop(forward(stream, &acceptor, &ports).await) });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            port,
            patched: Arc::default(),
            tasks,
        })
    }

    /// Shows changed annotations of a namespace's pods to their agents.
    pub(super) fn show_annotations(
        &mut self,
        client: Client,
        namespace: &str,
        agents: BTreeMap<String, PodAgent>,
    ) {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let patched = self.patched.clone();
        self.tasks.spawn(async move {
            let mut shown = BTreeMap::new();
            let mut attempts = JoinSet::new();
            loop {
                for (pod, wanted) in changes(&pods, &shown).await {
                    patched.lock().push(pod.clone());
                    match &agents[&pod].sight {
                        Sight::File(path) => show(path, &wanted),
                        Sight::Simulated(agent) => {
                            attempts.spawn(agent.clone().replace(wanted.clone()));
                        }
                    }
                    shown.insert(pod, wanted);
                }
                sleep(SHOW_INTERVAL).await;
            }
        });
    }

    /// The pods whose annotation has changed since the last call, in order.
    pub(super) fn take_patched(&self) -> Vec<String> {
        std::mem::take(&mut self.patched.lock())
    }
}

/// The pods whose annotation is not as it was shown, in the order in which they were patched.
async fn changes(pods: &Api<Pod>, shown: &BTreeMap<String, String>) -> Vec<(String, String)> {
    // The API server is asked again in a moment.
    let listed = pods.list(&ListParams::default()).await;
    let mut changed: Vec<_> = listed
        .into_iter()
        .flat_map(|list| list.items)
        .map(|pod| {
            let wanted = pod.annotations().get(ANNOTATION).cloned();
            let revision: u64 = pod.resource_version().unwrap().parse().unwrap();
            (revision, pod.name_any(), wanted.unwrap_or_default())
        })
        .filter(|(_, pod, wanted)| shown.get(pod).map_or("", String::as_str) != wanted)
        .collect();
    changed.sort_unstable();
    let changed = changed.into_iter();
    changed.map(|(_, pod, wanted)| (pod, wanted)).collect()
}

/// Writes the file of the downward API with one annotation, or with none that matters.
fn show(path: &PathBuf, wanted: &str) {
    let text = match wanted {
        "" => "other=\"x\"\n".to_owned(),
        wanted => format!("{ANNOTATION}={wanted:?}\n"),
    };
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// TLS with a certificate that the API server does not verify.
fn acceptor() -> Result<TlsAcceptor> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves one port-forward to the status port of a pod: `/portForward/NAMESPACE/POD`.
async fn forward(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    ports: &BTreeMap<String, u16>,
) -> Result<()> {
    let stream = acceptor.accept(stream).await?;
    let mut path = String::new();
    let handshake = |request: &Request, mut response: Response| {
        path = request.uri().path().to_owned();
        let protocol = HeaderValue::from_static(PROTOCOL);
        response
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, handshake).await?;

    let pod = path.rsplit('/').next().unwrap_or_default();
    let port = ports.get(pod).with_context(|| path.clone())?;
    let mut agent = TcpStream::connect(("127.0.0.1", *port)).await?;
    for stream in [DATA, ERRORS] {
        let frame = [&[stream][..], &STATUS_PORT.to_le_bytes()].concat();
        socket.send(Message::binary(frame)).await?;
    }

    let mut buffer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            message = socket.next() => match message.transpose()? {
                Some(Message::Binary(frame)) if frame.first() == Some(&DATA) => {
                    agent.write_all(&frame[1..]).await?;
                }
                Some(Message::Close(_)) | None => return Ok(()),
                Some(_) => {}
            },
            length = agent.read(&mut buffer) => match length? {
                0 => return Ok(socket.close(None).await?),
                length => {
                    let frame = [&[DATA][..], &buffer[..length]].concat();
                    socket.send(Message::binary(frame)).await?;
                }
            },
        }
    }
}
