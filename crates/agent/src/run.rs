//! The agent as a whole: all its parts, wired together.
//!
//! ```text
//! command, environment, files, cloud ─▶ config ─▶ node ─▶ bootstrap ─▶ Envoy ─┐
//!                                                                             ├─▶ exit code
//!   SIGTERM, SIGINT, /drain, /quitquitquit, changed files ─▶ orders ──────────┘
//!                  │
//!   status server ─┘    secrets, SDS, xDS proxy, DNS, health, modules: tasks beside it, ended when Envoy has
//! ```

mod files;
mod names;
mod prepare;
mod services;
mod signals;
mod status;
mod watch;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::ProxyCommand;
use super::dns::NameTableSink;
use super::envoy_life::{AdminApi, DrainPlan, Ended, Launch, Order, keep};
use super::iptables::TRACE_GROUP;
use super::metrics::AgentMetrics;
use super::services::{self as parts, Services, ServicesError};
use super::status_server::{self, Condition};
use super::trace_log::TraceLog;
use super::variables::Variables;
use navarch_security::Clock;
use prepare::Prepared;

/// The most orders that wait for Envoy's keeper. More than a few mean that somebody repeats himself.
const ORDERS: usize = 16;
/// How long the parts have to end once Envoy has.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// What the process that runs the agent gives it.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Words that start a program which ends with the agent.
    pub launcher: Vec<String>,
    /// Tells the time.
    pub clock: Clock,
}

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Something it is made of is missing or wrong.
    #[error(transparent)]
    Prepare(#[from] prepare::PrepareError),
    /// Settings of its parts are wrong.
    #[error(transparent)]
    Plan(#[from] services::ServicesPlanError),
    /// A part does not start.
    #[error(transparent)]
    Services(#[from] ServicesError),
    /// There is no status server.
    #[error(transparent)]
    Status(#[from] status::StatusError),
    /// The kernel does not tell of signals.
    #[error("failed to install signal handlers")]
    Signals(#[source] std::io::Error),
    /// Envoy cannot be started.
    #[error("failed to start Envoy")]
    Start(#[source] std::io::Error),
}

/// Runs until Envoy exits or the agent receives a termination signal; returns the exit code. It must run on a thread that lasts
/// as long as the agent, as the kernel kills Envoy when the thread that started it ends.
///
/// # Errors
/// When the agent cannot start.
pub async fn run(command: &ProxyCommand, variables: &Variables, surroundings: &Environment) -> Result<i32, RunError> {
    let (give, mut orders) = mpsc::channel(ORDERS);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let signals = signals::Signals::take().map_err(RunError::Signals)?;
    tasks.spawn(stop.clone().run_until_cancelled_owned(signals::orders(signals, give.clone())));
    let metrics = AgentMetrics::begun(Instant::now());
    let prepared = Prepared::new(command, variables).await?;
    let plan = services::plan(&prepared, variables, metrics.clone())?;
    let Services { names, failures, .. } = parts::start(plan, surroundings.clock, &tasks, &stop).await?;
    tasks.spawn(stop.clone().run_until_cancelled_owned(end_on_failure(failures, give.clone())));
    if variables.flag("IPTABLES_TRACE_LOGGING", false) {
        tasks.spawn(stop.clone().run_until_cancelled_owned(tell_of_packets()));
    }
    serve_status(&prepared, variables, (names, metrics), &give, (&tasks, &stop)).await?;
    let watched = watch::watched(&prepared);
    let ended = if prepared.settings.disable_envoy {
        wait_for_end(&mut orders).await
    } else {
        let restarting = watch::restart_on_change(watched, &prepared, variables, give);
        let (launch, plan) = (launch(&prepared, variables, surroundings), drain_plan(&prepared));
        tokio::select! {
            ended = keep(launch, &plan, &mut orders) => ended.map_err(RunError::Start)?,
            () = restarting => pending().await,
        }
    };
    prepared.clean_up();
    stop.cancel();
    tasks.close();
    if timeout(SHUTDOWN_GRACE, tasks.wait()).await.is_err() {
        tracing::warn!("some agent tasks did not end within the shutdown grace period");
    }
    Ok(match ended {
        Ended::OnOrder => 0,
        Ended::ByItself(code) => {
            tracing::error!(code, "Envoy exited on its own");
            code
        }
    })
}

/// Starts the status server, unless its port is 0.
async fn serve_status(
    prepared: &Prepared,
    variables: &Variables,
    (table_source, metrics): (Option<NameTableSink>, AgentMetrics),
    give: &mpsc::Sender<Order>,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<(), RunError> {
    let Some(port) = u16::try_from(prepared.config.status_port).ok().filter(|port| *port != 0) else { return Ok(()) };
    let conditions: Vec<Condition> = table_source
        .clone()
        .map(|source| {
            let ready = move || match source.table() {
                Some(_) => Ok(()),
                None => Err("the control plane has sent no table of names yet".to_owned()),
            };
            Arc::new(ready) as Condition
        })
        .into_iter()
        .collect();
    let table = Arc::new(move || table_source.as_ref()?.wire().map(|table| names::to_json(&table)));
    let config = status::config(prepared, variables, port, (conditions, metrics), table, give.clone())?;
    let listener = status::listen(port)?;
    tasks.spawn(stop.clone().run_until_cancelled_owned(status_server::serve(listener, config)));
    Ok(())
}

/// Ends the agent when one of its parts fails: Envoy would get nothing new any more.
async fn end_on_failure(mut failures: mpsc::Receiver<&'static str>, give: mpsc::Sender<Order>) {
    if let Some(part) = failures.recv().await {
        tracing::error!(part, "agent task failed");
        let _ = give.send(Order::Terminate).await;
    }
    pending().await
}

/// Writes lines about packets that the rules of the capture have logged. Without them the agent works as well.
async fn tell_of_packets() {
    let told = match TraceLog::open(TRACE_GROUP) {
        Ok(log) => log.run().await,
        Err(error) => Err(error),
    };
    if let Err(error) = told {
        tracing::warn!(%error, "failed to read logged packets: NET_ADMIN is needed, and no other reader of the same group");
    }
}

/// Waits for a termination order. Other orders have no receiver and are ignored.
async fn wait_for_end(orders: &mut mpsc::Receiver<Order>) -> Ended {
    while let Some(Order::Drain | Order::Restart(_)) = orders.recv().await {}
    Ended::OnOrder
}

/// How Envoy is started.
fn launch(prepared: &Prepared, variables: &Variables, surroundings: &Environment) -> Launch {
    // TLS of Envoy's own gRPC client is held to what the policy allows.
    const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
        ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384";
    let bound = prepared.settings.compliance_policy.starts_with("fips-140-");
    let ciphers = bound.then(|| ("GRPC_SSL_CIPHER_SUITES".to_owned(), CIPHERS.to_owned()));
    // As root with DNS on its own port there are no rules that could tell Envoy's traffic apart but by its user.
    let as_proxy = nix::unistd::getuid().is_root() && variables.text("DNS_PROXY_ADDR").ends_with(":53");
    Launch {
        launcher: surroundings.launcher.clone(),
        program: prepared.config.binary_path.clone(),
        arguments: prepared.arguments.clone(),
        variables: ciphers.into_iter().chain(prepared.told_peers.iter().cloned()).collect(),
        user: as_proxy.then_some(1337),
    }
}

/// How Envoy is drained.
fn drain_plan(prepared: &Prepared) -> DrainPlan {
    let settings = &prepared.settings;
    let ports = [
        settings.envoy_status_port,
        settings.envoy_prometheus_port,
        settings.secure_metrics_port,
        settings.secure_merged_metrics_port,
    ];
    let duration = prepared.config.termination_drain_duration.and_then(|span| span.as_std());
    DrainPlan {
        admin: AdminApi { host: prepared.localhost().to_owned(), port: prepared.admin_port() },
        inbound_only: prepared.identity.kind == "sidecar",
        duration: duration.unwrap_or_default(),
        until_unused: settings.exit_on_zero_active_connections.then_some(settings.minimum_drain),
        own_ports: ports.into_iter().filter(|port| *port != 0).collect(),
    }
}
