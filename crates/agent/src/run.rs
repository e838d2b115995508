//! Runs the agent: wires all of its parts together.
//!
//! ```text
//! command, environment, files, cloud ─▶ config ─▶ node ─▶ bootstrap ─▶ Envoy ─┐
//!                                                                             ├─▶ exit code
//!   SIGTERM, SIGINT, /drain, /quitquitquit, changed files ─▶ commands ────────┘
//!                  │
//!   status server ─┘    secrets, SDS, xDS proxy, DNS, health, modules: tasks beside it, ended when Envoy has
//! ```

mod bootstrap_check;
mod ca_provider;
mod dynamic_bootstrap;
mod epochs;
mod files;
mod names;
mod prepare;
mod services;
mod signals;
mod status;
mod sts;
mod tap;
mod upgrade;
mod watch;
mod xds_request;
mod zone;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as channel};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ProxyCommand;
use super::dns::NameTableSink;
use super::envoy_life::{AdminApi, DrainPlan, EnvoyCommand, EnvoyEnd, Launch, RunningEnvoys, keep};
use super::iptables::TRACE_GROUP;
use super::metrics::AgentMetrics;
use super::services::{self as parts, Services, ServicesError};
use super::status_server::{self, Condition};
use super::trace_log::TraceLog;
use super::upgrade::program::ProgramCheck;
use super::upgrade::status::SharedStatus;
use super::variables::Variables;
use crate::Clock;
use bootstrap_check::BootstrapCheck;
use dynamic_bootstrap::DynamicBootstrap;
use prepare::Prepared;
use zone::ZoneRequest;

/// Capacity of the channel of commands for Envoy. More than a few pending ones are repetitions.
const MAX_PENDING_COMMANDS: usize = 16;
/// Grace period for the services after Envoy has exited.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// What the process provides to the agent.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The command prefix that starts a program which is killed with the agent.
    pub launcher: Vec<String>,
    /// Decides when certificates are renewed and when unused Wasm modules are removed.
    pub clock: Clock,
}

/// Errors of running the agent.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An input is missing or invalid.
    #[error(transparent)]
    Prepare(#[from] prepare::PrepareError),
    /// The settings of the services are invalid.
    #[error(transparent)]
    Plan(#[from] services::ServicesPlanError),
    /// A service failed to start.
    #[error(transparent)]
    Services(#[from] ServicesError),
    /// The status server failed to start.
    #[error(transparent)]
    Status(#[from] status::StatusError),
    /// The token service failed to start.
    #[error(transparent)]
    Sts(#[from] sts::StsError),
    /// The control plane's bootstrap was not received.
    #[error(transparent)]
    Bootstrap(#[from] dynamic_bootstrap::DynamicBootstrapError),
    /// Installing signal handlers failed.
    #[error("failed to install signal handlers")]
    Signals(#[source] std::io::Error),
    /// Starting Envoy failed.
    #[error("failed to start Envoy")]
    Start(#[source] std::io::Error),
}

/// Runs until Envoy exits or the agent receives a termination signal; returns the exit code. It
/// must run on a thread that lasts as long as the agent, as the kernel kills Envoy when the thread
/// that started it ends.
///
/// # Errors
/// When the agent cannot start.
pub async fn run(
    command: &ProxyCommand,
    variables: &Variables,
    environment: &Environment,
) -> Result<i32, RunError> {
    let (give, mut commands) = mpsc::channel(MAX_PENDING_COMMANDS);
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let signals = signals::Signals::take().map_err(RunError::Signals)?;
    tasks.spawn(
        stop.clone()
            .run_until_cancelled_owned(signals::commands(signals, give.clone())),
    );

    let metrics = AgentMetrics::begun(Instant::now());
    let prepared = Prepared::new(command, variables).await?;
    let plan = services::plan(&prepared, variables, environment.clock, metrics.clone())?;
    let control_plane = plan.control_plane.clone();
    let envoys = plan.envoys.clone();
    let proxy = SharedStatus::default();

    let zone_request = ZoneRequest::planned(&prepared, variables, control_plane.clone());
    let check = ProgramCheck {
        user: envoy_user(variables),
    };
    let dynamic_bootstrap = DynamicBootstrap::planned(&prepared, variables, control_plane, check)?;

    let Services {
        names,
        failures,
        debug,
        ..
    } = parts::start(plan, environment.clock, &tasks, &stop).await?;
    tasks.spawn(
        stop.clone()
            .run_until_cancelled_owned(end_on_failure(failures, give.clone())),
    );

    if variables.flag("IPTABLES_TRACE_LOGGING", false) {
        tasks.spawn(stop.clone().run_until_cancelled_owned(log_packets()));
    }

    let shown = Shown {
        metrics: metrics.clone(),
        proxy: proxy.clone(),
    };
    serve_status(&prepared, variables, names, shown, &give, &tasks, &stop).await?;

    if let Some(serving) = sts::start(&prepared, variables, environment.clock)? {
        tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
    }
    if let Some(serving) = tap::start(&prepared, variables, debug) {
        tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
    }

    let ended = if prepared.settings.disable_envoy {
        wait_for_end(&mut commands).await
    } else if let Some(ended) = receive_bootstrap(dynamic_bootstrap, &mut commands).await? {
        ended
    } else {
        let states = channel::Sender::new(RunningEnvoys::default());
        let bootstraps = BootstrapCheck::new(&prepared, check, states.subscribe());
        let watched = watch::watched(&prepared);
        let restarting =
            watch::restart_on_change(watched, &prepared, variables, &bootstraps, give.clone());
        let reloading = zone::reload_when_known(zone_request, &prepared, &bootstraps, give.clone());
        let succeeding = epochs::next_epoch_on_change(&prepared, &bootstraps, give.clone());
        let launch = launch(&prepared, variables, environment);
        let plan = drain_plan(&prepared);
        let upgrades = upgrade::Upgrades {
            config: upgrade::config(&prepared, variables, launch.user),
            admin: plan.admin.clone(),
            commands: give,
            running: states.subscribe(),
            envoys,
            status: proxy,
            metrics,
            clock: environment.clock,
        };
        let upgrading = upgrades.run(&prepared);
        tokio::select! {
            ended = keep(launch, &plan, &mut commands, states) => ended.map_err(RunError::Start)?,
            () = restarting => pending().await,
            () = reloading => pending().await,
            () = succeeding => pending().await,
            () = upgrading => pending().await,
        }
    };

    prepared.clean_up();
    stop.cancel();
    tasks.close();
    if timeout(SHUTDOWN_GRACE, tasks.wait()).await.is_err() {
        tracing::warn!("some agent tasks did not end within the shutdown grace period");
    }

    Ok(match ended {
        EnvoyEnd::OnCommand => 0,
        EnvoyEnd::ByItself(code) => {
            tracing::error!(code, "Envoy exited on its own");
            code
        }
    })
}

/// What the status server shows of the agent's work.
struct Shown {
    metrics: AgentMetrics,
    proxy: SharedStatus,
}

/// Starts the status server, unless its port is 0.
async fn serve_status(
    prepared: &Prepared,
    variables: &Variables,
    table_source: Option<NameTableSink>,
    shown: Shown,
    give: &mpsc::Sender<EnvoyCommand>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    let Some(port) = u16::try_from(prepared.config.status_port)
        .ok()
        .filter(|port| *port != 0)
    else {
        return Ok(());
    };

    let conditions: Vec<Condition> = table_source
        .clone()
        .map(|source| {
            let ready = move || match source.table() {
                Some(_) => Ok(()),
                None => Err("the control plane has not sent the name table yet".to_owned()),
            };
            Arc::new(ready) as Condition
        })
        .into_iter()
        .collect();

    let table = Arc::new(move || {
        table_source
            .as_ref()?
            .wire()
            .map(|table| names::to_json(&table))
    });

    let parts = status::StatusParts {
        conditions,
        work: shown.metrics,
        proxy: shown.proxy,
        name_table: table,
        commands: give.clone(),
    };
    let config = status::config(prepared, variables, port, parts)?;

    let listener = status::listen(port)?;
    tasks.spawn(
        stop.clone()
            .run_until_cancelled_owned(status_server::serve(listener, config)),
    );

    Ok(())
}

/// Ends the agent when a service fails, as Envoy would not be updated any more.
async fn end_on_failure(
    mut failures: mpsc::Receiver<&'static str>,
    give: mpsc::Sender<EnvoyCommand>,
) {
    if let Some(part) = failures.recv().await {
        tracing::error!(part, "agent task failed");
        let _ = give.send(EnvoyCommand::Terminate).await;
    }
    pending().await
}

/// Logs packets that match the capture's trace rules. The agent works without these logs, too.
async fn log_packets() {
    let outcome = match TraceLog::open(TRACE_GROUP) {
        Ok(log) => log.run().await,
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        tracing::warn!(
            %error,
            "failed to read logged packets; this requires NET_ADMIN and that no other process reads the same NFLOG group"
        );
    }
}

/// Waits for a command to terminate. Other commands have no receiver and are ignored.
async fn wait_for_end(commands: &mut mpsc::Receiver<EnvoyCommand>) -> EnvoyEnd {
    while commands
        .recv()
        .await
        .is_some_and(|command| !command.is_end())
    {}
    EnvoyEnd::OnCommand
}

/// Waits for the control plane's bootstrap, if it is enabled. Returns how the agent ends if it is
/// to end before.
async fn receive_bootstrap(
    bootstrap: Option<DynamicBootstrap>,
    commands: &mut mpsc::Receiver<EnvoyCommand>,
) -> Result<Option<EnvoyEnd>, RunError> {
    let Some(bootstrap) = bootstrap else {
        return Ok(None);
    };
    tokio::select! {
        received = bootstrap.receive() => Ok(received.map(|()| None)?),
        ended = wait_for_end(commands) => Ok(Some(ended)),
    }
}

/// The command line of Envoy.
fn launch(prepared: &Prepared, variables: &Variables, environment: &Environment) -> Launch {
    // TLS of Envoy's own gRPC client is restricted by the policy.
    const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
        ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384";
    let bound = prepared.settings.compliance_policy.starts_with("fips-140-");
    let ciphers = bound.then(|| ("GRPC_SSL_CIPHER_SUITES".to_owned(), CIPHERS.to_owned()));

    Launch {
        launcher: environment.launcher.clone(),
        program: prepared.config.binary_path.clone(),
        arguments: prepared.arguments.clone(),
        variables: ciphers
            .into_iter()
            .chain(prepared.peer_variables.iter().cloned())
            .collect(),
        user: envoy_user(variables),
        hot_restart: epochs::hot_restart(prepared),
    }
}

/// Envoy's user and group, if different from the agent's.
fn envoy_user(variables: &Variables) -> Option<u32> {
    // As root with DNS on its own port, only Envoy's user distinguishes Envoy's traffic for the
    // rules.
    let as_proxy =
        nix::unistd::getuid().is_root() && variables.text("DNS_PROXY_ADDR").ends_with(":53");
    as_proxy.then_some(1337)
}

/// The drain settings of Envoy.
fn drain_plan(prepared: &Prepared) -> DrainPlan {
    let settings = &prepared.settings;
    let ports = [
        settings.envoy_status_port,
        settings.envoy_prometheus_port,
        settings.secure_metrics_port,
        settings.secure_merged_metrics_port,
    ];

    let duration = prepared
        .config
        .termination_drain_duration
        .and_then(|span| span.as_std());
    DrainPlan {
        admin: AdminApi {
            host: prepared.localhost().to_owned(),
            port: prepared.admin_port(),
        },
        inbound_only: prepared.identity.kind == "sidecar",
        duration: duration.unwrap_or_default(),
        until_unused: settings
            .exit_on_zero_active_connections
            .then_some(settings.minimum_drain),
        own_ports: ports.into_iter().filter(|port| *port != 0).collect(),
    }
}
