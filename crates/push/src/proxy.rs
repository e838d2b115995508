//! A connected proxy, from its node message: node id, metadata, locality, supported extensions.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use navarch_api::field_error::FieldError;
use navarch_api::identity::Identity;
use navarch_api::mesh::ProxyConfig;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_api::typed::Typed;
use navarch_base::printable::{Layout, bounded, is_unprintable};
use navarch_registry::model::Labels;

/// The type of a proxy (first part of the node id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyKind {
    /// A sidecar of one workload.
    Sidecar,
    /// `router` in the node id: a gateway, for ingress or egress.
    Router,
    /// An ambient L7 proxy.
    Waypoint,
    /// An ambient L4 node proxy.
    Ztunnel,
    /// `agentgateway` in the node id: a gateway of that name, which is not an Envoy.
    AgentGateway,
}

/// The IP families of a proxy's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamilies {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both, IPv4 first.
    DualV4First,
    /// Both, IPv6 first.
    DualV6First,
}

/// `region/zone/subzone`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality {
    /// The largest part, such as `us-east1`; empty if unknown.
    pub region: Arc<str>,
    /// A part of the region, such as `us-east1-b`; empty if unknown.
    pub zone: Arc<str>,
    /// A part of the zone, such as a rack, which only Istio knows (`topology.istio.io/subzone`);
    /// empty if unknown.
    pub sub_zone: Arc<str>,
}

/// A proxy, immutable for the life of its stream.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The whole node id, `<kind>~<ip>~<pod>.<namespace>~<domain>`.
    pub node_id: Arc<str>,
    /// The first part of the node id.
    pub kind: ProxyKind,
    /// Its addresses, never empty, the first is primary.
    pub ips: Arc<[IpAddr]>,
    /// `<pod>.<namespace>`.
    pub name: Arc<str>,
    /// `NAMESPACE` of the metadata; without it the first label of the DNS domain.
    pub namespace: Namespace,
    /// The DNS domain of the node id.
    pub dns_domain: Arc<str>,
    /// `node.cluster`: the name of the proxy's service, from its bootstrap.
    pub service_cluster: Arc<str>,
    /// Node metadata as JSON object.
    pub metadata: Arc<serde_json::Value>,
    /// `LABELS` of the metadata.
    pub labels: Arc<Labels>,
    /// `node.locality`.
    pub locality: Locality,
    /// Names of the extensions in the node message; `None` if it lists none (then Istio's build is
    /// assumed).
    pub extensions: Option<Arc<BTreeSet<Arc<str>>>>,
    /// Whether its stream is delta xDS.
    pub uses_delta: bool,
    /// The verified identity of the client; `None` on plaintext ports.
    pub identity: Option<Identity>,
    /// Whether its scope was learned when its stream started: its Envoy requests clusters on
    /// demand.
    pub has_learned_scope: bool,
}

/// Why a node is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NodeError {
    /// The id does not have four parts.
    #[error("node id {0:?} must be <type>~<ip>~<name>.<namespace>~<domain>")]
    Shape(String),
    /// The first part is not a known type.
    #[error(
        "node id {0:?} starts with an unknown proxy type; known are sidecar, router, waypoint, ztunnel, agentgateway"
    )]
    Kind(String),
    /// Neither metadata nor id contain a valid address.
    #[error("node {0:?} has no valid IP address in INSTANCE_IPS or its id")]
    NoAddress(String),
    /// A part that operators are shown is too long.
    #[error("{field} of the node has {length} bytes, more than {MAX_SHOWN_BYTES}")]
    TooLong {
        /// `id`, `cluster`, or a key of the metadata.
        field: &'static str,
        /// Its length, in bytes.
        length: usize,
    },
    /// A part that operators are shown has a character that could forge what they see.
    #[error("{field} of the node has the character {character:?}, which is not allowed")]
    Character {
        /// `id`, `cluster`, or a key of the metadata.
        field: &'static str,
        /// The first of them.
        character: char,
    },
    /// `PROXY_CONFIG` of the metadata cannot be read.
    #[error("PROXY_CONFIG of node {node:?} cannot be read: {reason}")]
    ProxyConfig {
        /// The id of the node.
        node: String,
        /// The field and what is wrong with it, cut if it is long.
        reason: String,
    },
}

/// The longest that a part of a node which operators are shown may be: in logs, statuses, metrics
/// and suggested commands. Names of Kubernetes have 253 bytes at most, an id has three of them.
pub const MAX_SHOWN_BYTES: usize = 1024;

/// The longest reason of [`NodeError::ProxyConfig`]: it quotes the client's metadata.
const MAX_REASON_BYTES: usize = 512;

/// The key of the metadata that has the `ProxyConfig` which the proxy was started with.
pub const PROXY_CONFIG: &str = "PROXY_CONFIG";

/// The metadata that operators are shown.
const SHOWN_METADATA: [&str; 12] = [
    "CLUSTER_ID",
    "INSTANCE_NAME",
    "ISTIO_REVISION",
    "ISTIO_VERSION",
    "MESH_ID",
    "NAME",
    "NAMESPACE",
    "NETWORK",
    "NODE_NAME",
    "POD_NAME",
    "SERVICE_ACCOUNT",
    "WORKLOAD_NAME",
];

/// Whether operators can be shown a part of a node.
///
/// # Errors
/// If it is too long, or has a character that could forge a line of a log or move a terminal's
/// cursor.
pub fn check_shown(field: &'static str, text: &str) -> Result<(), NodeError> {
    let length = text.len();
    if length > MAX_SHOWN_BYTES {
        return Err(NodeError::TooLong { field, length });
    }
    match text.chars().find(|character| is_unprintable(*character)) {
        Some(character) => Err(NodeError::Character { field, character }),
        None => Ok(()),
    }
}

/// Reads the value of [`PROXY_CONFIG`], as [`Proxy::meta`] returns it. Unknown fields are ignored:
/// the proxy may be newer.
///
/// # Errors
/// If it is not JSON, or a field has the wrong type.
pub fn read_proxy_config(text: &str) -> Result<ProxyConfig, FieldError> {
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| FieldError::new("", format!("is not JSON: {error}")))?;
    Ok(Typed::from_proto_json(&json)?.value)
}

/// One key of metadata: scalars as text, others as JSON text.
fn meta_text(metadata: &serde_json::Value, key: &str) -> Option<String> {
    match metadata.get(key)? {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(whole_number(number)),
        other @ (serde_json::Value::Bool(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_)) => Some(other.to_string()),
    }
}

/// Whether a node id consists of characters that host names, addresses and separators have. Ids
/// are part of commands that operators are suggested.
fn check_id(id: &str) -> Result<(), NodeError> {
    check_shown("id", id)?;
    let is_allowed = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '~' | ':' | '-')
    };
    match id.chars().find(|character| !is_allowed(*character)) {
        Some(character) => Err(NodeError::Character {
            field: "id",
            character,
        }),
        None => Ok(()),
    }
}

/// Namespace and name of the pod or WorkloadEntry of a proxy whose name in the node id is this.
pub(super) fn workload_name_of(name: &str) -> NamespacedName {
    let (workload, namespace) = name.rsplit_once('.').unwrap_or((name, ""));
    NamespacedName::new(namespace, workload)
}

impl Proxy {
    /// Builds a proxy from its node id and metadata, by the rules of Istio's
    /// `ParseServiceNodeWithMetadata`.
    ///
    /// # Errors
    /// If the id does not have four parts or names an unknown type, if there is no valid address,
    /// or if `PROXY_CONFIG` cannot be read: the mesh's default in its place would silently undo
    /// settings of the proxy.
    pub fn parse(
        node_id: &str,
        metadata: serde_json::Value,
        locality: Locality,
    ) -> Result<Self, NodeError> {
        check_id(node_id)?;
        let parts: Vec<&str> = node_id.split('~').collect();
        let &[kind, ip, name, domain] = parts.as_slice() else {
            return Err(NodeError::Shape(node_id.to_owned()));
        };

        let kind = match kind {
            "sidecar" => ProxyKind::Sidecar,
            "router" => ProxyKind::Router,
            "waypoint" => ProxyKind::Waypoint,
            "ztunnel" => ProxyKind::Ztunnel,
            "agentgateway" => ProxyKind::AgentGateway,
            _ => return Err(NodeError::Kind(node_id.to_owned())),
        };

        let text = |key: &str| {
            metadata
                .get(key)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
        };

        for field in SHOWN_METADATA {
            check_shown(field, text(field))?;
        }

        let config = meta_text(&metadata, PROXY_CONFIG).map(|text| read_proxy_config(&text));
        if let Some(Err(error)) = config {
            return Err(NodeError::ProxyConfig {
                node: node_id.to_owned(),
                reason: bounded(&error.to_string(), MAX_REASON_BYTES, Layout::Lines),
            });
        }

        let listed: Option<Vec<IpAddr>> = match text("INSTANCE_IPS") {
            "" => None,
            list => list.split(',').map(|ip| ip.trim().parse().ok()).collect(),
        };
        let ips = match listed {
            Some(ips) => ips,
            None => vec![
                ip.parse()
                    .map_err(|_| NodeError::NoAddress(node_id.to_owned()))?,
            ],
        };

        let namespace = match text("NAMESPACE") {
            "" => domain.split_once('.').map_or("", |(first, _)| first),
            namespace => namespace,
        };
        let namespace = Namespace::new(namespace);
        let labels = metadata
            .get("LABELS")
            .and_then(serde_json::Value::as_object)
            .map_or_else(Labels::new, |labels| {
                labels
                    .iter()
                    .filter_map(|(key, value)| {
                        Some((Arc::from(key.as_str()), Arc::from(value.as_str()?)))
                    })
                    .collect()
            });

        Ok(Self {
            node_id: Arc::from(node_id),
            kind,
            ips: ips.into(),
            name: Arc::from(name),
            namespace,
            dns_domain: Arc::from(domain),
            service_cluster: Arc::from(""),
            labels: Arc::new(labels),
            metadata: Arc::new(metadata),
            locality,
            extensions: None,
            uses_delta: false,
            identity: None,
            has_learned_scope: false,
        })
    }

    /// One metadata key: scalars as text, others as JSON text.
    #[must_use]
    pub fn meta(&self, key: &str) -> Option<String> {
        meta_text(&self.metadata, key)
    }

    /// Namespace and name of its pod or WorkloadEntry, from the node id.
    #[must_use]
    pub fn workload_name(&self) -> NamespacedName {
        workload_name_of(&self.name)
    }

    /// Whether the proxy can run the extension of this name (as in `node.extensions`).
    #[must_use]
    pub fn supports(&self, extension: &str) -> bool {
        self.extensions
            .as_ref()
            .is_none_or(|extensions| extensions.contains(extension))
    }

    /// The IP families of its addresses.
    #[must_use]
    pub fn families(&self) -> IpFamilies {
        let first_is_v4 = self.ips.first().is_none_or(IpAddr::is_ipv4);
        let mixed = self.ips.iter().any(IpAddr::is_ipv4) && self.ips.iter().any(IpAddr::is_ipv6);
        match (mixed, first_is_v4) {
            (false, true) => IpFamilies::V4,
            (false, false) => IpFamilies::V6,
            (true, true) => IpFamilies::DualV4First,
            (true, false) => IpFamilies::DualV6First,
        }
    }
}

/// Numbers arrive as doubles (`google.protobuf.Value`): `15020.0` is formatted as `15020`.
fn whole_number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(value) if value.fract() == 0.0 && value.abs() < 9e15 => format!("{value:.0}"),
        Some(_) | None => number.to_string(),
    }
}

impl IpFamilies {
    /// Whether it has an IPv4 address.
    #[must_use]
    pub fn has_v4(self) -> bool {
        self != Self::V6
    }

    /// Whether it has an IPv6 address.
    #[must_use]
    pub fn has_v6(self) -> bool {
        self != Self::V4
    }
}

impl Locality {
    /// From `region/zone/subzone`, missing parts empty.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '/').map(Arc::from);
        let mut next = || parts.next().unwrap_or_else(|| Arc::from(""));
        Self {
            region: next(),
            zone: next(),
            sub_zone: next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "sidecar~10.1.2.3~web-1.shop~shop.svc.cluster.local";

    fn with_config(config: Value) -> Result<Proxy, NodeError> {
        Proxy::parse(ID, json!({ PROXY_CONFIG: config }), Locality::default())
    }

    #[test]
    fn ids_have_no_characters_that_a_log_a_terminal_or_a_shell_obeys() {
        let node = |id: &str| Proxy::parse(id, json!({}), Locality::default());
        node(ID).unwrap();

        for character in [
            '\n', '\r', '\u{1b}', '\u{202e}', ';', '$', '`', '\'', '"', ' ', '/', '%',
        ] {
            let error = node(&ID.replace("web-1", &format!("web{character}1"))).unwrap_err();
            assert!(
                matches!(error, NodeError::Character { field: "id", .. }),
                "{character:?}: {error}"
            );
        }
    }

    #[test]
    fn a_proxy_config_is_read_by_protobufs_json_mapping() {
        let config = read_proxy_config(
            r#"{
                "statusPort": 15020.0, "mesh_id": "m", "concurrency": "2", "later": {},
                "tracing": {"sampling": 12.5}
            }"#,
        )
        .unwrap();
        assert_eq!(config.status_port, 15020);
        assert_eq!(config.mesh_id, "m");
        assert_eq!(config.concurrency, Some(2));
        assert_eq!(
            config.tracing.unwrap().sampling.to_bits(),
            12.5_f64.to_bits()
        );
    }

    #[test]
    fn a_node_whose_proxy_config_cannot_be_read_is_rejected_with_the_field() {
        let error = with_config(json!({ "tracing": { "sampling": "much" } })).unwrap_err();
        let text = error.to_string();
        let start = format!("PROXY_CONFIG of node {ID:?} cannot be read: tracing.sampling: ");
        assert!(text.starts_with(&start), "{text}");

        for wrong in [
            json!("{"),
            json!([]),
            json!(true),
            json!({ "interceptionMode": "SOME" }),
        ] {
            assert!(with_config(wrong.clone()).is_err(), "{wrong}");
        }
        for right in [
            json!(null),
            json!({}),
            json!("{}"),
            json!({ "interceptionMode": 1 }),
        ] {
            assert!(with_config(right.clone()).is_ok(), "{right}");
        }
    }

    #[test]
    fn the_reason_of_a_rejected_proxy_config_is_bounded() {
        let error = with_config(json!({ "statusPort": "9".repeat(100_000) })).unwrap_err();
        assert!(error.to_string().len() < 700);
    }
}
