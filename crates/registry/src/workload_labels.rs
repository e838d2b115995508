//! The labels of a workload as configuration sees them: its own and those of the place where it runs.

use super::locality::{REGION_LABELS, SUBZONE_LABEL, ZONE_LABELS, split_locality};
use super::model::Labels;
use super::networks::NETWORK_LABEL;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_api::shared_texts::SharedTexts;

/// The label that names the cluster.
const CLUSTER_LABEL: &str = "topology.istio.io/cluster";
/// The label that names the node.
pub const NODE_LABEL: &str = "kubernetes.io/hostname";

/// Whether a label may be set or overridden by the place where a workload runs.
#[must_use]
pub(super) fn is_of_place(label: &str) -> bool {
    let places = [SUBZONE_LABEL, CLUSTER_LABEL, NODE_LABEL, NETWORK_LABEL];
    places.contains(&label) || REGION_LABELS.contains(&label) || ZONE_LABELS.contains(&label)
}

/// Where a workload runs.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadLocation<'a> {
    /// The cluster.
    pub cluster: &'a ClusterId,
    /// `region/zone/subzone`, empty if unknown.
    pub locality: &'a str,
    /// The node, empty if unknown.
    pub node: &'a str,
    /// The network, empty if unknown.
    pub network: &'a NetworkId,
}

impl WorkloadLocation<'_> {
    /// The labels of a workload that runs here. A network that the workload names itself stays.
    #[must_use]
    pub fn label(&self, own: &Labels) -> Labels {
        let mut labels = own.clone();
        labels.extend(self.entries(own).map(|(label, value)| (label.into(), value.into())));
        labels
    }

    /// The same as [`WorkloadLocation::label`], with texts that others have.
    #[must_use]
    pub(super) fn label_among(&self, own: &Labels, texts: &mut SharedTexts) -> Labels {
        let own_entries = own.iter().map(|(label, value)| (&**label, &**value));
        texts.map(own_entries.chain(self.entries(own)).collect())
    }

    /// The labels that the place adds to these.
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
        let has_network = own.get(NETWORK_LABEL).is_some_and(|network| !network.is_empty());
        let network = (NETWORK_LABEL, self.network.as_str());
        let network = Some(network).filter(|(_, name)| !name.is_empty() && !has_network);
        here.chain(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_added_and_an_own_network_stays() {
        let (cluster, network) = (ClusterId::new("c"), NetworkId::new("n"));
        let place = WorkloadLocation { cluster: &cluster, locality: "r/z", node: "node-1", network: &network };
        let own = Labels::from([("app".into(), "web".into()), (NETWORK_LABEL.into(), "own".into())]);
        assert_eq!(place.label(&own), place.label_among(&own, &mut SharedTexts::default()));
        let labels: Vec<_> = place.label(&own).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
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
