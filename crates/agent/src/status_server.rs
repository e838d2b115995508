//! The agent's status server (port 15020): health of Envoy and application, merged metrics, drain
//! and quit.
//!
//! The application is not trusted: its responses have timeouts and size limits, only redirects to
//! itself are followed. Pages for the pod alone, such as those to quit or drain, are served on
//! loopback only, and not to pages of other sites in a browser.

mod connections;
pub mod exposition;
mod grpc_probe;
mod gzip;
mod http_probe;
mod kept;
mod merge;
pub mod probe_spec;
mod probing;
mod readiness;
pub mod scrape;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::envoy_life::{AdminApi, EnvoyCommand};
use super::mesh_metrics::MeshMetrics;
use super::metrics::{AgentMetrics, ScrapeTarget};
use super::upgrade::status::SharedStatus;
use crate::http_server::{denial, only_of_this_machine};
use kept::KeptConnections;
use navarch_base::printable::{escape, escape_json};
use navarch_net::budget::Budget;
use navarch_net::rejections::Rejections;
use navarch_net::same_machine::is_of_no_other_site;
pub use probe_spec::{ProbeSpecError, Probes};
pub use readiness::Condition;
use readiness::Readiness;
pub use scrape::{ScrapeConfig, ScrapeConfigError};

/// Memory of all concurrent scrapes, shared fairly among clients.
const MAX_SCRAPE_BYTES: usize = 64 << 20;
/// Fixed cost of one scrape in buffers and threads of Envoy and application.
const SCRAPE_OVERHEAD: usize = 1 << 20;

/// The profiles of the agent. Its allocator takes no samples, whose tables would need more memory
/// than the agent itself.
const PROFILES: navarch_pprof::Pages = navarch_pprof::Pages {
    max_seconds: 60,
    has_heap: false,
};

/// Configuration of the status server.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate setting of pilot-agent"
)]
pub struct StatusConfig {
    /// Envoy's admin API; `None` without Envoy.
    pub envoy: Option<AdminApi>,
    /// The port of Envoy's metrics; `None` if they are not merged.
    pub envoy_metrics: Option<u16>,
    /// The port of this server, which receives probes.
    pub port: u16,
    /// The host of application probes: the pod's address, or `localhost`.
    pub destination: String,
    /// The source address of probes, which the capture rules exempt.
    pub source: IpAddr,
    /// Whether probes over TLS offer HTTP/2 (`ISTIO_ENABLE_HTTP2_PROBING`).
    pub http2_probes: bool,
    /// Whether connections for HTTP probes are kept (`ENABLE_PROBE_KEEPALIVE_CONNECTIONS`).
    pub keeps_probe_connections: bool,
    /// The application's probes, by path.
    pub probes: Probes,
    /// The application's metrics.
    pub scrape: Option<ScrapeConfig>,
    /// Whether metrics are served to loopback only.
    pub metrics_on_loopback_only: bool,
    /// Further readiness conditions.
    pub conditions: Vec<Condition>,
    /// The name table as JSON, if there is one.
    pub name_table: Arc<dyn Fn() -> Option<Value> + Send + Sync>,
    /// The running Envoy, and the last attempt to replace it.
    pub proxy: SharedStatus,
    /// The agent's own metrics as text.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The mesh's metrics, if the agent computes them.
    pub mesh_metrics: Option<MeshMetrics>,
    /// Whether profiles of the agent are served (`--profiling`).
    pub serves_profiles: bool,
    /// Counter of failed scrapes.
    pub work: AgentMetrics,
    /// Receives `Quit` for `/quitquitquit` and `Drain` for `/drain`.
    pub commands: mpsc::Sender<EnvoyCommand>,
    /// Counter of rejected clients.
    pub rejections: Rejections,
    /// `NAVARCH_MAX_STATUS_CONNECTIONS`: maximum number of connections, a quarter of them reserved
    /// for loopback. Default 128.
    pub connections: usize,
}

impl StatusConfig {
    /// Default maximum number of connections.
    pub const CONNECTIONS: usize = connections::CONNECTIONS;
}

impl std::fmt::Debug for StatusConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusConfig")
            .field("port", &self.port)
            .field("probes", &self.probes)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    config: StatusConfig,
    readiness: Readiness,
    /// Memory of concurrent scrapes.
    scrapes: Arc<Budget>,
    /// Connections to the application between probes.
    kept: KeptConnections,
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, config: StatusConfig) {
    let connections = config.connections;
    let rejections = config.rejections.clone();
    connections::serve(listener, connections, rejections, router(config)).await;
}

fn router(config: StatusConfig) -> Router {
    let readiness = Readiness::new(config.envoy.clone(), config.conditions.clone());
    let profiles = if config.serves_profiles {
        navarch_pprof::routes(PROFILES)
            .route_layer(from_fn(only_of_this_machine))
            .route_layer(from_fn(only_from_loopback))
    } else {
        Router::new()
    };
    let local = Router::new()
        .route("/quitquitquit", any(quit))
        .route("/drain", any(drain))
        .route("/debug/ndsz", any(name_table))
        .route("/navarch/proxy", get(proxy))
        .route_layer(from_fn(only_of_this_machine))
        .route_layer(from_fn(only_from_loopback));

    Router::new()
        .route("/healthz/ready", any(ready))
        .route("/stats/prometheus", get(metrics))
        .route("/metrics", get(metrics))
        .route("/app-health/{*path}", any(probe))
        .route("/app-lifecycle/{*path}", any(probe))
        .merge(local)
        .layer(from_fn(gzip::pack))
        // They are compressed already.
        .merge(profiles)
        .with_state(Arc::new(Shared {
            kept: KeptConnections::new(config.keeps_probe_connections),
            config,
            readiness,
            scrapes: Budget::new(MAX_SCRAPE_BYTES),
        }))
}

fn plain(status: StatusCode, text: &str) -> Response {
    (status, text.to_owned()).into_response()
}

/// Admits clients with a loopback address alone.
async fn only_from_loopback(
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if is_loopback(client) {
        next.run(request).await
    } else {
        denial()
    }
}

fn is_loopback(client: SocketAddr) -> bool {
    client.ip().to_canonical().is_loopback()
}

/// Whether the pod is ready.
async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match shared.readiness.check().await {
        Ok(()) => {
            shared.config.work.ready();
            StatusCode::OK.into_response()
        }
        Err(reason) => {
            tracing::warn!(reason, "Envoy is not ready");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// The metrics of agent, Envoy and application.
async fn metrics(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(caller): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    // Envoy may forward scrapes from other machines to loopback, with the pod's address as host.
    if shared.config.metrics_on_loopback_only
        && !(is_loopback(caller) && is_of_no_other_site(request.uri(), request.headers()))
    {
        return denial();
    }

    let Ok(charge) = shared.scrapes.charge(caller.ip(), SCRAPE_OVERHEAD) else {
        shared.config.work.scrape_failed(ScrapeTarget::Agent);
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many scrapes at once; try again\n",
        );
    };

    let (content_type, body) = merge::merge(
        &shared.config,
        request.headers(),
        request.uri().query(),
        charge,
    )
    .await;
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// Probes the application, by the path that the injector wrote instead of the probe's own.
async fn probe(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    match shared.config.probes.get(&path) {
        Some(spec) => probing::probe(&shared.config, &shared.kept, spec, request.headers()).await,
        None => {
            // Anyone who reaches the port can request any path: no line in the log for each.
            tracing::debug!(path, "no such probe");
            plain(
                StatusCode::BAD_REQUEST,
                &format!("app prober config does not exists for {}", escape(&path)),
            )
        }
    }
}

/// Quits agent and Envoy at once (`/quitquitquit`).
async fn quit(State(shared): State<Arc<Shared>>, method: Method) -> Response {
    send_command(&shared, &method, EnvoyCommand::Quit).await
}

/// Drains Envoy (`/drain`).
async fn drain(State(shared): State<Arc<Shared>>, method: Method) -> Response {
    send_command(&shared, &method, EnvoyCommand::Drain).await
}

/// Sends a command to the task that runs Envoy.
async fn send_command(shared: &Shared, method: &Method, command: EnvoyCommand) -> Response {
    if *method != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
    }

    tracing::info!(?command, "admin request over HTTP");
    match shared.config.commands.send(command).await {
        Ok(()) => plain(StatusCode::OK, "OK"),
        Err(_) => plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "the agent is shutting down\n",
        ),
    }
}

/// The running Envoy, and the last attempt to replace it.
async fn proxy(State(shared): State<Arc<Shared>>) -> Response {
    axum::Json(shared.config.proxy.get()).into_response()
}

/// The name table that DNS answers from.
async fn name_table(State(shared): State<Arc<Shared>>) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    match (shared.config.name_table)() {
        Some(table) => {
            let table = table.to_string();
            (json, escape_json(&table).into_owned()).into_response()
        }
        None => (StatusCode::NOT_FOUND, "{}").into_response(),
    }
}

#[cfg(test)]
mod tests;
