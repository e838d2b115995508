//! The labels of a workload that configuration selects by: its own and those of its location.

use std::sync::Arc;

use super::locality::{REGION_LABELS, SUBZONE_LABEL, ZONE_LABELS, split_locality};
use super::model::Labels;
use super::networks::NETWORK_LABEL;
use navarch_api::names::{ClusterId, NetworkId};

/// The label that names the cluster.
const CLUSTER_LABEL: &str = "topology.istio.io/cluster";
/// The label that names the node.
pub const NODE_LABEL: &str = "kubernetes.io/hostname";

/// Whether a label may be set or overridden by the location of a workload.
#[must_use]
pub(super) fn is_of_place(label: &str) -> bool {
    let places = [SUBZONE_LABEL, CLUSTER_LABEL, NODE_LABEL, NETWORK_LABEL];
    places.contains(&label) || REGION_LABELS.contains(&label) || ZONE_LABELS.contains(&label)
}

/// Labels of a workload, overridden by those of its location. They are merged on read, because a
/// merged map of each workload would take 200 bytes.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadLabels<'a> {
    own: &'a Labels,
    location: Option<&'a Labels>,
}

/// Where a workload runs.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadLocation<'a> {
    /// Cluster whose objects declare the workload, such as `Kubernetes`.
    pub cluster: &'a ClusterId,
    /// `region/zone/subzone`, empty if unknown.
    pub locality: &'a str,
    /// The node, empty if unknown.
    pub node: &'a str,
    /// The network, empty if unknown.
    pub network: &'a NetworkId,
}

impl<'a> WorkloadLabels<'a> {
    pub(super) fn new(own: &'a Labels, location: &'a Labels) -> Self {
        Self {
            own,
            location: Some(location),
        }
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a Arc<str>> {
        self.location
            .and_then(|labels| labels.get(key))
            .or_else(|| self.own.get(key))
    }

    /// Whether a label is set.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All labels, those of the location first; each key once.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)> + use<'a> {
        let location = self.location;
        let is_replaced = move |key: &str| location.is_some_and(|labels| labels.contains_key(key));
        let own = self.own.iter().filter(move |(key, _)| !is_replaced(key));
        location.into_iter().flatten().chain(own)
    }

    /// An upper bound of the number of labels.
    pub(super) fn max_len(&self) -> usize {
        self.own.len() + self.location.map_or(0, Labels::len)
    }

    /// Copies the labels to a map.
    #[must_use]
    pub fn to_map(self) -> Labels {
        self.iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

impl<'a> From<&'a Labels> for WorkloadLabels<'a> {
    fn from(own: &'a Labels) -> Self {
        Self {
            own,
            location: None,
        }
    }
}

impl WorkloadLocation<'_> {
    /// The labels of a workload at this location. A network that the workload sets itself is kept.
    #[must_use]
    pub fn label(&self, own: &Labels) -> Labels {
        let mut labels = own.clone();
        labels.extend(
            self.entries(own)
                .map(|(label, value)| (label.into(), value.into())),
        );
        labels
    }

    /// The labels that the location adds to `own`.
    pub(super) fn labels(&self, own: &Labels) -> Labels {
        self.entries(own)
            .map(|(label, value)| (label.into(), value.into()))
            .collect()
    }

    /// Whether the location adds the network label to `own`.
    pub(super) fn adds_network(&self, own: &Labels) -> bool {
        let has_network = own
            .get(NETWORK_LABEL)
            .is_some_and(|network| !network.is_empty());
        !self.network.is_empty() && !has_network
    }

    /// The labels that the location adds to `own`, as pairs.
    fn entries<'a>(&'a self, own: &Labels) -> impl Iterator<Item = (&'a str, &'a str)> {
        let [region, zone, subzone] = split_locality(self.locality);
        let [region_label, _] = REGION_LABELS;
        let [zone_label, _] = ZONE_LABELS;
        let here = [
            (region_label, region),
            (zone_label, zone),
            (SUBZONE_LABEL, subzone),
            (CLUSTER_LABEL, self.cluster.as_str()),
            (NODE_LABEL, self.node),
        ];
        let here = here.into_iter().filter(|(_, value)| !value.is_empty());
        here.chain(
            self.adds_network(own)
                .then_some((NETWORK_LABEL, self.network.as_str())),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_locality_is_added_and_a_set_network_kept() {
        let cluster = ClusterId::new("c");
        let network = NetworkId::new("n");
        let place = WorkloadLocation {
            cluster: &cluster,
            locality: "r/z",
            node: "node-1",
            network: &network,
        };

        let own = Labels::from([
            ("app".into(), "web".into()),
            (NETWORK_LABEL.into(), "own".into()),
        ]);
        let here = place.labels(&own);
        let merged = WorkloadLabels::new(&own, &here);
        assert_eq!(merged.to_map(), place.label(&own));
        assert!(
            merged
                .iter()
                .all(|(key, value)| merged.get(key) == Some(value))
                && merged.iter().count() == 6
        );

        assert_eq!(
            (
                merged.get("app").map(|app| &**app),
                merged.contains_key("x")
            ),
            (Some("web"), false)
        );

        let labels: Vec<_> = place
            .label(&own)
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();

        assert_eq!(
            labels,
            [
                "app=web",
                "kubernetes.io/hostname=node-1",
                "topology.istio.io/cluster=c",
                "topology.istio.io/network=own",
                "topology.kubernetes.io/region=r",
                "topology.kubernetes.io/zone=z",
            ]
        );
    }
}
