//! Forwards events of sources to the push thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use navarch_api::object::Kind;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::worker::{Ended, PushHandle};
use navarch_rollout::{StoredRollouts, deleted_at_once};
use navarch_source::{
    Batch, Demand, Problem, ProblemKind, ProblemSource, Problems, RejectedConfigs, SourceEvent,
};

/// Converts batches of events to changes; stores and logs problems of sources.
pub(super) struct Pump {
    pub(super) push: PushHandle,
    pub(super) problems: Problems,
    /// The fetcher of keys that policies refer to.
    pub(super) keys: mpsc::Sender<Demand>,
    /// Metrics of rejected objects.
    pub(super) rejected_configs: RejectedConfigs,
    /// The rollouts to restore before proxies are served.
    pub(super) rollouts: StoredRollouts,
}

impl Pump {
    /// Runs until all sources have ended. Reports to the push thread when all of them have synced.
    /// `sources` are those of mesh config, of objects, of keys, and of remote clusters, in this
    /// order.
    pub(super) async fn run(mut self, sources: [mpsc::Receiver<Batch>; 4]) -> Result<(), Ended> {
        let mut unsynced = sources.len();
        let mut batches = tokio_stream::StreamMap::new();
        for (index, source) in sources.into_iter().enumerate() {
            batches.insert(index, ReceiverStream::new(source));
        }

        while let Some((source, batch)) = batches.next().await {
            let origin = if source == 0 {
                ProblemSource::Mesh
            } else {
                ProblemSource::Objects
            };

            let mut changes = Vec::with_capacity(batch.len());
            let mut synced = 0;
            let mut demands = Vec::new();

            for event in batch {
                match event {
                    SourceEvent::Added(object) | SourceEvent::Updated(object) => {
                        demands.extend(Demand::by(&object));
                        changes.push(Change::Put(object.without_internal_annotations()));
                    }
                    SourceEvent::Deleted(name) => {
                        if name.kind == Kind::RequestAuthentication {
                            demands.push(Demand::Of(name.name.clone(), BTreeMap::new()));
                        }
                        changes.push(Change::Removed(name));
                    }
                    SourceEvent::MeshConfig(config) => changes.push(Change::Mesh(config)),
                    SourceEvent::MeshNetworks(networks) => changes.push(Change::Networks(networks)),
                    SourceEvent::Keys(source, keys) => changes.push(Change::Keys(source, keys)),
                    SourceEvent::Problems { place, problems } => self.note(origin, place, problems),
                    SourceEvent::FullSync => synced += 1,
                }
            }

            for demand in demands {
                // The fetcher ends only with the process.
                _ = self.keys.send(demand).await;
            }

            if !changes.is_empty() {
                log_deletions(&self.push.context(), &changes);
                self.push.change(changes).await?;
            }

            if synced > 0 {
                unsynced = usize::saturating_sub(unsynced, synced);
                if unsynced == 1 {
                    // All other sources have synced, so all demands are known.
                    _ = self.keys.send(Demand::Complete).await;
                }
                if unsynced == 0 {
                    self.rollouts.restore().await?;
                    self.push.full_sync().await?;
                }
            }
        }

        Ok(())
    }

    /// Stores, counts and logs the problems of a place.
    fn note(&mut self, origin: ProblemSource, place: Arc<str>, problems: Vec<Problem>) {
        self.rejected_configs.note(origin, &place, &problems);
        for problem in &problems {
            match &problem.fault {
                ProblemKind::Rejected(_)
                | ProblemKind::Unreadable(_)
                | ProblemKind::Duplicate { .. } => {
                    tracing::warn!(%problem, "rejected an object; the last valid version stays in use");
                }
                ProblemKind::UnknownField(_) | ProblemKind::Warning(_) => {
                    tracing::warn!(%problem, "accepted an object with warnings")
                }
                ProblemKind::UnknownKind => {
                    tracing::debug!(%problem, "ignored an object of an unknown kind")
                }
            }
        }
        self.problems.set(place, problems);
    }
}

/// Logs deletions of objects that have stages, as stages do not apply to deletions.
fn log_deletions(context: &PushContext, changes: &[Change]) {
    for name in deleted_at_once(context, changes) {
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name,
            "navarch.io/rollout does not apply to deletions, which cannot be reverted: the object is removed from all proxies at once"
        );
    }
}
