//! The remote clusters with their sync status, for debug pages and metrics.

use std::collections::BTreeMap;
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
pub struct ManagedClusters(Arc<Mutex<BTreeMap<ClusterId, (String, SyncStatus)>>>);

impl ManagedClusters {
    /// Sets the place and the status of a cluster; `None` if it is no longer read.
    pub fn set(&self, cluster: &ClusterId, state: Option<(String, SyncStatus)>) {
        match state {
            Some(state) => self.0.lock().insert(cluster.clone(), state),
            None => self.0.lock().remove(cluster),
        };
    }

    /// Whether each has synced or timed out.
    #[must_use]
    pub fn are_settled(&self) -> bool {
        self.0
            .lock()
            .values()
            .all(|(_, status)| *status != SyncStatus::Syncing)
    }

    /// All clusters by name.
    #[must_use]
    pub fn list(&self) -> Vec<ManagedCluster> {
        self.0
            .lock()
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
}
