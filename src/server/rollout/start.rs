//! Starts the rollout controller from the stored state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_push::mesh_state::Change;
use navarch_push::rollout::{RolloutOrder, RolloutProgress};
use navarch_push::worker::{Ended, PushHandle};
use navarch_status::{Cluster, KeptRollout, RolloutStore, SharedState};
use navarch_xds::connections::Connections;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Work;
use super::prometheus::Prometheus;
use super::shared::Shared;
use crate::admin::RolloutControl;
use crate::server::Config;
use crate::server::boot::Boot;

/// Timeout of listing the stored rollouts.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Capacity of the channel of operators' commands.
const MAX_PENDING_COMMANDS: usize = 16;

/// Restores rollouts from their stored state, and starts the rollout controller. Must be called
/// before objects are read: otherwise all proxies would get new versions before the stages are
/// known. If objects come from the Kubernetes API, the state is stored there.
pub(in crate::server) async fn start(
    client: Option<&kube::Client>,
    config: &Config,
    push: &PushHandle,
    connections: Arc<Connections>,
    boot: &mut Boot,
) -> anyhow::Result<RolloutControl> {
    let (orders, received) = mpsc::channel(MAX_PENDING_COMMANDS);
    let (status_sender, status) = watch::channel(Arc::default());
    let shared = match client.filter(|_| config.settings.discover_configuration) {
        Some(client) => {
            let namespace = config.settings.system_namespace.as_str();
            let store = RolloutStore::new(&Cluster(client.clone()), namespace);
            restore(&store, push).await?;
            Some(Shared::new(store, &config.writing.identity))
        }
        None => None,
    };

    let prometheus = Arc::new(Prometheus::new(
        config.prometheus.as_deref(),
        config.query_namespaces.clone(),
    ));
    let known = BTreeMap::new();
    let queries = JoinSet::new();
    let work = Work {
        push: push.clone(),
        connections,
        known,
        status_sender,
        prometheus,
        shared,
        queries,
    };

    boot.spawn("rollouts", work.run(received, boot.stop.clone()));

    Ok(RolloutControl { orders, status })
}

/// Restores stored rollouts once their objects are read.
async fn restore(store: &RolloutStore, push: &PushHandle) -> Result<(), Ended> {
    let kept = match tokio::time::timeout(LIST_TIMEOUT, store.list()).await {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to read the rollout state; new versions go to all proxies");
            return Ok(());
        }
        Err(_) => {
            tracing::warn!(after = ?LIST_TIMEOUT, "timed out reading the rollout state; new versions go to all proxies");
            return Ok(());
        }
    };
    push.change(kept.into_values().filter_map(restored).collect())
        .await
}

/// The change that restores a rollout at its stage, unless it is finished.
pub(super) fn restored(kept: KeptRollout) -> Option<Change> {
    let name = kept.name();
    let progress = match kept.state {
        SharedState::Stage { at, .. } => RolloutProgress::Stage {
            at,
            chosen: Arc::default(),
        },
        SharedState::Stopped { reason } => RolloutProgress::Stopped(reason.into()),
        SharedState::Complete { .. } => return None,
    };
    let order = RolloutOrder::Restore {
        new: kept.new,
        before: kept.before,
        progress,
    };
    Some(Change::Rollout(name, Arc::new(order)))
}
