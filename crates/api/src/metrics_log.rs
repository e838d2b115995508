//! What control plane and agent agree on where the agent makes the mesh's metrics out of Envoy's access logs.
//!
//! The log's name carries what to count, as JSON behind [`PREFIX`]: Envoy sends it once at the start of a stream.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The node metadata by which an agent says that it takes access logs, and that its Envoy can write them.
pub const NODE_KEY: &str = "METRICS_FROM_ACCESS_LOGS";
/// The cluster of the agent's own socket in Envoy's bootstrap.
pub const CLUSTER: &str = "xds-grpc";
/// How the names of such logs begin.
pub const PREFIX: &str = "istio_metrics ";

/// The tag with an endpoint's `workload;namespace;canonical service;revision;cluster`.
pub const WORKLOAD_TAG: &str = "workload";
/// The tag with a cluster's services as JSON.
pub const SERVICES_TAG: &str = "services";
/// The tag with the identity of the server, as its certificate has it.
pub const PEER_TAG: &str = "peer";
/// The tag with the client's own identity, as its certificate has it.
pub const OWN_TAG: &str = "own";
/// The tag with what the peer of a tunnel says of itself: W3C's baggage, with OpenTelemetry's names.
pub const BAGGAGE_TAG: &str = "baggage";
/// How the names of tags with values of expressions begin; a number follows.
pub const VALUE_TAG: &str = "value.";

/// The header in which a client's proxy says who the client is, as Istio's proxies do.
pub const PEER_HEADER: &str = "x-envoy-peer-metadata";
/// The header with the client's node, which goes with it.
pub const PEER_ID_HEADER: &str = "x-envoy-peer-metadata-id";
/// The variable of Envoy's environment with what [`PEER_HEADER`] is to say.
pub const PEER_VARIABLE: &str = "NAVARCH_PEER_METADATA";
/// The same for [`PEER_ID_HEADER`].
pub const PEER_ID_VARIABLE: &str = "NAVARCH_PEER_METADATA_ID";
/// The variable of Envoy's environment with the baggage of tunnels that it begins.
pub const BAGGAGE_VARIABLE: &str = "NAVARCH_BAGGAGE";
/// The dynamic metadata in which both headers are kept.
pub const PEER_NAMESPACE: &str = "istio.peer";
/// The key of [`PEER_HEADER`] therein.
pub const PEER_KEY: &str = "metadata";
/// The key of [`PEER_ID_HEADER`] therein.
pub const PEER_ID_KEY: &str = "id";

/// What the agent is to count of a log's entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsLog {
    /// The side that the listeners are on.
    pub reporter: Reporter,
    /// Whether a service that nobody knows is called by the request's host.
    #[serde(default)]
    pub host_names_service: bool,
    /// Whether the control plane tells who a peer is: the agent may subscribe to `istio.workload.Workload` by the names
    /// `network/address`. An agent that asked another control plane would have its proxy's stream ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finds_peers: bool,
    /// What a Telemetry changes.
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

/// A change to a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricChange {
    /// Its name without `istio_`; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether it is not counted.
    #[serde(default)]
    pub drop: bool,
    /// Labels that it does without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// Labels with other values, and new ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, LabelValue>,
}

/// What a label is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelValue {
    /// This.
    Literal(String),
    /// What entries have under this tag.
    Tag(String),
}

impl MetricsLog {
    /// The log's name.
    #[must_use]
    pub fn to_name(&self) -> String {
        // Maps with keys of text, and texts: there is nothing that JSON lacks.
        format!("{PREFIX}{}", serde_json::to_string(self).unwrap_or_default())
    }

    /// Reads a log's name; `None` if it is no such log's.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_str(name.strip_prefix(PREFIX)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_counted() {
        let set = [("a", LabelValue::Literal("1".to_owned())), ("b", LabelValue::Tag("value.0".to_owned()))];
        let log = MetricsLog {
            reporter: Reporter::Destination,
            host_names_service: false,
            finds_peers: true,
            metrics: vec![MetricChange {
                name: "requests_total".to_owned(),
                remove: vec!["source_app".to_owned()],
                set: set.map(|(name, value)| (name.to_owned(), value)).into(),
                ..MetricChange::default()
            }],
        };
        assert_eq!(MetricsLog::from_name(&log.to_name()), Some(log));
        let early = MetricsLog::from_name("istio_metrics {\"reporter\":\"source\"}").unwrap();
        assert!(
            !early.finds_peers
                && early.to_name() == "istio_metrics {\"reporter\":\"source\",\"hostNamesService\":false}"
        );
        for other in ["http_envoy_accesslog", "istio_metrics {", "istio_metrics {\"reporter\":\"x\"}"] {
            assert_eq!(MetricsLog::from_name(other), None, "{other}");
        }
    }
}
