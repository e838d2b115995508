//! The remote clusters with their sync status, for debug pages and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use navarch_api::names::ClusterId;

/// The sync status of a remote cluster, by istiod's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStatus {
    /// All initial objects were read.
    Synced,
    /// It is being read.
    Syncing,
    /// The timeout has passed, and the control plane continues without it.
    Timeout,
}

impl SyncStatus {
    /// All statuses.
    pub const ALL: [Self; 3] = [Self::Synced, Self::Syncing, Self::Timeout];

    /// The word in istiod's JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Syncing => "syncing",
            Self::Timeout => "timeout",
        }
    }
}

/// A remote cluster that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCluster {
    /// The name of the cluster.
    pub id: ClusterId,
    /// The Secret or file of its kubeconfig.
    pub place: String,
    /// Its sync status.
    pub status: SyncStatus,
}

/// The remote clusters that are read. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ManagedClusters(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    clusters: BTreeMap<ClusterId, (String, SyncStatus)>,
    /// Whether all kubeconfigs were listed, or there is no source of them.
    are_listed: bool,
    /// The Secrets with a kubeconfig that cannot be used: their clusters are not read.
    unusable: BTreeSet<String>,
}

impl ManagedClusters {
    /// Sets the place and the status of a cluster; `None` if it is no longer read.
    pub fn set(&self, cluster: &ClusterId, state: Option<(String, SyncStatus)>) {
        let mut all = self.0.lock();
        match state {
            Some(state) => all.clusters.insert(cluster.clone(), state),
            None => all.clusters.remove(cluster),
        };
    }

    /// Sets the place of a cluster that is read.
    pub(super) fn set_place(&self, cluster: &ClusterId, place: &str) {
        if let Some((shown, _)) = self.0.lock().clusters.get_mut(cluster) {
            place.clone_into(shown);
        }
    }

    /// All kubeconfigs were listed.
    pub fn set_listed(&self) {
        self.0.lock().are_listed = true;
    }

    /// Whether the kubeconfigs of a Secret or file can be used.
    pub(super) fn set_usable(&self, place: &str, is_usable: bool) {
        let mut all = self.0.lock();
        if is_usable {
            all.unusable.remove(place);
        } else {
            all.unusable.insert(place.to_owned());
        }
    }

    /// Whether all objects of all clusters were read: otherwise an object that is missing may exist.
    /// They need not be in the snapshot in force yet, as changes are debounced.
    #[must_use]
    pub fn are_synced(&self) -> bool {
        let all = self.0.lock();
        let mut statuses = all.clusters.values().map(|(_, status)| *status);
        all.are_listed && all.unusable.is_empty() && statuses.all(|one| one == SyncStatus::Synced)
    }

    /// Whether each has synced or timed out.
    #[must_use]
    pub fn are_settled(&self) -> bool {
        self.0
            .lock()
            .clusters
            .values()
            .all(|(_, status)| *status != SyncStatus::Syncing)
    }

    /// All clusters by name.
    #[must_use]
    pub fn list(&self) -> Vec<ManagedCluster> {
        self.0
            .lock()
            .clusters
            .iter()
            .map(|(id, (place, status))| ManagedCluster {
                id: id.clone(),
                place: place.clone(),
                status: *status,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_settled_once_none_is_being_read() {
        let clusters = ManagedClusters::default();
        let east = ClusterId::new("east");
        let place = || "istio-system/east".to_owned();

        clusters.set(&east, Some((place(), SyncStatus::Syncing)));
        assert!(!clusters.are_settled());

        clusters.set(&east, Some((place(), SyncStatus::Timeout)));
        assert!(clusters.are_settled());

        clusters.set(&east, None);
        assert!(clusters.are_settled());
        assert_eq!(clusters.list(), []);
    }
    #[test]
    fn clusters_that_timed_out_or_cannot_be_used_are_not_synced() {
        let clusters = ManagedClusters::default();
        assert!(!clusters.are_synced(), "more may be listed");
        clusters.set_listed();
        assert!(clusters.are_synced());

        let east = ClusterId::new("east");
        for status in SyncStatus::ALL {
            clusters.set(&east, Some(("istio-system/east".to_owned(), status)));
            let is_synced = status == SyncStatus::Synced;
            assert_eq!(clusters.are_synced(), is_synced, "{status:?}");
        }
        clusters.set(&east, None);

        clusters.set_usable("istio-system/west", false);
        assert!(!clusters.are_synced());
        clusters.set_usable("istio-system/west", true);
        assert!(clusters.are_synced());
    }
}
