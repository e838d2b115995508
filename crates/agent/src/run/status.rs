//! The configuration of the status server, from pilot-agent's variables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::prepare::Prepared;
use crate::envoy_life::{AdminApi, EnvoyCommand};
use crate::metrics::AgentMetrics;
use crate::own_metrics::OwnMetrics;
use crate::status_server::{
    Condition, ProbeSpecError, Probes, ScrapeConfig, ScrapeConfigError, StatusConfig,
};
use crate::upgrade::status::SharedStatus;
use crate::variables::Variables;
use navarch_net::listen::listen_on_all;

/// Returns the name table as JSON, if there is one.
pub(super) type NameTableSource = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// Errors of starting the status server.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The application's probes are invalid.
    #[error(transparent)]
    Probes(#[from] ProbeSpecError),
    /// The application's scrape settings are invalid.
    #[error(transparent)]
    Scrape(#[from] ScrapeConfigError),
    /// The maximum number of connections is not a number.
    #[error("NAVARCH_MAX_STATUS_CONNECTIONS={0:?} is not a positive integer")]
    Connections(String),
    /// Listening on the port failed.
    #[error("failed to listen on the status port {0}")]
    Listen(u16, #[source] std::io::Error),
}

/// Listens on the status port, on all addresses.
pub(super) fn listen(port: u16) -> Result<TcpListener, StatusError> {
    listen_on_all(port).map_err(|error| StatusError::Listen(port, error))
}

/// What the server shows, and where it sends commands.
pub(super) struct StatusParts {
    pub(super) conditions: Vec<Condition>,
    pub(super) work: AgentMetrics,
    pub(super) proxy: SharedStatus,
    pub(super) name_table: NameTableSource,
    pub(super) commands: mpsc::Sender<EnvoyCommand>,
}

/// The configuration of the server.
pub(super) fn config(
    prepared: &Prepared,
    variables: &Variables,
    port: u16,
    parts: StatusParts,
) -> Result<StatusConfig, StatusError> {
    let StatusParts {
        conditions,
        work,
        proxy,
        name_table,
        commands,
    } = parts;
    let settings = &prepared.settings;
    let pod = variables.text("INSTANCE_IP");
    let of_v6 = prepared.localhost() == "::1" || pod.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    let source: IpAddr = if of_v6 {
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into()
    } else {
        Ipv4Addr::new(127, 0, 0, 6).into()
    };

    let legacy = variables.flag("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", false);
    let envoy = (!settings.disable_envoy).then(|| AdminApi {
        host: prepared.localhost().to_owned(),
        port: prepared.admin_port(),
    });
    let merges = envoy.is_some() && variables.flag("PILOT_AGENT_MERGE_ENVOY_STATS", true);

    // A gateway's port is reachable from outside, and the application's metrics are not public.
    let sidecar = prepared.identity.kind == "sidecar";
    let scrape = match variables
        .get("ISTIO_PROMETHEUS_ANNOTATIONS")
        .filter(|text| sidecar && !text.is_empty())
    {
        Some(text) => ScrapeConfig::parse(text, port)?,
        None => None,
    };

    let metrics = OwnMetrics::new(work.clone());
    Ok(StatusConfig {
        envoy,
        envoy_metrics: merges.then_some(settings.envoy_prometheus_port),
        port,
        destination: if legacy || pod.is_empty() {
            "localhost".to_owned()
        } else {
            pod.to_owned()
        },
        source,
        http2_probes: variables.flag("ISTIO_ENABLE_HTTP2_PROBING", true),
        keeps_probe_connections: variables.flag("ENABLE_PROBE_KEEPALIVE_CONNECTIONS", false),
        probes: Probes::parse(variables.text("ISTIO_KUBE_APP_PROBERS"))?,
        scrape,
        metrics_on_loopback_only: variables.flag("METRICS_LOCALHOST_ACCESS_ONLY", false),
        conditions,
        name_table,
        proxy,
        rejections: metrics.rejections(),
        metrics: Arc::new(move || metrics.scrape()),
        mesh_metrics: prepared.mesh_metrics.clone(),
        serves_profiles: settings.profiling,
        work,
        commands,
        connections: connections(variables.text("NAVARCH_MAX_STATUS_CONNECTIONS"))?,
    })
}

/// The maximum number of connections, parsed from the variable.
fn connections(text: &str) -> Result<usize, StatusError> {
    if text.is_empty() {
        return Ok(StatusConfig::CONNECTIONS);
    }
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| StatusError::Connections(text.to_owned()))
}
