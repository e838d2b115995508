//! Start order, readiness, shutdown: the only room that knows every other.
//!
//! Sockets are bound first and served last; everything in between is a task that is named, told to end by one token, and
//! waited for. A task that ends unasked ends the process loudly.

mod address;
mod controllers;
mod http;
mod ingress;
mod kubernetes;
mod patient;
mod progress;
mod pump;
mod refusals;
mod secret_access;
mod secure;
mod security;
mod signals;
mod sources;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use address::{AddressError, ListenAddress};
pub use controllers::WritingConfig;
pub use security::SecurityConfig;
pub use sources::{SourceAddress, SourceAddressError, SourcesConfig};

use crate::admin::{self, AdminState, Build, DebugAccess, Problems};
use crate::api::settings::{SecretReaders, Settings};
use crate::envoy::EnvoyTranslator;
use crate::push::worker::{self, Debounce};
use crate::security::authenticate::Gatekeeper;
use crate::source::KeyConfig;
use crate::status::Cluster;
use crate::xds::connections::Connections;
use crate::xds::metrics::Metrics;
use crate::xds::{Ads, Limits};
use controllers::Controllers;
use refusals::Refusals;
use sources::{Plan, Starter};

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
    /// Where configuration and services come from.
    pub sources: SourcesConfig,
    /// Plaintext xDS.
    pub grpc: ListenAddress,
    /// xDS and certificates over TLS.
    pub secure: ListenAddress,
    /// Identities and certificates.
    pub security: SecurityConfig,
    /// What is written back to the cluster.
    pub writing: WritingConfig,
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
    let plan = plan(&mut config).await?;
    let (client, sources) = (plan.client.clone(), plan.describe());
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new();
    let (push, _) = worker::start(config.settings.clone(), config.debounce, Arc::new(EnvoyTranslator))?;
    let mut metrics = Registry::default();
    let xds_metrics = Metrics::register(&mut metrics);
    let refusals = Refusals::register(&mut metrics);
    let ads = Ads::new(push.clone(), xds_metrics, Limits::default(), jiff::Timestamp::now(), stop.clone());
    let ads = match &client {
        Some(client) => ads.with_secret_access(secret_access::start(client, &push, &stop, &mut tasks)),
        None => ads,
    };
    let problems = Problems::default();
    let reload = Arc::new(Notify::new());
    let gatekeeper = security::gatekeeper(&config.security, client.as_ref(), &push)?;
    let operators = std::iter::once(&config.settings.system_namespace).chain(&config.security.debug_namespaces);
    let access = DebugAccess { gatekeeper: gatekeeper.clone(), operators: operators.cloned().collect() };
    let starter = Starter {
        config: &config.sources,
        keys: &config.keys,
        namespace: &config.settings.system_namespace,
        reload: &reload,
        stop: &stop,
        tasks: &mut tasks,
    };
    starter.start(plan, push.clone(), problems.clone(), refusals)?;
    let state = AdminState {
        push: push.clone(),
        connections: ads.connections(),
        problems,
        metrics: Arc::new(metrics),
        access,
        build: config.build,
    };
    // Before the others, so that whoever is told that Navarch is ready finds it so.
    let roots = match secure {
        Some(listener) => {
            let secure = Secure { listener, gatekeeper, ads: ads.clone(), client: client.clone() };
            Some(serve_secure(secure, &config, &push, &stop, &mut tasks).await?)
        }
        None => None,
    };
    write_back(client, roots, &config, (&push, state.connections.clone()), &stop, &mut tasks);
    serve_admin(http, monitoring, state, &stop, &mut tasks);
    if let Some(listener) = grpc {
        serve_plain(listener, ads, &stop, &mut tasks);
    }
    tracing::info!(version = config.build.version, sources, "started");
    until_the_end(config.shutdown, &reload, &stop, &mut tasks).await
}

/// Starts what writes back to the cluster, if there is one.
fn write_back(
    client: Option<kube::Client>,
    roots: Option<watch::Receiver<Arc<str>>>,
    config: &Config,
    (push, connections): (&worker::PushHandle, Arc<Connections>),
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let Some(client) = client else { return };
    let controllers = Controllers {
        config: &config.writing,
        cluster: Cluster(client),
        namespace: config.settings.system_namespace.as_str(),
        allocates: config.settings.ip_autoallocate,
        stop,
        tasks,
    };
    controllers.start(roots, push, connections);
}

/// Serves readiness, metrics and debug pages.
fn serve_admin(
    http: Option<TcpListener>,
    monitoring: Option<TcpListener>,
    state: AdminState,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    if let Some(listener) = http {
        serve_http("http", listener, admin::http_routes(state.clone()), stop, tasks);
    }
    if let Some(listener) = monitoring {
        serve_http("monitoring", listener, admin::monitoring_routes(state), stop, tasks);
    }
}

/// Waits until told to end, or until a task fails; then lets the tasks end, for so long.
async fn until_the_end(
    shutdown: Duration,
    reload: &Notify,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let outcome = tokio::select! {
        () = signals::until_told_to_end(reload) => Ok(()),
        ended = tasks.join_next() => Err(ended_unasked(ended)),
    };
    tracing::info!("ending: proxies are let go");
    stop.cancel();
    if tokio::time::timeout(shutdown, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!(after = ?shutdown, "ending although some tasks are still at work");
        tasks.abort_all();
    }
    outcome
}

/// Decides what is read, and settles what follows from it.
async fn plan(config: &mut Config) -> anyhow::Result<Plan> {
    let plan = Plan::make(&config.sources, &config.settings.system_namespace).await?;
    config.settings.discover_configuration = plan.configures_by_kubernetes();
    if plan.client.is_some() {
        config.settings.secret_readers = SecretReaders::Reviewed;
    }
    Ok(plan)
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

/// Serves xDS and certificates over TLS until told to stop. Gives the roots of the certificates.
async fn serve_secure(
    secure: Secure,
    config: &Config,
    push: &worker::PushHandle,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<watch::Receiver<Arc<str>>> {
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
    Ok(security.authority.roots())
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
