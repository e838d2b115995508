//! Prepares Envoy's start: config, node and bootstrap.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::files;
use crate::bootstrap::{self, BootstrapError, BootstrapInput, SETTINGS_KEY, TemplateError};
use crate::command::ProxyCommand;
use crate::downward_api::{ANNOTATIONS_FILE, LABELS_FILE};
use crate::envoy_arguments::{envoy_arguments, override_json};
use crate::envoy_features::Features;
use crate::go_path;
use crate::grpc_bootstrap::grpc_bootstrap;
use crate::host;
use crate::mesh_metrics::{MeshMetrics, Workload};
use crate::node::{
    self, AddressMode, Addresses, Locality, MetadataError, MetadataInput, Node, NodeIdentity,
};
use crate::platform::Platform;
use crate::proxy_config::{self, ConfigSources, ProxyConfigError};
use crate::settings::Settings;
use crate::socket;
use crate::start_log;
use crate::variables::Variables;
use navarch_api::mesh::ProxyConfig;
use navarch_base::metrics_log::{BAGGAGE_VARIABLE, NODE_KEY, PEER_ID_VARIABLE, PEER_VARIABLE};
use navarch_base::regular_file;

/// The directory of sockets for the workload's certificate.
const WORKLOAD_SOCKETS: &str = "./var/run/secrets/workload-spiffe-uds";
/// The name of the agent's own socket.
const OWN_SOCKET: &str = "socket";
/// The pod annotation that disables metrics from access logs with `false`.
const METRICS_ANNOTATION: &str = "navarch.io/metrics-from-access-logs";
/// The socket that provides secrets with other names, if it exists.
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

/// The path of Istio's own template, which is equivalent to the built-in bootstrap.
const BUILT_IN_TEMPLATE: &str = "/var/lib/istio/envoy/envoy_bootstrap_tmpl.json";

/// The settings and files of Envoy's start.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    /// The identity of the proxy.
    pub(super) identity: NodeIdentity,
    /// The effective config.
    pub(super) config: ProxyConfig,
    /// The agent's settings.
    pub(super) settings: Settings,
    /// Envoy's arguments.
    pub(super) arguments: Vec<String>,
    /// Envoy's node.
    pub(super) node: Node,
    /// The path of the bootstrap.
    pub(super) bootstrap: String,
    /// Metadata of the cloud platform, such as `gcp_project_number`.
    pub(super) platform: BTreeMap<String, String>,
    /// Computes the mesh's metrics from Envoy's access logs, if enabled.
    pub(super) mesh_metrics: Option<MeshMetrics>,
    /// Environment variables with the workload's metadata, which Envoy sends to peers.
    pub(super) peer_variables: Vec<(String, String)>,
    /// Whether another SDS server, such as SPIRE, provides the workload's certificate.
    pub(super) serves_only_files: bool,
    /// The bootstrap that the agent wrote, if any.
    pub(super) written: Option<WrittenBootstrap>,
}

/// The bootstrap that the agent wrote.
#[derive(Clone, Debug)]
pub(super) struct WrittenBootstrap {
    /// Where the agent removes it at its end.
    path: String,
    /// Envoy's node as JSON, with the agent's settings in the metadata: by this the control plane
    /// generates the bootstrap in its place, if enabled.
    pub(super) node: Value,
}

/// Errors of preparing Envoy's start.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A file cannot be read or written.
    #[error("{path}")]
    File {
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Computing the effective config failed.
    #[error(transparent)]
    Config(#[from] ProxyConfigError),
    /// Another SDS server is configured for the workload's certificate, but does not listen.
    #[error("no SDS server listens on {0} (WORKLOAD_IDENTITY_SOCKET_FILE)")]
    Socket(String),
    /// The node metadata is invalid.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Generating the bootstrap failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Rendering the user's own template failed.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

fn file(path: &str) -> impl FnOnce(std::io::Error) -> PrepareError {
    move |source| PrepareError::File {
        path: path.to_owned(),
        source,
    }
}

impl Prepared {
    /// Computes all settings, and writes the bootstraps.
    pub(super) async fn new(
        command: &ProxyCommand,
        variables: &Variables,
    ) -> Result<Self, PrepareError> {
        let settings = command.settings.clone();
        let labels = files::downward(LABELS_FILE);
        let annotations = files::downward(ANNOTATIONS_FILE);
        let mesh = files::text(&command.mesh_config).map_err(file(&command.mesh_config))?;
        let mut config = proxy_config::effective(&ConfigSources {
            mesh: mesh.as_deref(),
            environment: variables.text("PROXY_CONFIG"),
            annotations: annotations.as_ref(),
            service_cluster: &command.service_cluster,
            concurrency: command.concurrency,
            cpu_limit: variables.number("ISTIO_CPU_LIMIT", 0),
        })?;
        start_log::log_config(&config);

        if !command.template_file.is_empty() && config.custom_config_file.is_empty() {
            config
                .proxy_bootstrap_template_path
                .clone_from(&command.template_file);
        }

        let excluded = annotations
            .as_ref()
            .and_then(|all| all.get("traffic.sidecar.istio.io/excludeInterfaces"));
        let excluded: Vec<_> = excluded.map_or(Vec::new(), |names| names.split(',').collect());
        let instance = variables.text("INSTANCE_IP").parse().ok();
        let identity = NodeIdentity {
            kind: command.kind.clone(),
            addresses: Addresses::find(instance, &host::interfaces(), &excluded),
            pod: variables.text("POD_NAME").to_owned(),
            namespace: variables.text("POD_NAMESPACE").to_owned(),
            domain: command.domain.clone(),
        };

        let serves_only_files = served_by_others(&settings).await?;
        tracing::info!(id = identity.id(), addresses = %identity.addresses, "proxy identity");
        let resolv_conf = files::text(host::RESOLV_CONF)
            .ok()
            .flatten()
            .unwrap_or_default();
        let v6 = identity.addresses.mode() != AddressMode::V4;
        let platform = Platform::discover(variables, v6, &resolv_conf).await;

        let mut node = node::gather(&MetadataInput {
            identity: &identity,
            variables,
            settings: &settings,
            config: &config,
            labels: labels.as_ref(),
            annotations: annotations.as_ref(),
            platform: &platform,
            credential_socket: socket::is_served(Path::new(CREDENTIAL_SOCKET)).await,
            serves_only_files,
        })?;

        let mesh_metrics = mesh_metrics(&mut node, &config, &settings).await;
        write_grpc_bootstrap(&node, &config, &settings)?;
        let written = write_bootstrap(&node, &identity.addresses, &config, &settings).await?;
        let path = written
            .as_ref()
            .map_or(&config.custom_config_file, |written| &written.path)
            .clone();
        let over = over(&settings);
        let arguments = envoy_arguments(
            &config,
            &settings,
            &identity.addresses,
            &path,
            over.as_deref(),
        );

        Ok(Self {
            identity,
            config,
            settings,
            arguments,
            bootstrap: path,
            platform: platform.metadata,
            peer_variables: peer_variables(&node, mesh_metrics.as_ref()),
            mesh_metrics,
            node,
            serves_only_files,
            written,
        })
    }

    /// Writes the bootstrap again, with another locality of the node; returns the one before.
    pub(super) async fn rewrite_bootstrap(
        &self,
        locality: Locality,
    ) -> Result<String, PrepareError> {
        let path = &self.bootstrap;
        let before = files::text(path).map_err(file(path))?.unwrap_or_default();
        let node = Node {
            locality,
            ..self.node.clone()
        };
        let addresses = &self.identity.addresses;
        write_bootstrap(&node, addresses, &self.config, &self.settings).await?;
        Ok(before)
    }

    /// The loopback address that Envoy and the agent use.
    pub(super) fn localhost(&self) -> &'static str {
        if self.identity.addresses.mode() == AddressMode::V6 {
            "::1"
        } else {
            "127.0.0.1"
        }
    }

    /// The port of Envoy's admin API.
    pub(super) fn admin_port(&self) -> u16 {
        u16::try_from(self.config.proxy_admin_port).unwrap_or_default()
    }

    /// Removes the files that were written for Envoy.
    pub(super) fn clean_up(&self) {
        if let Some(WrittenBootstrap { path, .. }) = &self.written
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path, %error, "failed to remove the bootstrap file");
        }
    }
}

/// Whether another SDS server provides the workload's certificate. A socket with another name than
/// the agent's requires one.
async fn served_by_others(settings: &Settings) -> Result<bool, PrepareError> {
    let name = &settings.workload_identity_socket;
    let path = format!("{WORKLOAD_SOCKETS}/{name}");
    let served = socket::is_served(Path::new(&path)).await;
    if served {
        tracing::info!(
            path,
            "the workload certificate is served over another SDS socket; this agent serves files only"
        );
    } else if name != OWN_SOCKET {
        return Err(PrepareError::Socket(path));
    }
    Ok(served)
}

/// Metrics from Envoy's access logs, which the node metadata then announces to the control plane:
/// if Envoy supports them, the status server is enabled, and they are not disabled by annotation.
async fn mesh_metrics(
    node: &mut Node,
    config: &ProxyConfig,
    settings: &Settings,
) -> Option<MeshMetrics> {
    let is_off = node
        .annotations
        .get(METRICS_ANNOTATION)
        .is_some_and(|value| value == "false");
    let is_of_kind = matches!(
        node.id.split('~').next(),
        Some("sidecar" | "router" | "waypoint")
    );
    if is_off || !is_of_kind || settings.disable_envoy || config.status_port == 0 {
        return None;
    }

    if !Features::writes_tags(Path::new(&config.binary_path)).await {
        return None;
    }

    node.metadata.insert(NODE_KEY.to_owned(), "true".into());
    Some(MeshMetrics::in_network(
        Workload::of_node(node),
        node.text("ISTIO_VERSION"),
        node.text("NETWORK"),
    ))
}

/// Environment variables with the workload's metadata, if metrics are computed.
fn peer_variables(node: &Node, metrics: Option<&MeshMetrics>) -> Vec<(String, String)> {
    if metrics.is_none() {
        return Vec::new();
    }
    let own = Workload::as_seen_by_peers(node);
    vec![
        (PEER_VARIABLE.to_owned(), own.header()),
        (PEER_ID_VARIABLE.to_owned(), node.id.clone()),
        (BAGGAGE_VARIABLE.to_owned(), own.baggage()),
    ]
}

/// Writes Envoy's bootstrap, unless the user provided one.
async fn write_bootstrap(
    node: &Node,
    addresses: &Addresses,
    config: &ProxyConfig,
    settings: &Settings,
) -> Result<Option<WrittenBootstrap>, PrepareError> {
    if !config.custom_config_file.is_empty() {
        return Ok(None);
    }

    // Metadata discovery needs an Envoy that supports it.
    let wanted = node.id.starts_with("waypoint~") || node.flag("METADATA_DISCOVERY");
    let features = if wanted {
        Features::of_program(Path::new(&config.binary_path)).await
    } else {
        Features::ISTIO
    };

    let for_bootstrap = settings.for_bootstrap(features);
    let input = BootstrapInput {
        node,
        addresses,
        config,
        settings: &for_bootstrap,
    };

    for side in bootstrap::side_files(config) {
        files::write(&side.path, side.content.as_bytes()).map_err(file(&side.path))?;
    }

    let template = template(config, settings);
    let text = match &template {
        None => bootstrap::bootstrap(&input)?.to_string(),
        Some(path) => {
            let text = regular_file::read_text(path.as_ref()).map_err(file(path))?;
            bootstrap::render(&text, &input)?
        }
    };

    let yaml = template.is_some_and(|path| path.ends_with(".yaml") || path.ends_with(".yaml.tmpl"));
    let path = go_path::join(
        &config.config_path,
        if yaml {
            "envoy-rev.yaml"
        } else {
            "envoy-rev.json"
        },
    );

    files::write(&path, text.as_bytes()).map_err(file(&path))?;
    let mut node = bootstrap::node_message(&input);
    if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(SETTINGS_KEY.to_owned(), json!(for_bootstrap));
    }
    Ok(Some(WrittenBootstrap { path, node }))
}

/// The user's own template; `None` for the built-in bootstrap, which also replaces Istio's own
/// template.
fn template(config: &ProxyConfig, settings: &Settings) -> Option<String> {
    let named = [
        &settings.bootstrap_template,
        &config.proxy_bootstrap_template_path,
    ];
    let path = named.into_iter().find(|path| !path.is_empty())?;
    (go_path::join("/", path) != BUILT_IN_TEMPLATE).then(|| path.clone())
}

/// Writes the bootstrap of proxyless gRPC, if configured.
fn write_grpc_bootstrap(
    node: &Node,
    config: &ProxyConfig,
    settings: &Settings,
) -> Result<(), PrepareError> {
    let path = settings.grpc_bootstrap.to_string_lossy().into_owned();
    if path.is_empty() {
        return Ok(());
    }
    let socket = go_path::join(&config.config_path, "XDS");
    let bootstrap = grpc_bootstrap(node, &socket, &settings.output_certs);
    files::write_public(&path, format!("{bootstrap:#}").as_bytes()).map_err(file(&path))
}

/// The bootstrap override as JSON. An invalid override is logged and ignored, as in pilot-agent.
pub(super) fn over(settings: &Settings) -> Option<String> {
    let path = &settings.bootstrap_override;
    if path.is_empty() {
        return None;
    }
    let read = regular_file::read_text(path.as_ref()).map_err(|error| error.to_string());
    let json = read.and_then(|text| {
        override_json(&text, &settings.host_ip).map_err(|error| error.to_string())
    });
    json.inspect_err(|error| tracing::warn!(path, error, "invalid bootstrap override; ignored"))
        .ok()
}
