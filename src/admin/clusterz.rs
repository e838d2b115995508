//! `/debug/clusterz`: the clusters whose API servers are read, and how far each has come.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::names::ClusterId;

/// How far the reading of a remote cluster has come, by istiod's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStatus {
    /// All that was there was read.
    Synced,
    /// It is being read.
    Syncing,
    /// It is not read in full, and the control plane goes on without.
    Timeout,
}

impl SyncStatus {
    /// All of them.
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

/// The remote clusters that are read, each with the Secret or file of its kubeconfig and how far it has come. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ManagedClusters(Arc<Mutex<BTreeMap<ClusterId, (String, SyncStatus)>>>);

impl ManagedClusters {
    /// Sets what is so of a cluster; `None` where it is no longer read.
    pub fn set(&self, cluster: &ClusterId, state: Option<(String, SyncStatus)>) {
        match state {
            Some(state) => self.0.lock().insert(cluster.clone(), state),
            None => self.0.lock().remove(cluster),
        };
    }

    /// Whether each was read, or is gone on without.
    #[must_use]
    pub fn are_settled(&self) -> bool {
        self.0.lock().values().all(|(_, status)| *status != SyncStatus::Syncing)
    }

    /// As istiod writes them, the own cluster first.
    fn to_json(&self, own: &ClusterId, own_status: SyncStatus) -> Value {
        let own = json!({ "id": own.as_str(), "secretName": "", "syncStatus": own_status.as_str() });
        let remotes = self.0.lock();
        let remotes = remotes.iter().map(|(cluster, (secret, status))| {
            json!({ "id": cluster.as_str(), "secretName": secret, "syncStatus": status.as_str() })
        });
        std::iter::once(own).chain(remotes).collect()
    }
}

pub(super) async fn clusterz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let own = state.push.context().mesh.settings.cluster_id.clone();
    // The page is there only once the own cluster was read.
    reply::json(&parameters, &state.clusters.to_json(&own, SyncStatus::Synced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_written_as_istiod_writes_them() {
        let clusters = ManagedClusters::default();
        let own = ClusterId::new("Kubernetes");
        clusters.set(&ClusterId::new("east"), Some(("istio-system/east".to_owned(), SyncStatus::Syncing)));
        assert!(!clusters.are_settled());
        let written = clusters.to_json(&own, SyncStatus::Synced);
        let expected = json!([
            { "id": "Kubernetes", "secretName": "", "syncStatus": "synced" },
            { "id": "east", "secretName": "istio-system/east", "syncStatus": "syncing" },
        ]);
        assert_eq!(written, expected);
        clusters.set(&ClusterId::new("east"), None);
        assert!(clusters.are_settled());
    }
}
