//! Kubeconfigs that are not used while another one names the same cluster.

use std::collections::BTreeMap;

use navarch_api::names::ClusterId;

/// A kubeconfig with its origin.
pub(super) struct PlacedKubeconfig {
    /// The Secret or file that contains it.
    pub(super) place: String,
    pub(super) content: Vec<u8>,
}

/// The kubeconfigs that are not used, by cluster and by Secret or file.
#[derive(Default)]
pub(super) struct WaitingKubeconfigs(BTreeMap<ClusterId, BTreeMap<String, Vec<u8>>>);

impl WaitingKubeconfigs {
    pub(super) fn insert(&mut self, cluster: ClusterId, waiting: PlacedKubeconfig) {
        let of_cluster = self.0.entry(cluster).or_default();
        of_cluster.insert(waiting.place, waiting.content);
    }

    /// Removes all kubeconfigs of a Secret or file.
    pub(super) fn remove(&mut self, place: &str) {
        self.0.retain(|_, of_cluster| {
            of_cluster.remove(place);
            !of_cluster.is_empty()
        });
    }

    /// Takes the kubeconfig that is to be used next for a cluster: the first by its Secret or file,
    /// as after a restart.
    pub(super) fn take(&mut self, cluster: &ClusterId) -> Option<PlacedKubeconfig> {
        let of_cluster = self.0.get_mut(cluster)?;
        let first = of_cluster.pop_first();
        if of_cluster.is_empty() {
            self.0.remove(cluster);
        }
        first.map(|(place, content)| PlacedKubeconfig { place, content })
    }
}
