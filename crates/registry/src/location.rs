//! Where workloads run: one copy for all that run on one node.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::model::Labels;
use super::networks::NETWORK_LABEL;
use super::workload_labels::WorkloadLocation;
use navarch_api::hash::{KeyedMap, keyed_hash};
use navarch_api::names::{ClusterId, NetworkId};

/// Where a workload runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The cluster.
    pub cluster: ClusterId,
    /// The network, empty if unknown.
    pub network: NetworkId,
    /// `region/zone/subzone`, as written; empty if unknown.
    pub locality: Arc<str>,
    /// The node, empty if unknown.
    pub node: Arc<str>,
    /// The labels that workloads have because they run here.
    pub labels: Labels,
}

impl Location {
    /// That of a workload with these labels of its own.
    fn new(place: &WorkloadLocation<'_>, own: &Labels) -> Self {
        Self {
            cluster: place.cluster.clone(),
            network: place.network.clone(),
            locality: Arc::from(place.locality),
            node: Arc::from(place.node),
            labels: place.labels(own),
        }
    }

    /// Whether it is of this place, and adds the network to the labels where `adds_network` says so.
    fn is(&self, place: &WorkloadLocation<'_>, adds_network: bool) -> bool {
        self.cluster == *place.cluster
            && self.network == *place.network
            && *self.locality == *place.locality
            && *self.node == *place.node
            && self.labels.contains_key(NETWORK_LABEL) == adds_network
    }
}

/// The locations in use. Clones have the same.
#[derive(Clone, Default)]
pub(super) struct Locations(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// By the hash of what they are made of. Of two with one hash the first is kept.
    locations: KeyedMap<u64, Arc<Location>>,
    /// How many may be kept until those that nothing uses are dropped.
    limit: usize,
}

/// How many locations are kept before those that nothing uses are dropped for the first time.
const FIRST_LIMIT: usize = 64;

impl fmt::Debug for Locations {
    /// Which are known says nothing of the registry: it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locations")
    }
}

impl PartialEq for Locations {
    /// They save memory and have no meaning: all are alike.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Locations {
    /// The location of a workload with these labels of its own.
    pub(super) fn of(&self, place: &WorkloadLocation<'_>, own: &Labels) -> Arc<Location> {
        let adds_network = place.adds_network(own);
        let parts = (place.cluster.as_str(), place.network.as_str(), place.locality, place.node, adds_network);
        let hash = keyed_hash(&parts);
        let mut known = self.0.lock();
        if let Some(found) = known.locations.get(&hash).filter(|found| found.is(place, adds_network)) {
            return found.clone();
        }
        if known.locations.len() >= known.limit {
            known.locations.retain(|_, location| Arc::strong_count(location) > 1);
            known.limit = FIRST_LIMIT.max(2 * known.locations.len());
        }
        let new = Arc::new(Location::new(place, own));
        known.locations.entry(hash).or_insert_with(|| new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_of_one_node_share_their_location_and_nodes_that_are_gone_are_forgotten() {
        let (cluster, network, locations) = (ClusterId::new("c"), NetworkId::new("n"), Locations::default());
        let place = |node| WorkloadLocation { cluster: &cluster, locality: "r/z", node, network: &network };
        let (own, none) = (Labels::from([(NETWORK_LABEL.into(), "own".into())]), Labels::new());
        let first = locations.of(&place("a"), &none);
        assert!(Arc::ptr_eq(&first, &locations.of(&place("a"), &none)));
        assert_eq!(first.labels.get(NETWORK_LABEL).map(|name| &**name), Some("n"));
        let with_own = locations.of(&place("a"), &own);
        assert_eq!((with_own.labels.get(NETWORK_LABEL), &with_own.network), (None, &network));
        for number in 0..10 * FIRST_LIMIT {
            let node = number.to_string();
            let gone = locations.of(&WorkloadLocation { node: &node, ..place("a") }, &none);
            assert_eq!(*gone.node, *node);
        }
        assert!(locations.0.lock().locations.len() <= FIRST_LIMIT);
        assert!(Arc::ptr_eq(&first, &locations.of(&place("a"), &none)));
    }
}
