//! `navarch dashboard`: serves the page of a control plane on this machine, with the token for the
//! control plane.

mod evidence;
mod proxies;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use clap::Args;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::debug_api::{ACCESS_ADVICE, ControlPlane, DebugApi, Servers};
use super::output::{print_text, report};
use evidence::{EDGES_PATH, EvidenceFile};
use navarch_agent::local_http::{LocalRequest, LocalResponse};
use navarch_base::printable::{escape_json, escape_lines};
use navarch_net::same_machine::is_of_this_machine;
use navarch_scope::evidence::MAX_EDGE_EVIDENCE;

/// Timeout of a request to a control plane; plans take longest.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum size of a response in bytes.
const MAX_RESPONSE: usize = 256 << 20;
/// Maximum size of a request body in bytes: evidence is the largest.
const MAX_BODY: usize = MAX_EDGE_EVIDENCE;
/// Maximum number of concurrent requests; others wait.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Maximum number of replicas whose proxies are listed.
const MAX_REPLICAS: usize = 16;
/// Timeout of one replica's list.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the list of replicas is cached.
const REPLICAS_TTL: Duration = Duration::from_secs(5);
/// The headers that are forwarded to the control plane, and back to the browser.
const REQUEST_HEADERS: [HeaderName; 3] =
    [header::ACCEPT, header::CONTENT_TYPE, header::IF_NONE_MATCH];
const RESPONSE_HEADERS: [HeaderName; 7] = [
    header::CACHE_CONTROL,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LOCATION,
    header::REFERRER_POLICY,
    header::X_CONTENT_TYPE_OPTIONS,
];

/// Serve the dashboard of a control plane on this machine
///
/// Serves until Ctrl-C: the mesh as a graph, proxies, objects, changes as they happen,
/// certificates, traces of requests and plans. With --evidence the mesh has the calls that were
/// counted, too.
///
/// All users of this machine can use the port, and see what the token or the kubeconfig permits.
/// Nothing can be changed through it. The page lists the proxies of all ready control planes (or of
/// each --address), with details from the control plane of each; everything else comes from the
/// first control plane.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  navarch dashboard
  kubectl navarch dashboard --context production --browser
  navarch dashboard --evidence shop.json    of navarch scope suggest -n shop -o json > shop.json
  navarch dashboard --address istiod.istio-system:15014 --token-file token --port 8800")]
pub(super) struct Dashboard {
    /// Port on this machine; a free one if unset
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Open it in a browser
    #[arg(long)]
    browser: bool,
    /// File with the output (-o json) of navarch scope: the page shows its calls beside what is
    /// allowed. It is read whenever the page asks
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    #[command(flatten)]
    api: DebugApi,
}

/// The cached replicas, with their time.
type ReadyReplicas = Option<(Instant, Vec<ControlPlane>)>;

/// Forwards requests to control planes.
#[derive(Clone, Debug)]
struct Forward {
    servers: Servers,
    /// The current control plane, until it fails.
    place: Arc<Mutex<ControlPlane>>,
    known: Arc<Mutex<ReadyReplicas>>,
    turns: Arc<Semaphore>,
    evidence: Option<EvidenceFile>,
}

impl Dashboard {
    /// Prints the address of the page, and forwards requests until the process ends.
    ///
    /// # Errors
    /// If the port is in use, or the control plane does not respond.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let evidence = self
            .evidence
            .clone()
            .map(EvidenceFile::checked)
            .transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start the tokio runtime")?;
        runtime.block_on(async {
            let servers = self.api.servers().await?;
            let place = servers.ready().await?.into_iter().next().context("no control plane is ready")?;
            let name = place.to_string();
            let place = Arc::new(Mutex::new(place));
            let known = Arc::default();
            let turns = Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS));
            let forward = Forward { servers, place, known, turns, evidence };

            // Checked here, to print an error instead of serving an empty page.
            let page = forward.send(Method::GET, "/", HeaderMap::new(), Bytes::new()).await?;
            match page.status.as_u16() {
                200 => {}
                401 | 403 => anyhow::bail!("{name} denied access: {ACCESS_ADVICE}"),
                404 => {
                    anyhow::bail!(
                        "{name} has no dashboard: it is an older Navarch, or ENABLE_DEBUG_ON_HTTP=false is set"
                    )
                }
                status => anyhow::bail!("{name} responded with {status}"),
            }

            let own = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
            let listener = TcpListener::bind(own).await.with_context(|| format!("failed to listen on {own}"))?;
            let url = format!("http://{}/", listener.local_addr()?);
            print_text(&format!("{url} shows the mesh of {name}; press Ctrl-C to stop\n"))?;
            if self.browser {
                show(&url);
            }

            let routes =
                Router::new().fallback(forward_request).layer(DefaultBodyLimit::max(MAX_BODY)).with_state(forward);
            axum::serve(listener, routes).await.context("failed to serve the dashboard")
        })?;

        Ok(ExitCode::SUCCESS)
    }
}

/// Opens a page in the desktop's browser. If that fails, the printed address remains.
fn show(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let mut command = Command::new(program);
    let started = command
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        report(&format!(
            "failed to start the browser {program}: {error}; open the address yourself"
        ));
    }
}

impl Forward {
    /// Sends a request to the control plane. If its pod has disappeared, another ready one replaces
    /// it.
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> anyhow::Result<LocalResponse> {
        let question = Self::request_without_target(method, path, headers, body, REQUEST_TIMEOUT);
        let place = self.place.lock().clone();
        let answer = self.servers.put(&place, question.clone()).await;
        let (Err(lost), ControlPlane::Pod(_)) = (&answer, &place) else {
            return answer;
        };

        let ready = self
            .servers
            .ready()
            .await
            .with_context(|| format!("{lost:#}"))?;

        let Some(next) = ready
            .into_iter()
            .find(|next| next.to_string() != place.to_string())
        else {
            return answer;
        };

        *self.place.lock() = next.clone();
        self.servers.put(&next, question).await
    }

    fn request_without_target(
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> LocalRequest {
        let mut question = LocalRequest::get("", 0, path, timeout);
        (
            question.method,
            question.headers,
            question.body,
            question.limit,
        ) = (method, headers, body, MAX_RESPONSE);
        question
    }

    /// All ready replicas, the current control plane first. The list is cached for a moment.
    async fn replicas(&self) -> anyhow::Result<Vec<ControlPlane>> {
        let known = self.known.lock().clone();
        let mut all = match known {
            Some((since, all)) if since.elapsed() < REPLICAS_TTL => all,
            Some(_) | None => {
                let all = self.servers.ready().await?;
                *self.known.lock() = Some((Instant::now(), all.clone()));
                all
            }
        };
        let first = self.place.lock().to_string();
        all.sort_by_key(|place| place.to_string() != first);
        all.truncate(MAX_REPLICAS);
        Ok(all)
    }

    /// The proxies of all replicas.
    async fn all_proxies(&self, query: &str) -> anyhow::Result<Value> {
        let wanted = proxies::RowQuery::read(query);
        let replicas = self.replicas().await?;
        let answers = replicas.iter().map(async |place| {
            let answer = tokio::time::timeout(LIST_TIMEOUT, self.proxies_of(place, &wanted)).await;
            let answer = answer.unwrap_or_else(|_| {
                Err(anyhow::anyhow!(
                    "{place} did not respond within {LIST_TIMEOUT:?}"
                ))
            });
            (
                place.to_string(),
                answer.map_err(|error| format!("{error:#}")),
            )
        });

        let responses = join_all(answers).await;
        let errors: Vec<&str> = responses
            .iter()
            .filter_map(|(_, answer)| Some(answer.as_ref().err()?.as_str()))
            .collect();
        if errors.len() == responses.len() {
            anyhow::bail!("{}", errors.join("; "));
        }

        Ok(wanted.merged(responses))
    }

    /// The proxies of one replica, as far as the caller may see them.
    async fn proxies_of(
        &self,
        place: &ControlPlane,
        wanted: &proxies::RowQuery,
    ) -> anyhow::Result<Vec<proxies::ProxyRows>> {
        let mut parts = Vec::new();
        let mut read = 0;
        while read < wanted.depth() {
            let path = wanted.path(read);
            let question = Self::request_without_target(
                Method::GET,
                &path,
                HeaderMap::new(),
                Bytes::new(),
                LIST_TIMEOUT,
            );

            let answer = self.servers.put(place, question).await?;
            match answer.status.as_u16() {
                200 => {}
                401 | 403 => anyhow::bail!("{place} denied access: {ACCESS_ADVICE}"),
                status => anyhow::bail!("{place} responded with {status}"),
            }

            let part: proxies::ProxyRows = serde_json::from_slice(&answer.body)
                .context("the response is of an incompatible Navarch release")?;
            read += proxies::MAX_ROWS;
            let is_last = part.total <= read;
            parts.push(part);
            if is_last {
                break;
            }
        }

        Ok(parts)
    }

    /// Sends a request about one proxy to the current control plane, then to the others, until one
    /// has it.
    async fn send_to_owner(&self, path: &str, headers: HeaderMap) -> anyhow::Result<LocalResponse> {
        let first = self
            .send(Method::GET, path, headers.clone(), Bytes::new())
            .await?;
        if first.status != StatusCode::NOT_FOUND {
            return Ok(first);
        }

        for place in self.replicas().await?.iter().skip(1) {
            let question = Self::request_without_target(
                Method::GET,
                path,
                headers.clone(),
                Bytes::new(),
                REQUEST_TIMEOUT,
            );
            match self.servers.put(place, question).await {
                Ok(answer) if answer.status != StatusCode::NOT_FOUND => return Ok(answer),
                Ok(_) | Err(_) => {}
            }
        }

        Ok(first)
    }
}

/// Forwards read requests and requests for plans.
async fn forward_request(State(forward): State<Forward>, request: Request) -> Response {
    let (head, body) = request.into_parts();

    // The token is for the user of this machine, not for pages of other sites in the user's
    // browser.
    if !is_of_this_machine(&head.uri, &head.headers) {
        return (StatusCode::FORBIDDEN, "use localhost or an IP address\n").into_response();
    }

    let path = head.uri.path();
    if !is_reading(&head.method, path) {
        return (StatusCode::METHOD_NOT_ALLOWED, "this port is read-only\n").into_response();
    }

    if !matches!(path.split('/').nth(1), Some("" | "assets" | "debug")) {
        return StatusCode::NOT_FOUND.into_response();
    }

    let Ok(body) = axum::body::to_bytes(body, MAX_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };

    let Ok(_turn) = forward.turns.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };

    if path == proxies::LIST_PATH {
        return match forward
            .all_proxies(head.uri.query().unwrap_or_default())
            .await
        {
            Ok(all) => list(&all),
            Err(error) => failure(&error),
        };
    }

    // The page has no evidence of its own, unless its user has chosen a file.
    let body = match &forward.evidence {
        Some(evidence) if is_without_evidence(&head.method, path, &body) => {
            match evidence.body().await {
                Ok(body) => body,
                Err(error) => return failure(&error),
            }
        }
        Some(_) | None => body,
    };

    let is_of_one = proxies::is_of_one(path);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let headers = some(&head.headers, &REQUEST_HEADERS);
    let answer = match is_of_one {
        true => forward.send_to_owner(path, headers).await,
        false => forward.send(head.method, path, headers, body).await,
    };

    match answer {
        Ok(answer) => (
            answer.status,
            some(&answer.headers, &RESPONSE_HEADERS),
            answer.body,
        )
            .into_response(),
        Err(error) => failure(&error),
    }
}

/// Whether a request for edges has no evidence of its own.
fn is_without_evidence(method: &Method, path: &str, body: &Bytes) -> bool {
    *method == Method::POST && path == EDGES_PATH && body.is_empty()
}

/// Whether a request only reads: these pages have what they are asked about as the body of a POST.
fn is_reading(method: &Method, path: &str) -> bool {
    *method == Method::GET
        || (*method == Method::POST && matches!(path, "/debug/plan" | EDGES_PATH))
}

/// The list of all proxies, whose texts are escaped as in the lists that it was read from.
fn list(proxies: &Value) -> Response {
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_TYPE, "application/json"),
    ];
    let text = proxies.to_string();
    (headers, escape_json(&text).into_owned()).into_response()
}

/// The response if no control plane answers.
fn failure(error: &anyhow::Error) -> Response {
    let text = format!("{error:#}\n");
    (StatusCode::BAD_GATEWAY, escape_lines(&text).into_owned()).into_response()
}

/// The headers with these names.
fn some(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    names
        .iter()
        .filter_map(|name| Some((name.clone(), headers.get(name)?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn texts_of_proxies_and_errors_are_escaped() {
        let body = async |response: Response| {
            let body = axum::body::to_bytes(response.into_body(), MAX_BODY).await;
            String::from_utf8(body.unwrap().to_vec()).unwrap()
        };

        let proxies = json!({ "rows": [{ "version": "1.30\u{202e}" }] });
        let text = body(list(&proxies)).await;
        assert!(text.contains(r"1.30\u202e"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), proxies);

        let text = body(failure(&anyhow::anyhow!("\u{1b}[2J"))).await;
        assert_eq!(text, "\\u{1b}[2J\n");
    }
}
