//! Starts the rollout controller from the stored state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;
use navarch_push::mesh_state::Change;
use navarch_push::rollout::{RolloutCommand, RolloutProgress};
use navarch_push::worker::{Ended, PushHandle};
use navarch_status::{KeptRollout, RolloutStore, SharedState, list_at_start};
use navarch_xds::connections::Connections;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::prometheus::Prometheus;
use super::shared::{Shared, is_version};
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

/// The started rollouts.
#[derive(Debug)]
pub struct Started<Controller> {
    /// The channels for operators.
    pub control: RolloutControl,
    /// What must be restored once more when all objects are read, before proxies are served.
    pub stored: StoredRollouts,
    /// The future of the controller.
    pub controller: Controller,
}

/// Restores rollouts from their stored state. Must be called before objects are read: otherwise all
/// proxies would get new versions before the stages are known. The controller ends once `stop` is
/// cancelled.
///
/// # Errors
/// If the push thread has stopped.
pub async fn start(
    parts: Parts,
    stop: CancellationToken,
) -> Result<Started<impl Future<Output = ()> + Send>, Ended> {
    let Parts {
        push,
        connections,
        store,
        replica,
        prometheus,
        query_namespaces,
    } = parts;

    let mut stored = StoredRollouts::new(&push, store.clone());
    stored.restore().await?;
    let shared = store.map(|store| Shared::new(store, &replica));

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
    Ok(Started {
        control,
        stored,
        controller: work.run(received, stop),
    })
}

/// The stored rollouts, which a replica restores at its start: before it reads objects, and once
/// more when it has read all of them, before it serves. What other replicas began in between, it has
/// read as if all proxies had it.
#[derive(Debug)]
pub struct StoredRollouts {
    push: PushHandle,
    /// `None` for a single replica without an API server.
    store: Option<RolloutStore>,
    /// The versions whose rollouts were restored: the controller follows what others decide about
    /// them.
    restored: BTreeMap<ObjectRef, AnyObject>,
}

impl StoredRollouts {
    fn new(push: &PushHandle, store: Option<RolloutStore>) -> Self {
        Self {
            push: push.clone(),
            store,
            restored: BTreeMap::new(),
        }
    }

    /// Restores the rollouts that are stored, and were not restored before: at once if their
    /// objects are read, otherwise when they are.
    ///
    /// # Errors
    /// If the push thread has stopped.
    pub async fn restore(&mut self) -> Result<(), Ended> {
        let Some(store) = &self.store else {
            return Ok(());
        };
        let kept = match list_at_start(|| store.list()).await {
            // The first poll logs those that are unreadable.
            Ok(stored) => stored.readable,
            Err(error) => {
                tracing::warn!(%error, "failed to read the rollout state; new versions go to all proxies");
                return Ok(());
            }
        };

        let mut changes = Vec::new();
        for (name, kept) in kept {
            let new = kept.new.clone();
            let before = self.restored.get(&name);
            if !before.is_some_and(|before| is_version(before, &new)) {
                changes.extend(restored(kept));
                self.restored.insert(name, new);
            }
        }
        self.push.change(changes).await
    }
}

/// The change that restores a rollout at its stage, unless it is finished.
pub(super) fn restored(kept: KeptRollout) -> Option<Change> {
    let name = kept.name();
    let progress = match kept.state {
        SharedState::Stage { at, .. } => RolloutProgress::Stage {
            at,
            chosen: Arc::default(),
        },
        SharedState::Waiting => RolloutProgress::Waiting,
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
