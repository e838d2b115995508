//! Node metadata from environment, downward API, platform and flags, as in pilot-agent.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Addresses, Locality, Node, keys};
use crate::platform::Platform;
use crate::settings::Settings;
use crate::variables::Variables;
use navarch_api::mesh::{AuthenticationPolicy, ProxyConfig};
use navarch_api::proto_json::to_proto_json;

/// The prefix of variables that are metadata.
const PREFIX: &str = "ISTIO_META_";
/// The prefix of variables with metadata as JSON.
const JSON_PREFIX: &str = "ISTIO_METAJSON_";
/// A label that changes with every rollout and does not describe the workload.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The identity of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// `sidecar`, `router`, `waypoint`, …
    pub kind: String,
    /// The pod's addresses.
    pub addresses: Addresses,
    /// The pod's name.
    pub pod: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The DNS suffix of local services; empty is the cluster's default.
    pub domain: String,
}

impl NodeIdentity {
    /// The node's id.
    #[must_use]
    pub fn id(&self) -> String {
        let address = self
            .addresses
            .0
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        format!(
            "{}~{address}~{}.{}~{}",
            self.kind,
            self.pod,
            self.namespace,
            self.full_domain()
        )
    }

    /// The DNS suffix, or its default.
    #[must_use]
    pub fn full_domain(&self) -> String {
        if self.domain.is_empty() {
            format!("{}.svc.cluster.local", self.namespace)
        } else {
            self.domain.clone()
        }
    }
}

/// The sources of the metadata.
#[derive(Clone, Copy, Debug)]
pub struct MetadataInput<'a> {
    /// The identity of the proxy.
    pub identity: &'a NodeIdentity,
    /// The environment.
    pub variables: &'a Variables,
    /// The agent's settings.
    pub settings: &'a Settings,
    /// The effective config.
    pub config: &'a ProxyConfig,
    /// The pod's labels, if mounted.
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// The pod's annotations, if mounted.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// The cloud platform.
    pub platform: &'a Platform,
    /// Whether a socket provides secrets with other names.
    pub credential_socket: bool,
    /// Whether the agent's SDS server provides file secrets only.
    pub serves_only_files: bool,
}

/// A metadata value of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid node metadata {key}: {value}")]
pub struct MetadataError {
    /// The key as written.
    pub key: String,
    /// As JSON, hence a text is in quotes.
    pub value: String,
}

/// Computes a proxy's node.
///
/// # Errors
/// If a metadata value has the wrong type.
pub fn gather(input: &MetadataInput<'_>) -> Result<Node, MetadataError> {
    let mut raw = written(input);
    let mut metadata = keys::read(&raw)?;
    put_own(&mut metadata, input);

    let (labels, static_labels) = labels(input);
    let (locality, labels) = locality(input, labels);
    put_map(&mut metadata, "LABELS", &labels);
    put_map(&mut metadata, "STATIC_LABELS", &static_labels);

    let annotations = input.annotations.cloned().unwrap_or_default();
    put_map(&mut metadata, "ANNOTATIONS", &annotations);

    put_map(&mut metadata, "PLATFORM_METADATA", &input.platform.metadata);
    if input.credential_socket {
        raw.insert("credential".to_owned(), "true".into());
    }

    if input.serves_only_files {
        raw.insert("file-credential".to_owned(), "true".into());
    }

    Ok(Node {
        id: input.identity.id(),
        metadata,
        raw,
        locality,
        labels,
        annotations,
    })
}

/// User-defined metadata: proxy metadata, overridden by variables, overridden by JSON.
fn written(input: &MetadataInput<'_>) -> Map<String, Value> {
    let mut raw = Map::new();
    let of_config = input
        .config
        .proxy_metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));

    for (key, value) in of_config.chain(input.variables.iter()) {
        if let Some(key) = key.strip_prefix(PREFIX) {
            raw.insert(key.to_owned(), value.into());
        }
    }

    for (name, text) in input
        .variables
        .iter()
        .filter(|(name, _)| name.starts_with(JSON_PREFIX))
    {
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(fields) => raw.extend(fields),
            Err(error) => {
                tracing::warn!(name, %error, "the environment variable is not a JSON object")
            }
        }
    }

    let dns = input.variables.text("DNS_PROXY_ADDR");
    if !dns.is_empty() {
        raw.insert("DNS_PROXY_ADDR".to_owned(), dns.into());
    }

    raw
}

/// Adds the metadata that the agent determines itself.
fn put_own(metadata: &mut Map<String, Value>, input: &MetadataInput<'_>) {
    let settings = input.settings;
    let mut put = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    put("INSTANCE_IPS", input.identity.addresses.to_string().into());
    put("PROXY_CONFIG", to_proto_json(input.config));
    put(
        "ENVOY_SKIP_DEPRECATED_LOGS",
        settings.skip_deprecated_logs.to_string().into(),
    );

    for (key, variable) in [
        ("NAME", "POD_NAME"),
        ("NAMESPACE", "POD_NAMESPACE"),
        ("SERVICE_ACCOUNT", "SERVICE_ACCOUNT"),
    ] {
        if let Some(value) = input.variables.get(variable) {
            put(key, value.into());
        }
    }

    let ports = [
        ("ENVOY_STATUS_PORT", settings.envoy_status_port),
        ("ENVOY_PROMETHEUS_PORT", settings.envoy_prometheus_port),
        ("ENVOY_SECURE_METRICS_PORT", settings.secure_metrics_port),
        (
            "ENVOY_SECURE_MERGED_METRICS_PORT",
            settings.secure_merged_metrics_port,
        ),
    ];

    for (key, port) in ports.into_iter().filter(|(_, port)| *port != 0) {
        put(key, port.into());
    }

    if settings.sts_port != 0 {
        put("STS_PORT", settings.sts_port.to_string().into());
    }

    if settings.exit_on_zero_active_connections {
        put("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true".into());
    }

    put(
        "WORKLOAD_IDENTITY_SOCKET_FILE",
        settings.workload_identity_socket.as_str().into(),
    );
    put(
        "OUTLIER_LOG_PATH",
        settings.outlier_log_path.as_str().into(),
    );

    if input.config.control_plane_auth_policy == AuthenticationPolicy::MutualTls {
        put(
            "PILOT_SAN",
            json!([control_plane_name(&input.config.discovery_address)]),
        );
    }

    metadata.retain(|_, value| value.as_str() != Some(""));
    metadata
        .entry("ISTIO_VERSION")
        .or_insert_with(|| settings.istio_version.as_str().into());
    let hbone = metadata
        .get("ENABLE_HBONE")
        .is_some_and(|value| value == "true");
    let discovery = settings.metadata_discovery.unwrap_or(hbone);

    metadata.insert(
        "METADATA_DISCOVERY".to_owned(),
        discovery.to_string().into(),
    );
}

/// The expected name in the control plane's certificate.
pub(crate) fn control_plane_name(discovery_address: &str) -> &str {
    // A control plane on localhost has the certificate name of one in the cluster.
    match discovery_address.split(':').next().unwrap_or_default() {
        "localhost" => "istiod.istio-system.svc",
        host => host,
    }
}

/// All labels, and those that are not the pod's.
fn labels(input: &MetadataInput<'_>) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let given = input
        .variables
        .get("ISTIO_METAJSON_LABELS")
        .and_then(|text| serde_json::from_str(text).ok());
    let mut labels: BTreeMap<String, String> = given.unwrap_or_default();
    let given_any = !labels.is_empty();
    let mut static_labels = labels.clone();

    if !input.platform.kubernetes {
        static_labels.extend(input.platform.labels.clone());
        if given_any {
            labels.clone_from(&static_labels);
        }
    }

    if let Some(of_pod) = input.labels {
        labels.clone_from(&static_labels);
        let lasting = of_pod
            .iter()
            .filter(|(key, _)| key.as_str() != TEMPLATE_HASH);
        labels.extend(lasting.map(|(key, value)| (key.clone(), value.clone())));
    }

    (labels, static_labels)
}

/// The locality: from a label, which is also set in its standard form, or else from the platform
/// and the config.
fn locality(
    input: &MetadataInput<'_>,
    mut labels: BTreeMap<String, String>,
) -> (Locality, BTreeMap<String, String>) {
    let label = labels
        .get("topology.istio.io/locality")
        .or_else(|| labels.get("istio-locality"));
    let Some(label) = label.filter(|label| !label.is_empty()) else {
        return (locality_of_platform(input), labels);
    };
    let label = if label.contains('/') {
        label.clone()
    } else {
        label.replace('.', "/")
    };
    let locality = Locality::parse(&label);
    labels.insert("istio-locality".to_owned(), label);
    (locality, labels)
}

/// The locality of the platform, with the zone of the config if it has none.
fn locality_of_platform(input: &MetadataInput<'_>) -> Locality {
    let mut locality = input.platform.locality.clone();
    if locality.zone.is_empty() {
        locality.zone.clone_from(&input.config.availability_zone);
    }
    locality
}

/// Adds a map, unless it is empty.
fn put_map(metadata: &mut Map<String, Value>, key: &str, map: &BTreeMap<String, String>) {
    if !map.is_empty() {
        metadata.insert(key.to_owned(), json!(map));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The locality of a node with this zone in its config.
    fn locality_with(zone: &str, platform: Locality, labels: &[(&str, &str)]) -> Locality {
        let variables = Variables::default();
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let identity = NodeIdentity {
            kind: "sidecar".to_owned(),
            addresses: Addresses(Vec::new()),
            pod: "web-1".to_owned(),
            namespace: "shop".to_owned(),
            domain: String::new(),
        };
        let config = ProxyConfig {
            availability_zone: zone.to_owned(),
            ..ProxyConfig::istio_defaults()
        };
        let platform = Platform {
            locality: platform,
            ..Platform::default()
        };

        let node = gather(&MetadataInput {
            identity: &identity,
            variables: &variables,
            settings: &Settings::read(&variables),
            config: &config,
            labels: Some(&labels),
            annotations: None,
            platform: &platform,
            credential_socket: false,
            serves_only_files: false,
        });
        node.unwrap().locality
    }

    #[test]
    fn the_zone_of_the_config_counts_where_label_and_platform_have_none() {
        let nowhere = Locality::default();
        let of_cloud = Locality::parse("r/z");

        let configured = locality_with("z1", nowhere.clone(), &[]);
        assert_eq!(configured, Locality::parse("/z1/"));
        assert_eq!(locality_with("z1", of_cloud.clone(), &[]), of_cloud);
        assert_eq!(
            locality_with("z1", Locality::parse("r/"), &[]),
            Locality::parse("r/z1")
        );
        let label = [("istio-locality", "a.b.c")];
        assert_eq!(
            locality_with("z1", nowhere, &label),
            Locality::parse("a/b/c")
        );
    }
}
