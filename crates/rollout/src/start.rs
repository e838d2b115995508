//! Starts the rollout controller from the stored state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_push::mesh_state::Change;
use navarch_push::rollout::{RolloutCommand, RolloutProgress};
use navarch_push::worker::{Ended, PushHandle};
use navarch_status::{KeptRollout, RolloutStore, SharedState, list_at_start};
use navarch_xds::connections::Connections;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::prometheus::Prometheus;
use super::shared::Shared;
use super::{QueryNamespaces, RolloutControl, RolloutController};

/// Capacity of the channel of operators' commands.
const MAX_PENDING_COMMANDS: usize = 16;

/// What the rollout controller works with.
#[derive(Debug)]
pub struct Parts {
    /// The push thread, which is ordered which proxies see which version.
    pub push: PushHandle,
    /// The streams of proxies, with their ACKs and NACKs.
    pub connections: Arc<Connections>,
    /// Where replicas share their decisions; `None` for a single replica without an API server.
    pub store: Option<RolloutStore>,
    /// The identity of this replica, unique among those that share the store.
    pub replica: String,
    /// The URL of Prometheus (`NAVARCH_PROMETHEUS_URL`), if it is configured.
    pub prometheus: Option<String>,
    /// The namespaces whose objects may contain queries.
    pub query_namespaces: QueryNamespaces,
}

/// Restores rollouts from their stored state. Must be called before objects are read: otherwise all
/// proxies would get new versions before the stages are known. Returns the channels for operators,
/// and the future of the controller, which ends once `stop` is cancelled.
///
/// # Errors
/// If the push thread has stopped.
pub async fn start(
    parts: Parts,
    stop: CancellationToken,
) -> Result<(RolloutControl, impl Future<Output = ()> + Send), Ended> {
    let Parts {
        push,
        connections,
        store,
        replica,
        prometheus,
        query_namespaces,
    } = parts;

    let shared = match store {
        Some(store) => {
            restore(&store, &push).await?;
            Some(Shared::new(store, &replica))
        }
        None => None,
    };

    let (commands, received) = mpsc::channel(MAX_PENDING_COMMANDS);
    let (status_sender, status) = watch::channel(Arc::default());
    let work = RolloutController {
        push,
        connections,
        known: BTreeMap::new(),
        status_sender,
        prometheus: Arc::new(Prometheus::new(prometheus.as_deref(), query_namespaces)),
        shared,
        queries: JoinSet::new(),
        waited: Duration::ZERO,
    };

    let control = RolloutControl { commands, status };
    Ok((control, work.run(received, stop)))
}

/// Restores stored rollouts once their objects are read.
async fn restore(store: &RolloutStore, push: &PushHandle) -> Result<(), Ended> {
    let kept = match list_at_start(|| store.list()).await {
        // The first poll logs those that are unreadable.
        Ok(stored) => stored.readable,
        Err(error) => {
            tracing::warn!(%error, "failed to read the rollout state; new versions go to all proxies");
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
    let command = RolloutCommand::Restore {
        new: kept.new,
        before: kept.before,
        progress,
    };
    Some(Change::Rollout(name, Arc::new(command)))
}
