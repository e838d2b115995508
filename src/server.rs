//! Start order, readiness, shutdown: the only module that depends on all others.
//!
//! Sockets are bound first and served last. Everything in between is a named task that ends with
//! one cancellation token and is awaited. A task that ends unexpectedly ends the process with an
//! error.

mod address;
mod api_rate;
mod configuration_metrics;
mod connection_limits;
mod control;
mod controllers;
#[cfg(test)]
pub(crate) mod every_metric;
mod gateway_hosts;
mod go_metrics;
mod grpc_metrics;
mod http;
mod ingress;
mod injector;
mod kubernetes;
mod memory;
mod object_status;
mod pages;
mod plan_warnings;
mod ports;
mod process_metrics;
mod progress;
mod publishing;
mod pump;
mod quarantine;
mod recording;
mod reflection;
mod refusals;
mod registration;
mod remotes;
mod reports;
mod rollout;
mod secret_access;
mod secure;
mod security;
mod signals;
mod source_address;
mod sources;
mod start_log;
mod tls_ports;
mod traces;
mod trust;
mod webhooks;
mod workloads;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpConnectInfo;

pub use address::{AddressError, ListenAddress};
pub use api_rate::ApiRate;
pub use connection_limits::ConnectionLimits;
pub use controllers::WritingConfig;
pub use injector::InjectionSettings;
pub(crate) use kubernetes::api_client;
pub use publishing::PublishedObjects;
pub use recording::RecordConfig;
pub use remotes::RemotesConfig;
pub(crate) use remotes::kubeconfig as remote_kubeconfig;
pub use rollout::QueryNamespaces;
pub use security::{SecurityConfig, StreamRules};
pub use source_address::{SourceAddress, SourceAddressError, XdsServer};
pub use sources::SourcesConfig;
pub use webhooks::WebhookConfig;
pub use workloads::registered_workload;

use crate::admin::{
    self, AdminState, Build, DebugOverXds, DebugSwitches, Exposition, LogScopes, Problems,
    Readiness,
};
use configuration_metrics::ConfigurationMetrics;
use controllers::Controllers;
use go_metrics::GoMetrics;
use grpc_metrics::GrpcMetrics;
use http::{HttpPort, OpenHttpPort, PlainConnections};
use navarch_ambient::AmbientTranslator;
use navarch_api::settings::{SecretReaders, Settings};
use navarch_envoy::EnvoyTranslator;
use navarch_net::budget::Budget;
use navarch_net::rejections::Rejections;
use navarch_net::stream::PortStream;
use navarch_push::metrics::Metrics as PushMetrics;
use navarch_push::worker::{self, Debounce};
use navarch_security::authenticate::Authenticator;
use navarch_security::ca;
use navarch_security::remote_servers::RemoteServers;
use navarch_source::{Batch, KeyConfig};
use navarch_status::{Cluster, KnownObjects, Registrar, RegistrationMetrics};
use navarch_webhook::CurrentInjector;
use navarch_xds::connections::Connections;
use navarch_xds::metrics::Metrics;
use navarch_xds::plain_connections;
use navarch_xds::{Ads, AdsParts, Limits, Refusal, Served, Workloads};
use plan_warnings::PlanWarnings;
use ports::Ports;
use process_metrics::ProcessMetrics;
use publishing::Published;
use recording::Recording;
use refusals::Refusals;
use secure::{AuthPolicy, Authentication};
use sources::{Plan, SourceMetrics, Starter};
use start_log::{log_panics, log_start};
use tls_ports::TlsPorts;
use workloads::WorkloadRegistration;

/// The part that readiness waits for until all ports are served.
const PORTS: &str = "ports";

/// Capacity of the channel of gRPC connections from the HTTP port.
const PLAIN: usize = 64;
/// The configuration from flags and environment.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings that determine what is derived from the configuration.
    pub settings: Settings,
    /// How changes are debounced.
    pub debounce: Debounce,
    /// Limits per xDS client.
    pub limits: Limits,
    /// The memory budget of all xDS clients together, in bytes.
    pub client_memory: usize,
    /// `RESOLVE_HOSTNAME_GATEWAYS`: whether host names of gateways between networks are resolved by
    /// the control plane. Default true.
    pub resolves_gateways: bool,
    /// `ENABLE_XDS_API_GENERATOR_AUTH=false`: whether all clients may subscribe to Istio's objects
    /// over xDS.
    pub objects_for_all: bool,
    /// `NAVARCH_QUARANTINE`: whether objects that proxies reject are quarantined. Default true.
    pub quarantines: bool,
    /// `NAVARCH_PROMETHEUS_URL`: the Prometheus that decides whether a rollout may advance; `None`
    /// if there is none.
    pub prometheus: Option<String>,
    /// `NAVARCH_ROLLOUT_QUERY_NAMESPACES`: whose rollouts it may decide about.
    pub query_namespaces: QueryNamespaces,
    /// Where inputs and responses are recorded; `None` without a recording.
    pub record: Option<RecordConfig>,
    /// `OTEL_*`: how traces of changes are sent to a collector; `None` without traces.
    pub traces: Option<navarch_otlp::Config>,
    /// How the keys of token issuers are fetched.
    pub keys: KeyConfig,
    /// The sources of configuration and services.
    pub sources: SourcesConfig,
    /// Remote clusters.
    pub remotes: RemotesConfig,
    /// Plaintext xDS; if off, it is served on the port of readiness and debug pages.
    pub grpc: ListenAddress,
    /// xDS and certificates over TLS.
    pub secure: ListenAddress,
    /// Identities and certificates.
    pub security: SecurityConfig,
    /// Controllers that write to the cluster.
    pub writing: WritingConfig,
    /// Webhooks over TLS; if off, they are served on the port of readiness and debug pages.
    pub https: ListenAddress,
    /// Which webhook configurations in the API server are kept up to date, and how.
    pub webhooks: WebhookConfig,
    /// Whether pods are injected, and from which files and variables.
    pub injection: InjectionSettings,
    /// Readiness and debug pages.
    pub http: ListenAddress,
    /// Metrics, version and debug pages; if off, they are served on the port of readiness and debug
    /// pages.
    pub monitoring: ListenAddress,
    /// The enabled debug pages.
    pub debug: DebugSwitches,
    /// ControlZ.
    pub ctrlz: ListenAddress,
    /// The log levels, by scope.
    pub log_scopes: LogScopes,
    /// The environment variables whose values ControlZ shows.
    pub shown_variables: BTreeSet<String>,
    /// `POD_NAME`: the name of this replica; empty if unset.
    pub pod: Arc<str>,
    /// Maximum number of open files and connections of the process (`RLIMIT_NOFILE`).
    pub files: usize,
    /// Connection limits per port.
    pub connections: ConnectionLimits,
    /// Grace period for proxies at shutdown.
    pub shutdown: Duration,
    /// The version stamp.
    pub build: Build,
}

/// Plaintext xDS connections.
type Plain = Pin<Box<dyn tokio_stream::Stream<Item = (PortStream, TcpConnectInfo)> + Send>>;

/// The tasks of the process, each with its name.
type Tasks = JoinSet<(&'static str, anyhow::Result<()>)>;

/// Runs the control plane until SIGTERM or SIGINT.
///
/// # Errors
/// When a port cannot be opened, or a task fails.
#[expect(clippy::too_many_lines, reason = "the start order in one place")]
pub async fn run(mut config: Config) -> anyhow::Result<()> {
    log_panics();
    let mut metrics = Registry::default();
    let rejections = Rejections::register(&mut metrics);
    let Ports {
        grpc,
        secure,
        https,
        http,
        monitoring,
        addresses,
    } = Ports::bind(&config, &rejections).await?;

    let plan = plan(&mut config).await?;
    let client = plan.client.clone();
    let described = plan.describe();
    let looks = (rejections.clone(), pages::look(&config, &plan));
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new();
    let recording = Recording::start(&config, &mut metrics)?;
    let push = start_push(&config, &recording, &mut metrics)?;

    let refusals = Refusals::register(&mut metrics);
    let of_sources = sources::metrics(&mut metrics);
    let counted = (
        navarch_webhook::Metrics::register(&mut metrics),
        rejections.clone(),
    );
    let ca_metrics = ca::Metrics::register(&mut metrics, security::clock);
    let call_metrics = GrpcMetrics::register(&mut metrics);

    let servers = RemoteServers::new(config.settings.clusters.aliases.clone());
    let reviewers = client.as_ref().map(|client| (client, servers.clone()));
    let (refusals_of_clients, refused) = mpsc::channel(quarantine::QUEUE);
    let ads = xds(
        reviewers,
        refusals_of_clients,
        &config,
        (&push, &recording),
        (&mut metrics, rejections.clone()),
        &stop,
        &mut tasks,
    );

    let rollouts = rollout::start(
        client.as_ref(),
        &config,
        (&push, ads.connections()),
        &stop,
        &mut tasks,
    )
    .await?;
    let parts = quarantine::Parts {
        client: client.as_ref(),
        config: &config,
        push: &push,
        connections: ads.connections(),
        refused,
    };
    let quarantine = quarantine::start(parts, &stop, &mut tasks).await?;
    let problems = Problems::default();
    let reload = Arc::new(Notify::new());
    let authenticator =
        security::authenticator(&config.security, (client.as_ref(), servers.clone()), &push)?;
    let access = pages::debug_access(&config, &authenticator);
    let plans = admin::Plans::default();
    let all = (client.as_ref(), servers, problems.clone());
    let followed = remotes::follow(&config, all, &push, &mut metrics, (&stop, &mut tasks));

    let reporters = (problems.clone(), refusals, of_sources);
    read_sources(
        (plan, followed.synced),
        &config,
        &push,
        reporters,
        (&reload, &stop),
        &mut tasks,
    )?;

    let readiness = Readiness::default();
    readiness.hold(
        PORTS,
        "the TLS ports do not listen until the configuration has been read",
    );
    let warns = config
        .webhooks
        .plan_warnings
        .then(|| PlanWarnings::new(&push, ads.connections(), &plans));

    let hooks = webhooks::start(
        &config,
        client.as_ref(),
        (&push, warns),
        counted,
        &readiness,
        (&stop, &mut tasks),
    );

    let on_http = if https.is_none() {
        navarch_webhook::routes(hooks.clone())
    } else {
        axum::Router::new()
    };

    let seen = (
        problems,
        followed.clusters,
        readiness.clone(),
        Exposition::new(metrics),
    );

    let state = pages::admin_state(
        &config,
        (&push, &ads),
        pages::Controls {
            injector: hooks.injector(),
            rollouts,
            quarantine,
        },
        seen,
        (access, plans),
        looks,
    );

    ads.set_debug_pages(Arc::new(DebugOverXds::new(
        state.clone(),
        config.debug.on_http,
    )));
    control::start(&config, &state, &rejections, &stop, &mut tasks).await;
    pages::report_unready(&config, client.as_ref(), &state, &stop, &mut tasks);
    let kept = (state.roots.clone(), state.certificates.clone());
    let (plain, on_http_port) = mpsc::channel(PLAIN);

    let pages = admin::Pages {
        debug: config.debug.on_http,
        monitoring: monitoring.is_none(),
    };
    let http = http.map(|open| (open, grpc.is_none().then_some(plain)));
    let remotes = followed.written;
    let terminated = signals::follow(reload, &stop, &mut tasks);
    serve_admin(http, monitoring, on_http, (state, pages), &stop, &mut tasks);

    let plain: Plain = match grpc {
        Some((listener, port)) => Box::pin(plain_connections(listener, port)),
        // Without a port for either there are no connections, and the stream must not end before
        // shutdown.
        None => Box::pin(ReceiverStream::new(on_http_port).chain(tokio_stream::pending())),
    };

    serve_plain(
        plain,
        ads.clone(),
        (&authenticator, config.security.streams),
        &stop,
        &mut tasks,
    );

    let ports = TlsPorts {
        secure,
        https,
        authenticator,
        ads,
        client,
        hooks,
        ca_metrics,
        call_metrics,
        kept,
        remotes,
    };

    tokio::select! {
        served = ports.serve(&config, &push, &stop, &mut tasks) => {
            served?;
            readiness.release(PORTS);
            log_start(&config, &described, &addresses);
        }
        () = terminated.cancelled() => {}
    }

    let ended = until_the_end(config.shutdown, &terminated, &stop, &mut tasks).await;
    recording.end();
    ended
}

/// Starts the push thread with its metrics.
fn start_push(
    config: &Config,
    recording: &Recording,
    metrics: &mut Registry,
) -> std::io::Result<worker::PushHandle> {
    let settings = config.settings.clone();
    let counted = PushMetrics::register(metrics);
    let tells_patches = settings.envoy_filter_stats;
    let translator = Arc::new(AmbientTranslator(EnvoyTranslator));
    let (push, _) = worker::start_watched(
        settings,
        config.debounce,
        translator,
        counted,
        recording.observer(),
    )?;

    metrics.register_collector(Box::new(ConfigurationMetrics {
        current: push.current(),
        tells_patches,
    }));
    metrics.register_collector(Box::new(ProcessMetrics::new(config.build.version)));
    metrics.register_collector(Box::new(GoMetrics::new(Handle::current())));

    Ok(push)
}

/// Starts the sources of the plan.
fn read_sources(
    (plan, remotes): (Plan, mpsc::Receiver<Batch>),
    config: &Config,
    push: &worker::PushHandle,
    (problems, refusals, metrics): (Problems, Refusals, SourceMetrics),
    (reload, stop): (&Arc<Notify>, &CancellationToken),
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let sources = &config.sources;
    let keys = &config.keys;
    let namespace = &config.settings.system_namespace;
    let starter = Starter {
        config: sources,
        keys,
        metrics,
        namespace,
        pod: &config.pod,
        reload,
        stop,
        tasks,
    };
    starter.start((plan, remotes), push.clone(), problems, refusals)?;
    gateway_hosts::start(config.resolves_gateways, push, stop, tasks);
    memory::release_free_memory(stop, tasks);
    Ok(())
}

/// Starts the controllers that write to the cluster, if there is one.
fn write_back(
    client: Option<kube::Client>,
    published: Option<Published>,
    config: &Config,
    (push, connections, injector): (&worker::PushHandle, Arc<Connections>, CurrentInjector),
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let Some(client) = client else { return };
    let controllers = Controllers {
        config: &config.writing,
        injector,
        cluster: Cluster(client),
        namespace: config.settings.system_namespace.as_str(),
        allocates: config.settings.ip_autoallocate,
        stop,
        tasks,
    };
    controllers.start(published, push, connections);
}

/// The aggregated discovery service, with its checks and listeners.
fn xds(
    reviewers: Option<(&kube::Client, RemoteServers)>,
    refusals: mpsc::Sender<Refusal>,
    config: &Config,
    (push, recording): (&worker::PushHandle, &Recording),
    (metrics, rejections): (&mut Registry, Rejections),
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> Ads {
    let counted = Metrics::register(metrics);
    let client = reviewers.as_ref().map(|(client, _)| *client);
    let ads = Ads::new(AdsParts {
        limits: config.limits.clone(),
        memory: Budget::new(config.client_memory),
        rejections,
        access: reviewers
            .map(|(client, remotes)| secret_access::start(client, remotes, push, stop, tasks)),
        workloads: Some(workload_registration(
            client, config, push, metrics, stop, tasks,
        )),
        refusals: config.quarantines.then_some(refusals),
        observer: recording.observer(),
        served: Served::under(&config.settings),
        objects_for_all: config.objects_for_all,
        ..AdsParts::new(push.clone(), counted, jiff::Timestamp::now(), stop.clone())
    });

    traces::start(config, (push, &ads), metrics, stop, tasks);
    ads
}

/// Starts the registration of workloads that are not pods.
fn workload_registration(
    client: Option<&kube::Client>,
    config: &Config,
    push: &worker::PushHandle,
    metrics: &mut Registry,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> Arc<dyn Workloads> {
    let Some(client) = client.filter(|_| config.settings.discover_configuration) else {
        return Arc::new(WorkloadRegistration::Files { push: push.clone() });
    };

    let metrics = RegistrationMetrics::register(metrics);
    let cluster = Cluster(client.clone());
    let writing = &config.writing;
    let objects: KnownObjects = {
        let push = push.clone();
        Arc::new(move || push.context().objects.clone())
    };
    let cluster = (cluster, objects);

    let registration = writing.registration.clone();
    let registrar = Registrar::new(
        cluster,
        &writing.identity,
        registration,
        metrics,
        stop.clone(),
    );

    let work = registrar.clone().run();
    spawn("workloads", tasks, async move {
        work.await;
        Ok(())
    });

    Arc::new(WorkloadRegistration::Kubernetes {
        registrar,
        sidecars_take_hbone: config.settings.sidecar_listening_hbone,
    })
}

/// Serves readiness, metrics and debug pages, and other services of the HTTP port.
fn serve_admin(
    http: Option<(OpenHttpPort, Option<PlainConnections>)>,
    monitoring: Option<OpenHttpPort>,
    on_http: axum::Router,
    (state, pages): (AdminState, admin::Pages),
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let mut serve = |name, open, grpc, routes| {
        let Some(open) = open else { return };
        let port = HttpPort {
            open,
            grpc,
            tls: None,
            routes,
        };
        let stop = stop.clone();
        spawn(name, tasks, async move {
            port.serve(stop).await;
            Ok(())
        });
    };

    let (http, grpc) = http.unzip();
    serve(
        "http",
        http,
        grpc.flatten(),
        admin::http_routes(state.clone(), pages).merge(on_http),
    );

    serve(
        "monitoring",
        monitoring,
        None,
        admin::monitoring_routes(state, pages),
    );
}

/// Waits for a termination signal or the failure of a task; then gives the tasks `shutdown` to end.
async fn until_the_end(
    shutdown: Duration,
    terminated: &CancellationToken,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let outcome = tokio::select! {
        () = terminated.cancelled() => Ok(()),
        ended = tasks.join_next() => Err(ended_unexpectedly(ended)),
    };
    tracing::info!("shutting down; closing proxy streams");
    stop.cancel();
    if tokio::time::timeout(shutdown, async {
        while tasks.join_next().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::warn!(after = ?shutdown, "some tasks did not end within the shutdown grace period");
        tasks.abort_all();
    }
    outcome
}

/// Decides which sources are read, and derives dependent settings.
async fn plan(config: &mut Config) -> anyhow::Result<Plan> {
    let plan = Plan::make(&config.sources, &config.settings.system_namespace).await?;
    config.settings.discover_configuration = plan.configures_by_kubernetes();
    if plan.client.is_some() {
        config.settings.secret_readers = SecretReaders::Reviewed;
    }
    Ok(plan)
}

/// Converts an outcome to that of a task.
fn finish<E: std::error::Error + Send + Sync + 'static>(
    outcome: Result<(), E>,
) -> anyhow::Result<()> {
    outcome.map_err(anyhow::Error::from)
}

/// The future's output, or `None` if `stop` is cancelled first.
async fn until<F: Future>(stop: &CancellationToken, future: F) -> Option<F::Output> {
    tokio::select! {
        output = future => Some(output),
        () = stop.cancelled() => None,
    }
}

/// Starts a named task.
fn spawn(
    name: &'static str,
    tasks: &mut Tasks,
    task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    tasks.spawn(async move { (name, task.await) });
}

/// Serves xDS in plain text until shutdown. Clients are not authenticated, so they get no secrets,
/// unless there is an authentication layer.
fn serve_plain(
    connections: Plain,
    ads: Ads,
    (authenticator, rules): (&Arc<Authenticator>, StreamRules),
    stop: &CancellationToken,
    tasks: &mut Tasks,
) {
    let auth = rules
        .plain_auth
        .then(|| (authenticator.clone(), AuthPolicy::of_streams(rules)));
    let stop = stop.clone();
    spawn("xds", tasks, async move {
        let (now, before) = reflection::reflection([Ads::NAME]);
        let server = match auth {
            None => ads.plain_server("grpc"),
            Some((authenticator, policy)) => Authentication {
                authenticator,
                policy,
                refused: None,
                log: Arc::default(),
            }
            .add_streams(&ads, ads.server("grpc")),
        };

        let server = server.add_service(now).add_service(before);
        server.serve(connections, stop.cancelled()).await;
        ads.ended().await;
        Ok(())
    });
}

/// The error of a task that ended unexpectedly.
fn ended_unexpectedly(
    ended: Option<Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>>,
) -> anyhow::Error {
    match ended {
        Some(Ok((name, Err(error)))) => error.context(format!("{name} failed")),
        Some(Ok((name, Ok(())))) => anyhow::anyhow!("{name} ended unexpectedly"),
        Some(Err(error)) => anyhow::Error::from(error).context("a task failed"),
        None => anyhow::anyhow!("no task is left"),
    }
}
