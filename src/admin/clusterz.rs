//! `/debug/clusterz` and `/debug/mcsz`: the clusters that are read, and the services that they share.

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::reply::{self, Parameters};
use super::state::AdminState;

/// The clusters: Navarch's own first.
pub(super) async fn clusterz(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let context = state.push.context();
    let status = if state.push.is_synced() { "synced" } else { "syncing" };
    let own = json!({ "id": context.mesh.settings.cluster_id, "secretName": "", "syncStatus": status });
    reply::json(&parameters, &Value::Array(vec![own]))
}

/// The services that clusters share by the Multi-Cluster Services API: none are read.
pub(super) async fn mcsz(parameters: Parameters) -> Response {
    reply::json(&parameters, &Value::Null)
}
