//! The agent's network services, started together: secrets, SDS, the xDS proxy, DNS, health, Wasm
//! modules.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dns::{DnsConfig, DnsServer, NameTableSink, TableConfig};
use super::health::HealthConfig;
use super::mesh_metrics::MeshMetrics;
use super::metrics::AgentMetrics;
use super::secrets::{CaClient, Secrets, SecretsConfig};
use super::upstream::{Upstream, UpstreamConfig};
use super::wasm::{Modules, ModulesConfig};
use super::{ads, dns, health, sds, socket};
use crate::Clock;

/// Capacity of the channel of failures; each service fails at most once.
const FAILURES: usize = 8;
/// The wait before the second attempt to listen on the SDS socket.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The CA of the workload's certificates.
#[derive(Clone, Debug)]
pub struct CaConfig {
    /// Its address and credentials.
    pub upstream: UpstreamConfig,
    /// The signer, if the CA has several (`ISTIO_META_CERT_SIGNER`); empty is the default.
    pub signer: String,
}

/// DNS for the workload.
#[derive(Clone, Debug)]
pub struct NamesConfig {
    /// Listen addresses and resolvers of the DNS server.
    pub server: DnsConfig,
    /// Namespace and domains by which short names are completed.
    pub table: TableConfig,
}

/// What [`start`] needs; a service that is `None` does not run.
#[derive(Clone, Debug)]
pub struct ServicesConfig {
    /// The workload's secrets.
    pub secrets: SecretsConfig,
    /// The CA; `None` if all certificates are files or come from another SDS server.
    pub ca: Option<CaConfig>,
    /// The socket of the SDS server.
    pub sds_socket: PathBuf,
    /// Configuration of the SDS server.
    pub sds: sds::SdsConfig,
    /// The socket of the xDS proxy.
    pub ads_socket: PathBuf,
    /// Address and credentials of the control plane.
    pub control_plane: UpstreamConfig,
    /// DNS, if the agent serves it.
    pub names: Option<NamesConfig>,
    /// Whether the trust bundle of the proxy config is used (`PROXY_CONFIG_XDS_AGENT`; default
    /// true).
    pub takes_trust_bundle: bool,
    /// Health checks of the workload, if its health is reported to the control plane.
    pub health: Option<HealthConfig>,
    /// Converts Envoy's access logs to metrics, if enabled.
    pub mesh_metrics: Option<MeshMetrics>,
    /// The Wasm module cache, if the agent fetches modules.
    pub modules: Option<ModulesConfig>,
    /// Whether applications use xDS themselves instead of Envoy (`DISABLE_ENVOY`).
    pub without_envoy: bool,
    /// Receives what each Envoy answers on its xDS stream.
    pub envoys: ads::EnvoyStreams,
    /// Updated by all services; clones share the values that `/stats/prometheus` shows.
    pub metrics: AgentMetrics,
}

/// The running services.
#[derive(Debug)]
pub struct Services {
    /// The workload's secrets.
    pub secrets: Secrets,
    /// The name table, if the agent serves DNS; ready once a table was received.
    pub names: Option<NameTableSink>,
    /// Sends requests to the control plane's debug API.
    pub debug: ads::DebugClient,
    /// Receives the name of a failed service.
    pub failures: mpsc::Receiver<&'static str>,
}

/// Errors of starting the services.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// Listening on a socket failed.
    #[error("failed to listen on {0}")]
    Socket(PathBuf, #[source] io::Error),
    /// Listening on the DNS addresses failed.
    #[error("failed to listen for DNS")]
    Dns(#[source] io::Error),
    /// Serving SDS failed.
    #[error(transparent)]
    Sds(#[from] tonic::transport::Error),
}

/// Spawns all services on a task set that the caller awaits; they end on shutdown.
///
/// # Errors
/// If listening on a socket fails.
pub async fn start(
    config: ServicesConfig,
    clock: Clock,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Services, ServicesError> {
    let (fail, failures) = mpsc::channel(FAILURES);
    let listen =
        |path: PathBuf| socket::listen(&path).map_err(|error| ServicesError::Socket(path, error));
    let ca = config
        .ca
        .map(|CaConfig { upstream, signer }| CaClient::new(Upstream::new(upstream), signer));
    let (secrets, getting) = Secrets::new(
        config.secrets,
        ca,
        clock,
        config.metrics.clone(),
        stop.clone(),
    );

    tasks.spawn(getting.run());
    let serving = serve_sds(
        socket::listen(&config.sds_socket),
        config.sds_socket,
        secrets.clone(),
        config.sds,
        stop.clone(),
    );

    let failed = fail.clone();
    tasks.spawn(async move { report_outcome(serving.await, "sds", &failed) });

    let names = match config.names {
        None => None,
        Some(NamesConfig { server, table }) => {
            let names = NameTableSink::new(table);
            let server = DnsServer::bind(server, names.clone())
                .await
                .map_err(ServicesError::Dns)?;
            tasks.spawn(dns::serve(
                server.counted_by(config.metrics.clone()),
                stop.clone(),
            ));
            Some(names)
        }
    };

    let health = config.health.map(|config| {
        let (health, prober) = health::start(config, stop.clone());
        tasks.spawn(prober);
        health
    });
    let modules = config
        .modules
        .map(|modules| Modules::counted_by(modules, clock, config.metrics.clone()));
    if let Some(modules) = modules.clone() {
        tasks.spawn(modules.purge(stop.clone()));
    }

    let upstream = Upstream::new(config.control_plane);
    let connections = ads::OpenConnections::default();
    let debug = ads::DebugClient::new(upstream.clone(), connections.clone());
    let proxy = ads::AdsConfig {
        upstream,
        names: names.clone(),
        trust: config.takes_trust_bundle.then(|| secrets.clone()),
        health,
        mesh_metrics: config.mesh_metrics,
        modules,
        side_by_side: config.without_envoy,
        envoys: config.envoys,
        connections,
        max_response: ads::MAX_RESPONSE_BYTES,
        metrics: config.metrics,
    };

    let serving = ads::serve(listen(config.ads_socket)?, proxy, stop.clone());
    tasks.spawn(async move { report_outcome(serving.await, "ads", &fail) });
    Ok(Services {
        secrets,
        names,
        debug,
        failures,
    })
}

/// Serves SDS until shutdown. If the first attempt to listen failed, it tries again while the other
/// services and Envoy run: another container may still prepare the folder.
async fn serve_sds(
    listener: io::Result<UnixListener>,
    path: PathBuf,
    secrets: Secrets,
    config: sds::SdsConfig,
    stop: CancellationToken,
) -> Result<(), ServicesError> {
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            let again = socket::listen_again(&path, error, FIRST_WAIT);
            let Some(again) = stop.run_until_cancelled(again).await else {
                return Ok(());
            };
            again.map_err(|error| ServicesError::Socket(path, error))?
        }
    };

    sds::serve(listener, secrets, config, stop).await?;
    Ok(())
}

/// Logs and reports that a service failed.
fn report_outcome<E: std::error::Error + 'static>(
    outcome: Result<(), E>,
    name: &'static str,
    fail: &mpsc::Sender<&'static str>,
) {
    if let Err(error) = outcome {
        tracing::error!(
            name,
            error = &error as &dyn std::error::Error,
            "agent service failed"
        );
        // The channel has capacity for each service.
        let _ = fail.try_send(name);
    }
}
