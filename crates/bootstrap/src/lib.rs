//! Envoy's bootstrap configuration, in the shape of Istio's own template.
//!
//! The agent generates it at its start, or requests it from the control plane, which generates it
//! from the node of the request and adds the patches of users.
//!
//! A stock Envoy lacks Istio's extensions; [`Settings`] has what is available, and the bootstrap
//! omits the rest.

pub mod addresses;
mod clusters;
mod connections;
pub mod go_path;
mod host_and_port;
mod listeners;
pub mod node;
mod remote;
mod runtime;
mod service_name;
mod settings;
mod stats;
mod template;
mod tracers;

pub use host_and_port::host_and_port;
pub use settings::{SETTINGS_KEY, Settings};
pub use template::{TemplateError, render};

use serde_json::{Map, Value, json};

use addresses::{AddressMode, Addresses};
use navarch_api::mesh::ProxyConfig;
use node::Node;

/// What [`bootstrap`] and [`render`] turn into Envoy's static configuration.
#[derive(Clone, Copy, Debug)]
pub struct BootstrapInput<'a> {
    /// The proxy's identity and metadata.
    pub node: &'a Node,
    /// The pod's addresses.
    pub addresses: &'a Addresses,
    /// The effective proxy config.
    pub config: &'a ProxyConfig,
    /// The agent's settings, and the features of the installed Envoy.
    pub settings: &'a Settings,
}

/// Why the bootstrap cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// An address is not `host:port` or not valid.
    #[error("the address of {name} must be host:port, not {address:?}")]
    Address {
        /// The setting that contains the address.
        name: &'static str,
        /// The invalid address.
        address: String,
    },
    /// Stackdriver is configured without a project.
    #[error("tracing to Stackdriver needs a Google Cloud project, but none was found")]
    NoProject,
    /// The metadata contains invalid JSON for load stats.
    #[error("node metadata LOAD_STATS_CONFIG_JSON is not valid JSON: {0}")]
    LoadStats(String),
}

/// A file that must exist before Envoy starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredFile {
    /// Below `configPath` of the proxy config, such as
    /// `etc/istio/proxy/lightstep_access_token.txt`.
    pub path: String,
    /// Written as it is: the access token for Lightstep.
    pub content: String,
}

/// The addresses that Envoy listens on and connects to, by the pod's address families.
#[derive(Clone, Copy, Debug)]
struct Local {
    /// The loopback address.
    localhost: &'static str,
    /// The wildcard address.
    wildcard: &'static str,
    /// The loopback and wildcard addresses of the second family, with dual stack.
    other: Option<(&'static str, &'static str)>,
    /// Envoy's DNS lookup family.
    lookup: &'static str,
}

impl Local {
    /// Selects the addresses by the pod's families. Without dual stack, pods with both families use
    /// IPv4 only.
    fn new(addresses: &Addresses, dual_stack: bool) -> Self {
        const V4: (&str, &str) = ("127.0.0.1", "0.0.0.0");
        const V6: (&str, &str) = ("::1", "::");
        let (first, other, lookup) = match addresses.mode() {
            AddressMode::V6 => (V6, None, "V6_ONLY"),
            AddressMode::Dual if dual_stack && addresses.first_is_v6() => (V6, Some(V4), "ALL"),
            AddressMode::Dual if dual_stack => (V4, Some(V6), "ALL"),
            AddressMode::V4 | AddressMode::Dual => (V4, None, "V4_ONLY"),
        };
        Self {
            localhost: first.0,
            wildcard: first.1,
            other,
            lookup,
        }
    }
}

/// Whether the proxy receives peer metadata by discovery. State-of-the-world xDS cannot request the
/// metadata.
fn discovers_metadata(input: &BootstrapInput<'_>) -> bool {
    let waypoint = input.node.id.starts_with("waypoint~");
    (waypoint || (input.settings.delta && input.node.flag("METADATA_DISCOVERY")))
        && input.settings.workload_discovery
}

/// Generates the bootstrap configuration.
///
/// # Errors
/// When a setting has no valid form in the bootstrap.
pub fn bootstrap(input: &BootstrapInput<'_>) -> Result<Value, BootstrapError> {
    let local = Local::new(input.addresses, input.settings.dual_stack);
    let mut bootstrap = Map::new();
    let mut put = |key: &str, value: Value| bootstrap.insert(key.to_owned(), value);
    put(
        "application_log_config",
        json!({ "log_format": log_format(input.settings.log_json) }),
    );
    put("node", node_message(input));

    put("layered_runtime", runtime::layers(input));
    put("bootstrap_extensions", extensions(input));
    put("stats_config", stats::config(input));
    put("admin", admin(input, local));
    put("dynamic_resources", dynamic_resources(input));
    let clusters = clusters::all(input, local)?;
    put(
        "static_resources",
        json!({ "clusters": clusters, "listeners": listeners::all(input, local) }),
    );

    put("overload_manager", connections::limit(input));
    put(
        "deferred_stat_options",
        json!({ "enable_deferred_creation_stats": true }),
    );
    bootstrap.extend(stats::intervals(input));
    if let Some(tracing) = tracers::tracer(input)? {
        bootstrap.insert("tracing".to_owned(), tracing);
    }

    if let Some(sinks) = stats::sinks(input)? {
        bootstrap.insert("stats_sinks".to_owned(), sinks);
    }

    if let Some(manager) = cluster_manager(input)? {
        bootstrap.insert("cluster_manager".to_owned(), manager);
    }

    Ok(Value::Object(bootstrap))
}

/// The size in bytes, about, that the user's tags and inclusion rules of stats have in the bootstrap.
/// Rules are repeated for each of the pod's IPs, so that a small node can ask for a large bootstrap:
/// whoever generates it for others limits this first.
#[must_use]
pub fn stats_size(input: &BootstrapInput<'_>) -> usize {
    stats::size(input)
}

/// Files that the bootstrap references and the agent must write.
#[must_use]
pub fn side_files(config: &ProxyConfig) -> Vec<RequiredFile> {
    tracers::token_file(config).into_iter().collect()
}

/// Envoy's log format.
fn log_format(json: bool) -> Value {
    const TIME: &str = "%Y-%m-%dT%T.%fZ";
    if json {
        json!({ "json_format": {
            "time": TIME, "level": "%l", "scope": "envoy %n", "msg": "%j", "caller": "%g:%#", "thread": "%t",
        } })
    } else {
        json!({ "text_format": format!("{TIME}\t%l\tenvoy %n %g:%#\t%v\tthread=%t") })
    }
}

/// The node message, which identifies the proxy to the control plane.
#[must_use]
pub fn node_message(input: &BootstrapInput<'_>) -> Value {
    json!({
        "id": input.node.id,
        "cluster": service_name::service_cluster(input.node, input.config),
        "locality": input.node.locality.to_json(),
        "metadata": input.node.all_metadata(),
    })
}

/// Bootstrap extensions that start with Envoy's server.
fn extensions(input: &BootstrapInput<'_>) -> Value {
    let typed = |name: &str, url: &str, value: Value| {
        json!({ "name": name, "typed_config": {
            "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
            "type_url": format!("type.googleapis.com/{url}"),
            "value": value,
        } })
    };

    let discovery = discovers_metadata(input).then(|| {
        let source = json!({ "config_source": { "ads": {} } });
        typed(
            "metadata_discovery",
            "istio.workload.BootstrapExtension",
            source,
        )
    });

    let internal_listener = typed(
        "envoy.bootstrap.internal_listener",
        "envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
        json!({ "buffer_size_kb": 64 }),
    );

    Value::Array(discovery.into_iter().chain([internal_listener]).collect())
}

/// Envoy's admin API.
fn admin(input: &BootstrapInput<'_>, local: Local) -> Value {
    json!({
        "access_log": [{
            "name": "envoy.access_loggers.file",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": "/dev/null",
            },
        }],
        "profile_path": "/var/lib/istio/data/envoy.prof",
        "address": { "socket_address": { "address": local.localhost, "port_value": input.config.proxy_admin_port } },
    })
}

/// The sources of the dynamic configuration (ADS, LDS and CDS).
fn dynamic_resources(input: &BootstrapInput<'_>) -> Value {
    let delta = input.settings.delta || input.node.id.starts_with("waypoint~");
    let ads = json!({ "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" });
    json!({
        "lds_config": ads.clone(),
        "cds_config": ads,
        "ads_config": {
            "api_type": if delta { "DELTA_GRPC" } else { "GRPC" },
            "set_node_on_first_message_only": true,
            "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc" } }],
        },
    })
}

/// Settings for all clusters; `None` without any settings.
fn cluster_manager(input: &BootstrapInput<'_>) -> Result<Option<Value>, BootstrapError> {
    let mut manager = Map::new();
    if input.node.flag("ENABLE_SELF_DISCOVERY") {
        manager.insert("local_cluster_name".to_owned(), "local_cluster".into());
    }

    let log = input.node.text("OUTLIER_LOG_PATH");
    if !log.is_empty() {
        manager.insert(
            "outlier_detection".to_owned(),
            json!({ "event_log_path": log }),
        );
    }

    let load_stats = input
        .node
        .raw
        .get("LOAD_STATS_CONFIG_JSON")
        .and_then(Value::as_str)
        .unwrap_or_default();

    if !load_stats.is_empty() {
        let config: Value = serde_json::from_str(load_stats)
            .map_err(|error| BootstrapError::LoadStats(error.to_string()))?;
        manager.insert("load_stats_config".to_owned(), config);
    }

    if manager.is_empty() {
        return Ok(None);
    }

    manager.insert("enable_deferred_cluster_creation".to_owned(), true.into());
    Ok(Some(Value::Object(manager)))
}

/// Converts `host:port` to an Envoy address; `$(HOST_IP)` is the node's address.
fn socket_address(
    input: &BootstrapInput<'_>,
    name: &'static str,
    address: &str,
) -> Result<Value, BootstrapError> {
    let fault = || BootstrapError::Address {
        name,
        address: address.to_owned(),
    };
    let (host, port) = host_and_port(address).ok_or_else(fault)?;
    let node = input.settings.host_ip.as_str();
    let host = if host == "$(HOST_IP)" && !node.is_empty() {
        node
    } else {
        host
    };
    Ok(json!({ "address": host, "port_value": port }))
}

#[cfg(test)]
mod tests;
