//! The agent as a whole: all its parts, wired together.
//!
//! ```text
//! command, environment, files, cloud ─▶ config ─▶ node ─▶ bootstrap ─▶ Envoy ─┐
//!                                                                             ├─▶ exit code
//!   SIGTERM, SIGINT, /drain, /quitquitquit ─▶ orders ─────────────────────────┘
//! ```

mod files;
mod prepare;
mod signals;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::command::ProxyCommand;
use super::envoy_life::{AdminApi, DrainPlan, Ended, Launch, keep};
use super::variables::Variables;
use prepare::Prepared;

/// The most orders that wait for Envoy's keeper. More than a few mean that somebody repeats himself.
const ORDERS: usize = 16;

/// What the process that runs the agent knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Words that start a program which ends with the agent.
    pub launcher: Vec<String>,
}

/// Why the agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Something it is made of is missing or wrong.
    #[error(transparent)]
    Prepare(#[from] prepare::PrepareError),
    /// The kernel does not tell of signals.
    #[error("signals cannot be taken")]
    Signals(#[source] std::io::Error),
    /// Envoy cannot be started.
    #[error("Envoy cannot be started")]
    Start(#[source] std::io::Error),
}

/// Runs until Envoy has ended, or the agent was told to end; gives the exit code.
///
/// # Errors
/// When the agent cannot start.
pub async fn run(command: &ProxyCommand, variables: &Variables, surroundings: &Surroundings) -> Result<i32, RunError> {
    let (give, mut orders) = mpsc::channel(ORDERS);
    let mut tasks = JoinSet::new();
    tasks.spawn(signals::orders(signals::Signals::take().map_err(RunError::Signals)?, give.clone()));
    let prepared = Prepared::new(command, variables).await?;
    if command.settings.disable_envoy {
        // Orders other than those that end the agent have nobody to go to.
        while let Some(order) = orders.recv().await {
            if matches!(order, super::envoy_life::Order::Terminate | super::envoy_life::Order::Quit) {
                break;
            }
        }
        return Ok(0);
    }
    let launch = launch(&prepared, variables, surroundings);
    let ended = keep(launch, &drain_plan(&prepared), &mut orders).await.map_err(RunError::Start)?;
    prepared.clean_up();
    tasks.shutdown().await;
    Ok(match ended {
        Ended::Told => 0,
        Ended::ByItself(code) => {
            tracing::error!(code, "Envoy ended by itself");
            code
        }
    })
}

/// How Envoy is started.
fn launch(prepared: &Prepared, variables: &Variables, surroundings: &Surroundings) -> Launch {
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
        variables: ciphers.into_iter().collect(),
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
