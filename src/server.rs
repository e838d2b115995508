//! Start order, readiness, shutdown: the only module that depends on all others.
//!
//! Sockets are bound first and served last. Everything in between is a named task that ends with
//! one cancellation token and is awaited. A task that ends unexpectedly ends the process with an
//! error.

mod address;
mod boot;
mod config;
mod connection_limits;
mod control;
mod controllers;
mod embedded;
mod engine;
#[cfg(test)]
pub(crate) mod every_metric;
mod gateway_hosts;
mod http;
mod ingress;
mod injector;
mod learned_scopes;
mod memory;
mod object_status;
mod pages;
mod parts;
mod plain_ports;
mod plan_warnings;
mod ports;
mod progress;
mod publishing;
mod pump;
mod quarantine;
mod recording;
mod remotes;
mod replica_name;
mod reports;
mod rollout;
mod secret_access;
mod secure;
mod security;
mod signals;
mod signers;
mod sources;
mod start_log;
mod tls_ports;
mod traces;
mod trust;
mod webhooks;
mod workloads;
mod xds;

use tokio_util::sync::CancellationToken;

pub use address::{AddressError, ListenAddress};
pub use config::Config;
pub use connection_limits::ConnectionLimits;
pub use controllers::WritingConfig;
pub use embedded::{Embedded, EmbeddedParts, SigningParts};
pub use navarch_remotes::RemotesConfig;
pub(crate) use navarch_remotes::kubeconfig as remote_kubeconfig;
pub use publishing::PublishedObjects;
pub use recording::RecordConfig;
pub use security::{SecurityConfig, StreamRules};
pub use signers::{SignerKind, SignersConfig};
pub use sources::SourcesConfig;
pub use webhooks::WebhookConfig;
pub use workloads::registered_workload;

use boot::{Boot, until};
use engine::Engine;
use navarch_api::settings::SecretReaders;
use parts::Parts;
use ports::Ports;
use sources::Plan;
use start_log::{log_panics, log_start};
use tls_ports::TlsPorts;

/// The part that readiness waits for until all ports are served.
const PORTS_PART: &str = "ports";

/// Why readiness waits for the ports.
const PORTS_MISSING: &str = "the TLS ports do not listen until the configuration has been read";

/// Runs the control plane until SIGTERM or SIGINT.
///
/// # Errors
/// When a port cannot be opened, or a task fails.
pub async fn run(mut config: Config) -> anyhow::Result<()> {
    log_panics();
    let mut boot = Boot::new();

    // Bound first: a port that is in use must fail before anything has started.
    let ports = Ports::bind(&config, &boot).await?;
    boot.readiness.hold(PORTS_PART, PORTS_MISSING);

    let plan = plan(&mut config).await?;
    let sources = plan.describe();
    let parts = Parts::start(&config, plan, &mut boot).await?;
    let state = pages::start(&config, &parts, &mut boot).await;
    let terminated = signals::follow(parts.reload, &mut boot);

    let tls = TlsPorts {
        secure: ports.secure,
        https: ports.https,
        authenticator: parts.xds.authenticator,
        ads: parts.xds.ads,
        client: parts.client,
        webhooks: parts.webhooks,
        ca_metrics: parts.ca_metrics,
        call_metrics: parts.call_metrics,
        commands: state.roots.clone(),
        certificates: state.certificates.clone(),
        to_remotes: parts.to_remotes,
    };
    ports.plain.serve(&config, state, &tls, &mut boot);

    let Engine { push, recording } = parts.engine;
    if let Some(served) = until(&terminated, tls.serve(&config, &push, &mut boot)).await {
        served?;
        boot.readiness.release(PORTS_PART);
        log_start(&config, &sources, &ports.addresses);
    }

    let ended = until_terminated(&terminated, &mut boot).await;
    tracing::info!("shutting down; closing proxy streams");
    boot.shut_down(config.shutdown).await;
    recording.end();
    ended
}

/// Decides which sources are read, and derives dependent settings.
async fn plan(config: &mut Config) -> anyhow::Result<Plan> {
    let plan = Plan::make(&config.sources, &config.settings.system_namespace).await?;
    derive_settings(config, &plan);
    Ok(plan)
}

/// Sets the settings that depend on the sources.
fn derive_settings(config: &mut Config, plan: &Plan) {
    config.settings.discover_configuration = plan.configures_by_kubernetes();
    if plan.client.is_some() {
        config.settings.secret_readers = SecretReaders::Reviewed;
    }
}

/// Waits for a termination signal, or for a task that ends unexpectedly, which is an error.
async fn until_terminated(terminated: &CancellationToken, boot: &mut Boot) -> anyhow::Result<()> {
    tokio::select! {
        () = terminated.cancelled() => Ok(()),
        error = boot.unexpected_end() => Err(error),
    }
}
