//! Workloads as metrics identify them: this one, and its peers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use navarch_base::metrics_log::PEER_KEY;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::node::Node;

/// Maximum number of cached headers.
const MAX_PEERS: usize = 1024;
/// Maximum size of a header in bytes.
const MAX_HEADER: usize = 8 << 10;
/// Padding is optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Labels for the canonical name of a workload's service, and for its revision; the first that is
/// set applies.
const CANONICAL_NAMES: [&str; 3] = [
    "service.istio.io/canonical-name",
    "app.kubernetes.io/name",
    "app",
];
const CANONICAL_REVISIONS: [&str; 3] = [
    "service.istio.io/canonical-revision",
    "app.kubernetes.io/version",
    "version",
];

/// Labels for a workload's application, and for its version, as other proxies see them; the first
/// that is set applies.
const APPS: [&str; 2] = ["app.kubernetes.io/name", "app"];
const VERSIONS: [&str; 2] = ["app.kubernetes.io/version", "version"];

/// A workload; unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// As `source_workload` in `istio.stats`.
    pub name: String,
    /// As `source_workload_namespace`.
    pub namespace: String,
    /// As `source_canonical_service`.
    pub canonical_name: String,
    /// As `source_canonical_revision`.
    pub canonical_revision: String,
    /// The label `app`.
    pub app: String,
    /// The label `version`.
    pub version: String,
    /// As `source_cluster`.
    pub cluster: String,
}

/// Decoded headers, cached because they repeat.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<Box<[u8]>, Arc<Workload>>);

impl Workload {
    /// The workload of a node's metadata and labels.
    #[must_use]
    pub fn of_node(node: &Node) -> Self {
        let label = |names: &[&str]| first_label(node, names);
        let name = node.text("WORKLOAD_NAME").to_owned();
        let canonical = Some(label(&CANONICAL_NAMES)).filter(|label| !label.is_empty());
        Self {
            namespace: node.text("NAMESPACE").to_owned(),
            canonical_name: canonical.unwrap_or_else(|| name.clone()),
            canonical_revision: label(&CANONICAL_REVISIONS),
            app: label(&["app"]),
            version: label(&["version"]),
            cluster: node.text("CLUSTER_ID").to_owned(),
            name,
        }
    }

    /// The workload of a node as other proxies see it. Istio's filter reads its own application
    /// from the plain labels only, and that of peers from the qualified labels, if set.
    #[must_use]
    pub fn as_seen_by_peers(node: &Node) -> Self {
        Self {
            app: first_label(node, &APPS),
            version: first_label(node, &VERSIONS),
            ..Self::of_node(node)
        }
    }

    /// The header for metadata exchange between proxies: a `google.protobuf.Struct` in Base64.
    #[must_use]
    pub fn header(&self) -> String {
        let texts = |fields: &[(&str, &String)]| -> BTreeMap<String, Value> {
            let known = fields.iter().filter(|(_, value)| !value.is_empty());
            known
                .map(|(key, value)| {
                    (
                        (*key).to_owned(),
                        Value {
                            kind: Some(Kind::StringValue((*value).clone())),
                        },
                    )
                })
                .collect()
        };

        let labels = texts(&[
            ("service.istio.io/canonical-name", &self.canonical_name),
            (
                "service.istio.io/canonical-revision",
                &self.canonical_revision,
            ),
            ("app", &self.app),
            ("version", &self.version),
        ]);

        let mut fields = texts(&[
            ("NAMESPACE", &self.namespace),
            ("WORKLOAD_NAME", &self.name),
            ("CLUSTER_ID", &self.cluster),
        ]);

        fields.insert(
            "LABELS".to_owned(),
            Value {
                kind: Some(Kind::StructValue(Struct { fields: labels })),
            },
        );

        BASE64.encode(Struct { fields }.encode_to_vec())
    }

    /// Decodes such a header; an invalid one is an unknown workload.
    fn from_header(header: &str) -> Self {
        let bytes = Some(header)
            .filter(|header| header.len() <= MAX_HEADER)
            .and_then(|header| BASE64.decode(header).ok());
        let Some(Struct { fields }) = bytes.and_then(|bytes| Struct::decode(bytes.as_slice()).ok())
        else {
            return Self::default();
        };

        let none = BTreeMap::new();
        let labels = match fields.get("LABELS").and_then(|labels| labels.kind.as_ref()) {
            Some(Kind::StructValue(labels)) => &labels.fields,
            _ => &none,
        };
        Self {
            name: text(&fields, &["WORKLOAD_NAME"]),
            namespace: text(&fields, &["NAMESPACE"]),
            canonical_name: text(labels, &CANONICAL_NAMES[..1]),
            canonical_revision: text(labels, &CANONICAL_REVISIONS[..1]),
            app: text(labels, &APPS),
            version: text(labels, &VERSIONS),
            cluster: text(&fields, &["CLUSTER_ID"]),
        }
    }

    /// The baggage header of tunnels, with OpenTelemetry's names, as ztunnel writes it.
    #[must_use]
    pub fn baggage(&self) -> String {
        let members = [
            ("k8s.cluster.name", &self.cluster),
            ("k8s.namespace.name", &self.namespace),
            ("k8s.deployment.name", &self.name),
            ("service.name", &self.canonical_name),
            ("service.version", &self.canonical_revision),
            ("app.name", &self.app),
            ("app.version", &self.version),
        ];
        let known = members.into_iter().filter(|(_, value)| !value.is_empty());
        known
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Parses such baggage. If only one of service and application is set, it is used for both.
    pub(super) fn from_baggage(baggage: &str) -> Self {
        let mut read = Self::default();
        for (key, value) in baggage
            .split(',')
            .filter_map(|member| member.split_once('='))
        {
            let field = match key.trim() {
                "k8s.cluster.name" => &mut read.cluster,
                "k8s.namespace.name" => &mut read.namespace,
                "k8s.deployment.name" | "k8s.pod.name" | "k8s.job.name" | "k8s.cronjob.name" => {
                    &mut read.name
                }
                "service.name" => &mut read.canonical_name,
                "service.version" => &mut read.canonical_revision,
                "app.name" => &mut read.app,
                "app.version" => &mut read.version,
                _ => continue,
            };
            value.trim().clone_into(field);
        }

        let alike = |one: &mut String, other: &mut String| match (one.is_empty(), other.is_empty())
        {
            (true, false) => one.clone_from(other),
            (false, true) => other.clone_from(one),
            (true, true) | (false, false) => {}
        };
        alike(&mut read.canonical_name, &mut read.app);
        alike(&mut read.canonical_revision, &mut read.version);

        read
    }

    /// Parses endpoint metadata: `workload;namespace;canonical name;revision;cluster`, followed by
    /// `identity;app;version` where Istio's filter has these, too, and by exchanged labels.
    pub(super) fn from_endpoint(joined: &str) -> Self {
        let mut parts = joined.split(';').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let [
            name,
            namespace,
            canonical_name,
            canonical_revision,
            cluster,
            _identity,
            app,
            version,
        ] = std::array::from_fn(|_| next());

        Self {
            name,
            namespace,
            canonical_name,
            canonical_revision,
            app,
            version,
            cluster,
        }
    }
}

/// The identity in the metadata of an endpoint behind a tunnel, in the format of
/// [`Workload::from_endpoint`].
pub(super) fn identity_of_endpoint(joined: &str) -> &str {
    joined.split(';').nth(5).unwrap_or_default()
}

/// The exchanged labels in the same metadata, as `name=value,...`.
pub(super) fn labels_of_endpoint(joined: &str) -> &str {
    joined.split(';').nth(8).unwrap_or_default()
}

impl Peers {
    /// The workload of headers as stored by Envoy: a `google.protobuf.Struct`.
    pub(super) fn read(&mut self, kept: &[u8]) -> Arc<Workload> {
        if let Some(known) = self.0.get(kept) {
            return known.clone();
        }
        if self.0.len() >= MAX_PEERS {
            self.0.clear();
        }
        let fields = Struct::decode(kept)
            .map(|kept| kept.fields)
            .unwrap_or_default();
        let read = Arc::new(Workload::from_header(&text(&fields, &[PEER_KEY])));
        if kept.len() <= MAX_HEADER * 2 {
            self.0.insert(kept.into(), read.clone());
        }
        read
    }
}

/// The value of the first label that a node has.
fn first_label(node: &Node, names: &[&str]) -> String {
    names
        .iter()
        .find_map(|name| node.labels.get(*name))
        .cloned()
        .unwrap_or_default()
}

/// The text of the first field that is set.
fn text(fields: &BTreeMap<String, Value>, keys: &[&str]) -> String {
    keys.iter()
        .find_map(|key| match &fields.get(*key)?.kind {
            Some(Kind::StringValue(text)) => Some(text.clone()),
            _ => None,
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_metadata_header_identifies_its_sender() {
        let workload = Workload {
            name: "web-v1".to_owned(),
            namespace: "shop".to_owned(),
            canonical_name: "web".to_owned(),
            canonical_revision: "v1".to_owned(),
            app: "web".to_owned(),
            version: "v1".to_owned(),
            cluster: "east".to_owned(),
        };

        let mut peers = Peers::default();
        let kept = |header: &str| {
            let value = Value {
                kind: Some(Kind::StringValue(header.to_owned())),
            };
            Struct {
                fields: BTreeMap::from([(PEER_KEY.to_owned(), value)]),
            }
            .encode_to_vec()
        };

        assert_eq!(*peers.read(&kept(&workload.header())), workload);
        assert_eq!(
            *peers.read(&kept(workload.header().trim_end_matches('='))),
            workload
        );

        for nonsense in ["", "%", "AAAA", &"A".repeat(MAX_HEADER + 4)] {
            assert_eq!(
                *peers.read(&kept(nonsense)),
                Workload::default(),
                "{nonsense}"
            );
        }

        assert_eq!(*peers.read(&[0xff]), Workload::default());
        assert_eq!(Workload::from_baggage(&workload.baggage()), workload);
        let short =
            Workload::from_baggage("k8s.pod.name=web-1, service.name=web,x,service.version=v1,y=z");
        let names = [
            &short.name,
            &short.app,
            &short.version,
            &short.canonical_revision,
            &short.namespace,
        ];

        assert_eq!(names, ["web-1", "web", "v1", "v1", ""]);
        assert_eq!(Workload::from_baggage("-"), Workload::default());
        let endpoint = Workload {
            app: String::new(),
            version: String::new(),
            ..workload
        };
        assert_eq!(Workload::from_endpoint("web-v1;shop;web;v1;east"), endpoint);

        assert_eq!(
            Workload::from_endpoint("web-v1;shop;web;v1;east;spiffe://a"),
            endpoint
        );
        let endpoint = Workload {
            app: "w".to_owned(),
            version: "2".to_owned(),
            ..endpoint
        };

        assert_eq!(
            Workload::from_endpoint("web-v1;shop;web;v1;east;;w;2"),
            endpoint
        );
        assert_eq!(
            identity_of_endpoint("web-v1;shop;web;v1;east;spiffe://a"),
            "spiffe://a"
        );

        assert_eq!(identity_of_endpoint("web-v1;shop;web;v1;east"), "");
    }

    #[test]
    fn qualified_labels_take_precedence_for_the_application_name() {
        let labels = |pairs: &[(&str, &str)]| {
            let labels = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            let node = Node {
                labels,
                ..Node::default()
            };
            [Workload::of_node(&node), Workload::as_seen_by_peers(&node)]
                .map(|workload| (workload.app, workload.version))
        };

        let texts = |app: &str, version: &str| (app.to_owned(), version.to_owned());
        assert_eq!(
            labels(&[("app", "a"), ("version", "1")]),
            [texts("a", "1"), texts("a", "1")]
        );
        let qualified = [
            ("app", "a"),
            ("app.kubernetes.io/name", "b"),
            ("app.kubernetes.io/version", "2"),
        ];
        assert_eq!(labels(&qualified), [texts("a", ""), texts("b", "2")]);
    }

    #[test]
    fn the_cache_of_peer_headers_is_bounded() {
        let mut peers = Peers::default();
        for number in 0..=MAX_PEERS {
            peers.read(number.to_string().as_bytes());
        }
        assert_eq!(peers.0.len(), 1);
    }
}
