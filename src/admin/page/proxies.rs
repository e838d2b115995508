//! `/debug/view/proxies`: the connected proxies, and their sync state.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::rows::{Rows, fits};
use crate::admin::reply::{self, Parameters};
use crate::admin::state::AdminState;
use navarch_xds::connections::{ConnectionInfo, TypeInfo};

/// The sync state of a proxy, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SyncState {
    /// It rejected a response.
    Rejected,
    /// It was not sent everything, or has not answered.
    Lagging,
    /// It has acknowledged everything.
    Synced,
}

impl SyncState {
    fn of(watch: &TypeInfo) -> Self {
        match (&watch.rejected, watch.in_sync) {
            (Some(_), _) => Self::Rejected,
            (None, false) => Self::Lagging,
            (None, true) => Self::Synced,
        }
    }

    /// The state of a proxy: that of its worst type.
    fn of_proxy(info: &ConnectionInfo) -> Self {
        info.types
            .iter()
            .map(Self::of)
            .min()
            .unwrap_or(Self::Synced)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "refused",
            Self::Lagging => "lagging",
            Self::Synced => "synced",
        }
    }
}

/// The selected proxies, worst first; the numbers are those of all proxies that match `filter`.
pub(in crate::admin) async fn proxies(
    State(state): State<AdminState>,
    parameters: Parameters,
) -> Response {
    let is_chosen = |info: &ConnectionInfo| {
        let version = info.proxy.meta("ISTIO_VERSION").unwrap_or_default();
        let cluster = info.proxy.meta("CLUSTER_ID").unwrap_or_default();
        fits(
            &parameters,
            &[&info.id, &info.proxy.node_id, &version, &cluster],
        )
    };

    let connected = state.connections.list();
    let all = connected.len();
    let mut chosen: Vec<(SyncState, ConnectionInfo)> = connected
        .into_iter()
        .filter(is_chosen)
        .map(|info| (SyncState::of_proxy(&info), info))
        .collect();
    chosen.sort_by(|(a, left), (b, right)| {
        (a, &left.proxy.name, &left.id).cmp(&(b, &right.proxy.name, &right.id))
    });

    let count = |wanted: SyncState| {
        chosen
            .iter()
            .filter(|(standing, _)| *standing == wanted)
            .count()
    };

    let counts = json!({
        "all": all, "chosen": chosen.len(), "synced": count(SyncState::Synced), "lagging": count(SyncState::Lagging),
        "refused": count(SyncState::Rejected),
    });
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (_, info) in &chosen {
        *kinds.entry(kind_of(info).to_owned()).or_default() += 1;
    }

    let kind = parameters.get("kind").filter(|kind| !kind.is_empty());
    chosen.retain(|(_, info)| kind.is_none_or(|kind| kind == kind_of(info)));
    let wanted = parameters.get("state").filter(|state| !state.is_empty());
    chosen.retain(|(standing, _)| wanted.is_none_or(|wanted| wanted == standing.as_str()));

    let rows = Rows::from_parameters(&parameters);
    let total = chosen.len();
    let shown: Vec<Value> = rows
        .of(chosen)
        .iter()
        .map(|(standing, info)| row(*standing, info))
        .collect();
    let mut answer = rows.answer(total, &shown);

    if let Some(answer) = answer.as_object_mut() {
        answer.insert("counts".to_owned(), counts);
        answer.insert("kinds".to_owned(), json!(kinds));
    }

    reply::json(&parameters, &answer)
}

/// The kind of a proxy from its node ID: `sidecar`, `router`, `waypoint`, `ztunnel`.
pub(super) fn kind_of(info: &ConnectionInfo) -> &str {
    info.proxy.node_id.split('~').next().unwrap_or_default()
}

/// A row of the table of proxies.
fn row(standing: SyncState, info: &ConnectionInfo) -> Value {
    json!({
        "id": &*info.id,
        "proxy": &*info.proxy.name,
        "namespace": info.proxy.namespace.as_str(),
        "kind": kind_of(info),
        "address": info.peer.map(|peer| peer.ip().to_string()),
        "version": info.proxy.meta("ISTIO_VERSION"),
        "cluster": info.proxy.meta("CLUSTER_ID"),
        "hasLearnedScope": info.proxy.has_learned_scope,
        "connectedAt": info.connected_at.to_string(),
        "state": standing.as_str(),
        "types": info.types.iter().map(of_type).collect::<Vec<_>>(),
    })
}

/// One type of a proxy.
fn of_type(watch: &TypeInfo) -> Value {
    json!({
        "type": watch.resource_type.short_name(),
        "state": SyncState::of(watch).as_str(),
        "resources": watch.resources.as_ref().map_or(0, |sent| sent.resources.len()),
        "sentAt": watch.sent.as_ref().map(|mark| mark.at.to_string()),
        "answered": watch.rejected.is_some()
            || watch.sent.as_ref().map(|mark| &mark.nonce) == watch.acked.as_ref().map(|mark| &mark.nonce),
        "said": watch.rejected.as_ref().map(|rejected| &*rejected.message),
    })
}
