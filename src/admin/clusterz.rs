//! `/debug/clusterz`: the clusters whose API servers are read, with their sync status.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_api::names::ClusterId;
use navarch_remotes::{ManagedClusters, SyncStatus};

/// The clusters as istiod writes them, the own cluster first.
fn to_json(clusters: &ManagedClusters, own: &ClusterId, own_status: SyncStatus) -> Value {
    let remotes = clusters.list();
    let remotes = remotes
        .iter()
        .map(|cluster| one(&cluster.id, &cluster.place, cluster.status));
    std::iter::once(one(own, "", own_status))
        .chain(remotes)
        .collect()
}

/// One cluster; the own one has no Secret.
fn one(id: &ClusterId, secret: &str, status: SyncStatus) -> Value {
    json!({ "id": id.as_str(), "secretName": secret, "syncStatus": status.as_str() })
}

pub(super) async fn clusterz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let own = state.push.context().mesh.settings.cluster_id.clone();
    // The page is served only once the own cluster was read.
    reply::json(
        &parameters,
        &to_json(&state.clusters, &own, SyncStatus::Synced),
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

        let written = to_json(&clusters, &own, SyncStatus::Synced);
        let expected = json!([
            { "id": "Kubernetes", "secretName": "", "syncStatus": "synced" },
            { "id": "east", "secretName": "istio-system/east", "syncStatus": "syncing" },
        ]);
        assert_eq!(written, expected);
    }
}
