//! The contract between control plane and agent if the agent derives the mesh's metrics from
//! Envoy's access logs.
//!
//! The log's name contains the settings, as JSON after [`PREFIX`]: Envoy sends it once at the start
//! of a stream.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The key of the node metadata with which an agent declares that it accepts access logs, and that
/// its Envoy can send them.
pub const NODE_KEY: &str = "METRICS_FROM_ACCESS_LOGS";
/// The cluster of the agent's own socket in Envoy's bootstrap.
pub const CLUSTER: &str = "xds-grpc";
/// The prefix of the names of such logs.
pub const PREFIX: &str = "istio_metrics ";

/// The tag with an endpoint's `workload;namespace;canonical service;revision;cluster`, followed by
/// `;identity;application;version` and then by `;` and [`exchanged_labels`], if these are known.
pub const WORKLOAD_TAG: &str = "workload";
/// The tag with a cluster's services as JSON.
pub const SERVICES_TAG: &str = "services";
/// The tag with the cluster of a TCP connection. Envoy's own field has it only with an endpoint, which
/// `BlackHoleCluster` lacks.
pub const CLUSTER_TAG: &str = "cluster";
/// The tag with the identity of the server, from its certificate.
pub const PEER_TAG: &str = "peer";
/// The tag with the client's own identity, from its certificate.
pub const OWN_TAG: &str = "own";
/// The tag with the baggage (W3C) that the peer of a tunnel sends, with OpenTelemetry's names.
pub const BAGGAGE_TAG: &str = "baggage";
/// The prefix of the names of tags with values of expressions; a number follows.
pub const VALUE_TAG: &str = "value.";

/// The header with the metadata of the client's workload, as Istio's proxies send it.
pub const PEER_HEADER: &str = "x-envoy-peer-metadata";
/// The header with the client's node id, sent together with the metadata.
pub const PEER_ID_HEADER: &str = "x-envoy-peer-metadata-id";
/// The environment variable of Envoy with the value of [`PEER_HEADER`].
pub const PEER_VARIABLE: &str = "NAVARCH_PEER_METADATA";
/// The same for [`PEER_ID_HEADER`].
pub const PEER_ID_VARIABLE: &str = "NAVARCH_PEER_METADATA_ID";
/// The environment variable of Envoy with the baggage of tunnels that it opens.
pub const BAGGAGE_VARIABLE: &str = "NAVARCH_BAGGAGE";
/// The name of the extension of a workload, found by its address, with [`exchanged_labels`] as
/// `google.protobuf.StringValue`.
pub const LABELS_EXTENSION: &str = "navarch.io/exchanged-labels";
/// The namespace of the dynamic metadata that stores both headers.
pub const PEER_NAMESPACE: &str = "istio.peer";
/// The key of [`PEER_HEADER`] in that namespace.
pub const PEER_KEY: &str = "metadata";
/// The key of [`PEER_ID_HEADER`] in that namespace.
pub const PEER_ID_KEY: &str = "id";

/// The metrics that the agent derives from a log's entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsLog {
    /// The side that the listeners are on.
    pub reporter: Reporter,
    /// Whether an unknown service is named after the request's host.
    #[serde(default)]
    pub host_names_service: bool,
    /// Whether the control plane serves the workloads of peers: the agent may subscribe to
    /// `istio.workload.Workload` by the names `network/address`. Another control plane would close
    /// the proxy's stream after such a request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finds_peers: bool,
    /// The changes by Telemetry objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricChange>,
}

/// The side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reporter {
    /// The client's.
    Source,
    /// The server's.
    Destination,
    /// The waypoint's between them.
    Waypoint,
}

/// An override in a Telemetry, for one of Istio's metrics or for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricChange {
    /// The metric's name without `istio_`; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether the metric is disabled.
    #[serde(default)]
    pub drop: bool,
    /// Labels to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Labels to change or to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, LabelValue>,
    /// Labels to set to an attribute of a peer. Earlier agents ignore them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, PeerAttribute>,
}

/// The new value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelValue {
    /// A fixed value.
    Literal(String),
    /// The value of this tag in the log entry.
    Tag(String),
}

/// An attribute of a peer, which expressions read in the filter state of Istio's own filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAttribute {
    /// The side whose attribute is read.
    pub peer: Peer,
    /// What is read of it.
    pub field: PeerField,
}

/// A side of a request, as Istio's filters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// `upstream_peer`: the server.
    Upstream,
    /// `downstream_peer`: the client.
    Downstream,
}

/// The attributes of a peer that agents know, of those in Istio's filter state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerField {
    /// The workload's name.
    Workload,
    /// The namespace of the workload.
    Namespace,
    /// The id of the Kubernetes cluster that the workload runs in.
    Cluster,
    /// Its canonical service.
    Service,
    /// The canonical revision.
    Revision,
    /// The label `app`, or its qualified form.
    App,
    /// The label `version`, or its qualified form.
    Version,
    /// An exchanged label.
    Label(String),
}

/// The labels of a workload that proxies exchange, as `name=value,...`: those of `names`, a
/// comma-separated list, that the workload has.
#[must_use]
pub fn exchanged_labels<'a>(names: &str, value_of: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut text = String::new();
    for name in names.split(',').collect::<BTreeSet<_>>() {
        let Some(value) = value_of(name).filter(|value| !value.is_empty()) else {
            continue;
        };

        // Labels of Kubernetes contain none of these characters; those of files might.
        if [name, value]
            .iter()
            .any(|part| part.contains([';', ',', '=']))
        {
            continue;
        }

        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }

    text
}

/// The value of a label in a text of [`exchanged_labels`].
#[must_use]
pub fn exchanged_label<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then_some(value)
    })
}

impl MetricsLog {
    /// Returns the log's name.
    #[must_use]
    pub fn to_name(&self) -> String {
        // All keys are strings, so encoding as JSON does not fail.
        format!(
            "{PREFIX}{}",
            serde_json::to_string(self).unwrap_or_default()
        )
    }

    /// Parses a log's name; `None` if the name is not of such a log.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_str(name.strip_prefix(PREFIX)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_name_encodes_its_metrics() {
        let set = [
            ("a", LabelValue::Literal("1".to_owned())),
            ("b", LabelValue::Tag("value.0".to_owned())),
        ];
        let tier = PeerAttribute {
            peer: Peer::Downstream,
            field: PeerField::Label("tier".to_owned()),
        };
        let log = MetricsLog {
            reporter: Reporter::Destination,
            host_names_service: false,
            finds_peers: true,
            metrics: vec![MetricChange {
                name: "requests_total".to_owned(),
                remove: vec!["source_app".to_owned()],
                set: set.map(|(name, value)| (name.to_owned(), value)).into(),
                peers: BTreeMap::from([("tier".to_owned(), tier)]),
                ..MetricChange::default()
            }],
        };

        assert_eq!(MetricsLog::from_name(&log.to_name()), Some(log));
        let early = MetricsLog::from_name("istio_metrics {\"reporter\":\"source\"}").unwrap();
        assert!(
            !early.finds_peers
                && early.to_name()
                    == "istio_metrics {\"reporter\":\"source\",\"hostNamesService\":false}"
        );

        for other in [
            "http_envoy_accesslog",
            "istio_metrics {",
            "istio_metrics {\"reporter\":\"x\"}",
        ] {
            assert_eq!(MetricsLog::from_name(other), None, "{other}");
        }
    }

    #[test]
    fn only_labels_of_the_list_are_exchanged() {
        let labels = BTreeMap::from([
            ("app", "web"),
            ("tier", "gold"),
            ("zone", ""),
            ("note", "a;b"),
        ]);
        let exchanged = |names: &str| exchanged_labels(names, |name| labels.get(name).copied());

        assert_eq!(exchanged(""), "");
        let text = exchanged("tier,note,zone,missing,app,tier");
        assert_eq!(text, "app=web,tier=gold");
        assert_eq!(exchanged_label(&text, "tier"), Some("gold"));
        assert_eq!(exchanged_label(&text, "ti"), None);
        assert_eq!(exchanged_label("", ""), None);
    }
}
