//! Start order, readiness, shutdown: the only room that knows every other.
//!
//! Sockets are bound first and served last; everything in between is a task that is named, told to end by one token, and
//! waited for. A task that ends unasked ends the process loudly.

mod address;
mod http;
mod patient;
mod pump;
mod secret_access;
mod secure;
mod security;
mod signals;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use address::{AddressError, ListenAddress};
pub use security::SecurityConfig;

use crate::admin::{self, AdminState, Build, DebugAccess, Problems};
use crate::api::mesh::MeshConfig;
use crate::api::settings::{SecretReaders, Settings};
use crate::envoy::EnvoyTranslator;
use crate::push::worker::{self, Debounce};
use crate::security::authenticate::Gatekeeper;
use crate::source::{FileSource, FileSourceConfig, KeyConfig, KeyFetching, MeshFileSource, MeshFileSourceConfig};
use crate::xds::metrics::Metrics;
use crate::xds::{Ads, Limits};

/// Batches of events that may wait for the push thread; a full channel makes sources wait, who then gather.
const BATCHES: usize = 64;
/// How long the first reading of the configuration is waited for before certificates are signed.
const FIRST_READING: Duration = Duration::from_secs(10);

/// All that flags and environment say.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is made of the configuration.
    pub settings: Settings,
    /// How changes are gathered.
    pub debounce: Debounce,
    /// How the keys of token issuers are fetched.
    pub keys: KeyConfig,
    /// The directory of configuration.
    pub config_dir: PathBuf,
    /// The file of the mesh config, if there is one.
    pub mesh_config: Option<PathBuf>,
    /// The file of the mesh networks, if there is one.
    pub networks_config: Option<PathBuf>,
    /// Plaintext xDS.
    pub grpc: ListenAddress,
    /// xDS and certificates over TLS.
    pub secure: ListenAddress,
    /// Identities and certificates.
    pub security: SecurityConfig,
    /// Readiness and debug.
    pub http: ListenAddress,
    /// Metrics, version and debug.
    pub monitoring: ListenAddress,
    /// How long proxies have to go at the end.
    pub shutdown: Duration,
    /// The version stamp.
    pub build: Build,
}

/// What the TLS port is opened with.
struct Secure {
    /// The port.
    listener: TcpListener,
    /// Says who callers are.
    gatekeeper: Arc<Gatekeeper>,
    /// xDS.
    ads: Ads,
    /// The client of the Kubernetes API, where it is used.
    client: Option<kube::Client>,
}

/// The tasks of the process, each with its name.
type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// Runs the control plane until SIGTERM or SIGINT.
///
/// # Errors
/// When a port cannot be opened, or a task fails.
pub async fn run(mut config: Config) -> anyhow::Result<()> {
    log_panics();
    let grpc = bind(config.grpc, "--grpc-addr").await?;
    let secure = bind(config.secure, "--secure-grpc-addr").await?;
    let http = bind(config.http, "--http-addr").await?;
    let monitoring = bind(config.monitoring, "--monitoring-addr").await?;
    let client: Option<kube::Client> = None;
    if client.is_some() {
        config.settings.secret_readers = SecretReaders::Reviewed;
    }
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new();
    let (push, _) = worker::start(config.settings.clone(), config.debounce, Arc::new(EnvoyTranslator))?;
    let mut metrics = Registry::default();
    let xds_metrics = Metrics::register(&mut metrics);
    let ads = Ads::new(push.clone(), xds_metrics, Limits::default(), jiff::Timestamp::now(), stop.clone());
    let ads = match &client {
        Some(client) => ads.with_secret_access(secret_access::start(client, &push, &stop, &mut tasks)),
        None => ads,
    };
    let problems = Problems::default();
    let reload = Arc::new(Notify::new());
    start_sources(&config, &push, &problems, &reload, &stop, &mut tasks);
    let gatekeeper = security::gatekeeper(&config.security, client.as_ref(), &push)?;
    let operators = std::iter::once(&config.settings.system_namespace).chain(&config.security.debug_namespaces);
    let access = DebugAccess { gatekeeper: gatekeeper.clone(), operators: operators.cloned().collect() };
    let state = AdminState {
        push: push.clone(),
        connections: ads.connections(),
        problems,
        metrics: Arc::new(metrics),
        access,
        build: config.build,
    };
    // Before the others, so that whoever is told that Navarch is ready finds it so.
    if let Some(listener) = secure {
        let secure = Secure { listener, gatekeeper, ads: ads.clone(), client };
        serve_secure(secure, &config, &push, &stop, &mut tasks).await?;
    }
    if let Some(listener) = http {
        serve_http("http", listener, admin::http_routes(state.clone()), &stop, &mut tasks);
    }
    if let Some(listener) = monitoring {
        serve_http("monitoring", listener, admin::monitoring_routes(state), &stop, &mut tasks);
    }
    if let Some(listener) = grpc {
        serve_plain(listener, ads, &stop, &mut tasks);
    }
    tracing::info!(version = config.build.version, config = %config.config_dir.display(), "started");
    let outcome = tokio::select! {
        () = signals::until_told_to_end(&reload) => Ok(()),
        ended = tasks.join_next() => Err(ended_unasked(ended)),
    };
    tracing::info!("ending: proxies are let go");
    stop.cancel();
    if tokio::time::timeout(config.shutdown, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(after = ?config.shutdown, "ending although some tasks are still at work");
        tasks.abort_all();
    }
    outcome
}

/// Starts the sources and the pump behind them.
fn start_sources(
    config: &Config,
    push: &worker::PushHandle,
    problems: &Problems,
    reload: &Arc<Notify>,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let (to_pump, batches) = mpsc::channel(BATCHES);
    let (to_pump_mesh, mesh_batches) = mpsc::channel(BATCHES);
    let (reload_files, reload_mesh) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let files = FileSource::new(FileSourceConfig { root: config.config_dir.clone() });
    let mesh = MeshFileSource::new(MeshFileSourceConfig {
        mesh: config.mesh_config.clone(),
        networks: config.networks_config.clone(),
        base: MeshConfig::istio_defaults(),
    });
    let fan_out = (reload.clone(), reload_files.clone(), reload_mesh.clone(), stop.clone());
    spawn("reload", tasks, async move {
        let (asked, files, mesh, stop) = fan_out;
        while until(&stop, asked.notified()).await.is_some() {
            files.notify_one();
            mesh.notify_one();
        }
        Ok(())
    });
    let stopped = stop.clone();
    spawn(
        "files",
        tasks,
        async move { until(&stopped, files.run(to_pump, reload_files)).await.map_or(Ok(()), finish) },
    );
    let stopped = stop.clone();
    spawn("mesh config", tasks, async move {
        until(&stopped, mesh.run(to_pump_mesh, reload_mesh)).await.map_or(Ok(()), finish)
    });
    let (to_keys, demands) = mpsc::channel(BATCHES);
    let (to_pump_keys, key_batches) = mpsc::channel(BATCHES);
    let keys = KeyFetching::new(config.keys.clone());
    let stopped = stop.clone();
    spawn("keys", tasks, async move {
        until(&stopped, keys.run(demands, to_pump_keys)).await;
        Ok(())
    });
    let pump = pump::Pump { push: push.clone(), problems: problems.clone(), keys: to_keys };
    let stopped = stop.clone();
    spawn("pump", tasks, async move {
        until(&stopped, pump.run(vec![mesh_batches, batches, key_batches])).await.map_or(Ok(()), finish)
    });
}

/// An outcome as a task's.
fn finish<E: std::error::Error + Send + Sync + 'static>(outcome: Result<(), E>) -> anyhow::Result<()> {
    outcome.map_err(anyhow::Error::from)
}

/// The future's output, or `None` once told to stop.
async fn until<F: Future>(stop: &CancellationToken, future: F) -> Option<F::Output> {
    tokio::select! {
        output = future => Some(output),
        () = stop.cancelled() => None,
    }
}

/// Starts a named task.
fn spawn(name: &'static str, tasks: &mut Tasks, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
    tasks.spawn(async move { (name, task.await) });
}

/// Serves xDS in plain text until told to stop. Nobody is asked who they are, so nobody gets anything secret.
fn serve_plain(listener: TcpListener, ads: Ads, stop: &CancellationToken, tasks: &mut Tasks) {
    let stop = stop.clone();
    spawn("xds", tasks, async move {
        let router = ads.server().add_service(ads.clone());
        router.serve_with_incoming_shutdown(patient::incoming(listener), stop.cancelled()).await?;
        ads.ended().await;
        Ok(())
    });
}

/// Serves xDS and certificates over TLS until told to stop.
async fn serve_secure(
    secure: Secure,
    config: &Config,
    push: &worker::PushHandle,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    // A new root is named after the trust domain, which the mesh config says. Without one it goes on all the same.
    drop(tokio::time::timeout(FIRST_READING, push.wait_synced()).await);
    let namespace = &config.settings.system_namespace;
    let security = security::start(&config.security, namespace, secure.client.as_ref(), push, stop, tasks).await?;
    let ends = jiff::Timestamp::try_from(security.authority.get().not_after())?;
    tracing::info!(%ends, "certificates are signed");
    let port = secure::SecurePort {
        listener: secure.listener,
        tls: security.tls,
        gatekeeper: secure.gatekeeper,
        xds_auth: config.security.xds_auth,
        ads: secure.ads,
        certificates: security.certificates,
        stop: stop.clone(),
    };
    spawn("secure xds", tasks, async move { port.serve().await.map_err(anyhow::Error::from) });
    Ok(())
}

/// Serves HTTP until told to stop.
fn serve_http(
    name: &'static str,
    listener: TcpListener,
    routes: axum::Router,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let stop = stop.clone();
    spawn(name, tasks, async move {
        http::serve(listener, routes, stop).await;
        Ok(())
    });
}

/// Opens a port, naming the flag that gave it.
async fn bind(address: ListenAddress, flag: &str) -> anyhow::Result<Option<TcpListener>> {
    address.bind().await.with_context(|| format!("{flag}: cannot listen at {address:?}; is another server there?"))
}

/// What to say of a task that ended while it should not.
fn ended_unasked(ended: Option<Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok((name, Err(error)))) => error.context(format!("{name} failed")),
        Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} ended unasked"),
        Some(Err(error)) => anyhow::Error::from(error).context("a task failed"),
        None => anyhow::anyhow!("nothing is left to do"),
    }
}

/// Has panics told in the log, in one line: translators' panics are caught, charged to their objects and survived.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, message = panic.payload_as_str().unwrap_or_default(), "panicked");
    }));
}
