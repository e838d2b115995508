//! Where workloads run: workloads on the same node share one copy.

use std::sync::Arc;

use super::model::Labels;
use super::networks::NETWORK_LABEL;
use super::workload_labels::WorkloadLocation;
use navarch_api::names::{ClusterId, NetworkId};
use navarch_base::interned::Interned;
use navarch_tables::hash::keyed_hash;

/// Where a workload runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Cluster whose objects declare the workload, such as `Kubernetes`.
    pub cluster: ClusterId,
    /// The network, empty if unknown.
    pub network: NetworkId,
    /// `region/zone/subzone`, as written; empty if unknown.
    pub locality: Arc<str>,
    /// The node, empty if unknown.
    pub node: Arc<str>,
    /// The labels that workloads get from this location.
    pub labels: Labels,
}

impl Location {
    /// The location of a workload with these own labels.
    fn new(place: &WorkloadLocation<'_>, own: &Labels) -> Self {
        Self {
            cluster: place.cluster.clone(),
            network: place.network.clone(),
            locality: Arc::from(place.locality),
            node: Arc::from(place.node),
            labels: place.labels(own),
        }
    }

    /// Whether this is the location of `place`, with the network label if and only if
    /// `adds_network` is set.
    fn is(&self, place: &WorkloadLocation<'_>, adds_network: bool) -> bool {
        self.cluster == *place.cluster
            && self.network == *place.network
            && *self.locality == *place.locality
            && *self.node == *place.node
            && self.labels.contains_key(NETWORK_LABEL) == adds_network
    }
}

/// The locations in use. Clones share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Locations(Interned<Location>);

impl Locations {
    /// The location of a workload with these own labels.
    pub(super) fn of(&self, place: &WorkloadLocation<'_>, own: &Labels) -> Arc<Location> {
        let adds_network = place.adds_network(own);
        let parts = (
            place.cluster.as_str(),
            place.network.as_str(),
            place.locality,
            place.node,
            adds_network,
        );

        self.0.get_or_insert(
            keyed_hash(&parts),
            |known| known.is(place, adds_network),
            || Arc::new(Location::new(place, own)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_of_one_node_share_their_location() {
        let cluster = ClusterId::new("c");
        let network = NetworkId::new("n");
        let locations = Locations::default();
        let place = |node| WorkloadLocation {
            cluster: &cluster,
            locality: "r/z",
            node,
            network: &network,
        };

        let own = Labels::from([(NETWORK_LABEL.into(), "own".into())]);
        let none = Labels::new();
        let first = locations.of(&place("a"), &none);
        assert!(Arc::ptr_eq(&first, &locations.of(&place("a"), &none)));
        assert_eq!(
            first.labels.get(NETWORK_LABEL).map(|name| &**name),
            Some("n")
        );

        let with_own = locations.of(&place("a"), &own);
        assert_eq!(
            (with_own.labels.get(NETWORK_LABEL), &with_own.network),
            (None, &network)
        );
    }
}
