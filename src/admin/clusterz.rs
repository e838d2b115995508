//! `/debug/clusterz`: the clusters whose API servers are read, with their sync status.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
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

/// The remote clusters, each with the Secret or file of its kubeconfig and its sync status. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct ManagedClusters(Arc<Mutex<BTreeMap<ClusterId, (String, SyncStatus)>>>);

impl ManagedClusters {
    /// Sets the status of a cluster; `None` if it is no longer read.
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

    /// As istiod writes them, the own cluster first.
    fn to_json(&self, own: &ClusterId, own_status: SyncStatus) -> Value {
        let own =
            json!({ "id": own.as_str(), "secretName": "", "syncStatus": own_status.as_str() });
        let remotes = self.0.lock();
        let remotes = remotes.iter().map(|(cluster, (secret, status))| {
            json!({ "id": cluster.as_str(), "secretName": secret, "syncStatus": status.as_str() })
        });
        std::iter::once(own).chain(remotes).collect()
    }
}

pub(super) async fn clusterz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let own = state.push.context().mesh.settings.cluster_id.clone();
    // The page is served only once the own cluster was read.
    reply::json(
        &parameters,
        &state.clusters.to_json(&own, SyncStatus::Synced),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_written_as_istiod_writes_them() {
        let clusters = ManagedClusters::default();
        let own = ClusterId::new("Kubernetes");
        clusters.set(
            &ClusterId::new("east"),
            Some(("istio-system/east".to_owned(), SyncStatus::Syncing)),
        );
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
