//! The client of a control plane's debug API: over HTTP, on the port of metrics and debug pages, by
//! address or through the API server of its cluster.

use std::cell::OnceCell;
use std::fmt;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use futures_util::future::join_all;
use http::{HeaderValue, Method, header};
use jiff::Timestamp;
use navarch_agent::local_http::{LocalRequest, LocalResponse};
use navarch_base::printable::escape;
use navarch_base::regular_file;
use tokio::runtime::Runtime;

use super::cluster::{Cluster, ClusterFlags, ReadyPod};
use super::output::report;

/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 1 << 30;

/// The default address without an address and a cluster.
const LOCAL_ADDRESS: &str = "127.0.0.1:15014";

/// Which control plane is asked.
#[derive(Args, Clone, Debug)]
pub(super) struct DebugApi {
    /// Address of the debug pages of the control plane, instead of the pods of a cluster; can be
    /// repeated, once per replica, or be a name that resolves to all of them (a headless Service).
    /// From another machine it requires --token-file. If unset, the pods of the kubeconfig's
    /// cluster are used, or 127.0.0.1:15014 without a kubeconfig
    #[arg(
        long = "address",
        global = true,
        value_name = "HOST:PORT",
        conflicts_with_all = ["kubeconfig", "context", "revision"]
    )]
    addresses: Vec<String>,
    /// File with the token of a service account that is authorized for debug pages
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[arg(skip)]
    opened: OnceCell<Rc<Session>>,
}

/// The control planes to send requests to.
#[derive(Debug)]
struct Session {
    runtime: Runtime,
    servers: Servers,
}

/// Control planes, and how to reach them.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    way: ServerSource,
    token_file: Option<PathBuf>,
}

/// How to reach control planes.
#[derive(Clone, Debug)]
enum ServerSource {
    Addresses(Vec<String>),
    Cluster(Box<Cluster>),
}

#[derive(Clone, Debug)]
pub(super) enum ControlPlane {
    Address {
        /// Host name or IP address.
        host: String,
        port: u16,
    },
    /// Through the API server.
    Pod(Box<ReadyPod>),
}

impl fmt::Display for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Address { host, port } => write!(f, "{host}:{port}"),
            Self::Pod(pod) => pod.fmt(f),
        }
    }
}

impl ControlPlane {
    /// The label `istio.io/rev` of its pod.
    fn revision(&self) -> Option<String> {
        match self {
            Self::Address { .. } => None,
            Self::Pod(pod) => pod.revision.clone(),
        }
    }
}

/// The response of one control plane.
#[derive(Debug)]
pub(super) struct ReplicaResponse {
    /// Its address, or the name of its pod.
    pub(super) place: String,
    /// The label `istio.io/rev` of its pod; `None` for addresses and pods without the label.
    pub(super) revision: Option<String>,
    /// The response, or its error.
    pub(super) answer: anyhow::Result<LocalResponse>,
    /// The times of the request and the response.
    pub(super) window: [Timestamp; 2],
}

/// Selects control planes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Among {
    /// Those that are ready.
    Ready,
    /// All that are running.
    Running,
}

/// A request without its target.
#[derive(Clone, Debug)]
pub(super) struct DebugRequest {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    /// The body, as JSON.
    pub(super) body: Vec<u8>,
    pub(super) timeout: Duration,
}

impl DebugRequest {
    /// A request for a page.
    pub(super) fn get(path: String, timeout: Duration) -> Self {
        Self {
            method: Method::GET,
            path,
            body: Vec::new(),
            timeout,
        }
    }
}

impl DebugApi {
    /// Sends a request to one control plane; in a cluster, to the first one that is ready.
    ///
    /// # Errors
    /// If there are several addresses, or the request fails.
    pub(super) fn query(&self, request: &DebugRequest) -> anyhow::Result<LocalResponse> {
        let Session { runtime, servers } = &*self.opened()?;
        runtime.block_on(async {
            let (place, others) = servers.one().await?;
            if others > 0 {
                report(&format!(
                    "response of {place}; it does not include the proxies of {others} other ready control planes"
                ));
            }
            servers.query_at(&place, request).await
        })
    }

    /// Sends a request to every replica: each given address, each address that a name resolves to,
    /// or each ready pod of the cluster. Returns their addresses or names with the responses.
    ///
    /// # Errors
    /// If an address cannot be resolved, or no pod is ready.
    pub(super) fn query_each(
        &self,
        request: &DebugRequest,
    ) -> anyhow::Result<Vec<(String, anyhow::Result<LocalResponse>)>> {
        Ok(self
            .query_all(request, Among::Ready)?
            .into_iter()
            .map(|response| (response.place, response.answer))
            .collect())
    }

    /// Like [`DebugApi::query_each`], with the time of each response.
    ///
    /// # Errors
    /// If an address cannot be resolved, or no such pod exists.
    pub(super) fn query_all(
        &self,
        request: &DebugRequest,
        among: Among,
    ) -> anyhow::Result<Vec<ReplicaResponse>> {
        let Session { runtime, servers } = &*self.opened()?;
        runtime.block_on(async {
            let places = servers.all(among).await?;
            let answers = places.iter().map(|place| async {
                let begin = Timestamp::now();
                let answer = servers.query_at(place, request).await;
                ReplicaResponse {
                    place: place.to_string(),
                    revision: place.revision(),
                    answer,
                    window: [begin, Timestamp::now()],
                }
            });
            Ok(join_all(answers).await)
        })
    }

    /// The flags that select a cluster.
    pub(super) fn cluster_flags(&self) -> &ClusterFlags {
        &self.cluster
    }

    /// The control planes to send requests to.
    ///
    /// # Errors
    /// If a kubeconfig is invalid.
    pub(super) async fn servers(&self) -> anyhow::Result<Servers> {
        let way = match self.addresses.as_slice() {
            [] => self.cluster.open().await?.map_or_else(
                || ServerSource::Addresses(vec![LOCAL_ADDRESS.to_owned()]),
                |cluster| ServerSource::Cluster(Box::new(cluster)),
            ),
            named => ServerSource::Addresses(named.to_vec()),
        };
        Ok(Servers {
            way,
            token_file: self.token_file.clone(),
        })
    }

    /// Like [`DebugApi::servers`], opened once for all requests of a command.
    fn opened(&self) -> anyhow::Result<Rc<Session>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened.clone());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        let servers = runtime.block_on(self.servers())?;
        Ok(self
            .opened
            .get_or_init(|| Rc::new(Session { runtime, servers }))
            .clone())
    }
}

impl Servers {
    /// The first control plane, and the number of other ready ones.
    ///
    /// # Errors
    /// If there are several addresses, or no pod is ready.
    pub(super) async fn one(&self) -> anyhow::Result<(ControlPlane, usize)> {
        match &self.way {
            ServerSource::Addresses(named) => {
                let [address] = named.as_slice() else {
                    bail!("set exactly one --address: the request is sent to one replica")
                };
                let (host, port) = host_and_port(address)?;
                Ok((
                    ControlPlane::Address {
                        host: host.to_owned(),
                        port,
                    },
                    0,
                ))
            }
            ServerSource::Cluster(cluster) => {
                let ready = cluster.ready().await?;
                let others = ready.len().saturating_sub(1);
                let first = ready
                    .into_iter()
                    .next()
                    .context("no control plane is ready")?;
                Ok((ControlPlane::Pod(Box::new(first)), others))
            }
        }
    }

    /// Every control plane that is ready.
    ///
    /// # Errors
    /// If an address cannot be resolved, or no pod is ready.
    pub(super) async fn ready(&self) -> anyhow::Result<Vec<ControlPlane>> {
        self.all(Among::Ready).await
    }

    /// The current control planes.
    async fn all(&self, among: Among) -> anyhow::Result<Vec<ControlPlane>> {
        match &self.way {
            ServerSource::Addresses(named) => {
                let resolved = named
                    .iter()
                    .map(|address| resolved(address))
                    .collect::<anyhow::Result<Vec<_>>>()?;
                Ok(resolved.concat())
            }
            ServerSource::Cluster(cluster) => {
                let pods = cluster.pods(among).await?;
                Ok(pods
                    .into_iter()
                    .map(|pod| ControlPlane::Pod(Box::new(pod)))
                    .collect())
            }
        }
    }

    /// Sends a request, with the token if there is a token file. The file is read each time: tokens
    /// of service accounts are replaced within an hour.
    ///
    /// # Errors
    /// If the request fails.
    pub(super) async fn put(
        &self,
        place: &ControlPlane,
        mut question: LocalRequest,
    ) -> anyhow::Result<LocalResponse> {
        if let Some(file) = &self.token_file {
            question
                .headers
                .insert(header::AUTHORIZATION, authorization(file)?);
        }
        match place {
            ControlPlane::Address { host, port } => {
                question.host = host.clone();
                question.port = *port;
                question
                    .send()
                    .await
                    .with_context(|| format!("{place} does not respond"))
            }
            ControlPlane::Pod(ready) => ready.pod.send(question).await,
        }
    }

    /// Sends a request to one control plane.
    async fn query_at(
        &self,
        place: &ControlPlane,
        request: &DebugRequest,
    ) -> anyhow::Result<LocalResponse> {
        let mut question = LocalRequest::get("", 0, &request.path, request.timeout);
        (question.method, question.body, question.limit) = (
            request.method.clone(),
            request.body.clone().into(),
            MAX_RESPONSE,
        );

        if !request.body.is_empty() {
            question.headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
        }

        let answer = self.put(place, question).await?;
        match answer.status.as_u16() {
            // 404 is a valid response, too.
            200..=299 | 404 => Ok(answer),
            401 | 403 => bail!("{place} denied access: {ACCESS_ADVICE}"),
            status => bail!(
                "{place} responded with {status}: {}",
                escape(answer.text().trim())
            ),
        }
    }
}

/// The advice for callers without access.
pub(super) const ACCESS_ADVICE: &str =
    "use --token-file or --kubeconfig, or run the command on its machine";

/// The control planes that an address resolves to.
fn resolved(address: &str) -> anyhow::Result<Vec<ControlPlane>> {
    let (host, port) = host_and_port(address)?;
    let found = (host, port)
        .to_socket_addrs()
        .with_context(|| format!("failed to resolve {address}"))?;
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    found.dedup();

    // `localhost` resolves to loopback addresses of both families, but is one control plane.
    if found.iter().all(|one| one.ip().is_loopback()) {
        return Ok(vec![ControlPlane::Address {
            host: host.to_owned(),
            port,
        }]);
    }

    Ok(found
        .iter()
        .map(|one| ControlPlane::Address {
            host: one.ip().to_string(),
            port: one.port(),
        })
        .collect())
}

/// Parameters as a URL's query.
pub(super) fn query(parameters: &[(&str, &str)]) -> String {
    let escaped = |text: &str| {
        let one = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        };
        text.bytes().map(one).collect::<String>()
    };
    parameters
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// Splits an address into host and port, without the brackets of IPv6.
///
/// # Errors
/// If it has no port.
pub(super) fn host_and_port(address: &str) -> anyhow::Result<(&str, u16)> {
    let (host, port) = address
        .rsplit_once(':')
        .context("--address must be host:port")?;
    let port = port.parse().context("--address must be host:port")?;
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

/// The `Authorization` header with a token.
///
/// # Errors
/// If the file cannot be read or contains no token.
pub(super) fn authorization(file: &Path) -> anyhow::Result<HeaderValue> {
    let token = regular_file::read_text(file)
        .with_context(|| format!("failed to read {}", file.display()))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .context("not a valid bearer token")?;
    value.set_sensitive(true);
    Ok(value)
}
