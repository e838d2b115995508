//! From sources to the push thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::refusals::{ProblemSource, Refusals};
use crate::admin::Problems;
use navarch_api::any_object::AnyObject;
use navarch_api::duration::Duration;
use navarch_api::object::Kind;
use navarch_push::worker::{Ended, PushHandle};
use navarch_push::world::Change;
use navarch_source::{Batch, DEFAULT_KEY_TIMEOUT, Demand, Fault, Problem, SourceEvent};

/// Takes batches of events and hands them on as changes; keeps and logs what sources could not read.
pub(super) struct Pump {
    /// The push thread.
    pub(super) push: PushHandle,
    /// Where problems are kept.
    pub(super) problems: Problems,
    /// Who fetches the keys that policies name.
    pub(super) keys: mpsc::Sender<Demand>,
    /// What is refused, counted.
    pub(super) refusals: Refusals,
}

impl Pump {
    /// Works until all sources have ended. Tells the push thread when all of them have synced. `sources` are those of mesh
    /// config, of objects, of keys, and of remote clusters, in this order.
    pub(super) async fn run(mut self, sources: [mpsc::Receiver<Batch>; 4]) -> Result<(), Ended> {
        let mut unsynced = sources.len();
        let mut batches = tokio_stream::StreamMap::new();
        for (index, source) in sources.into_iter().enumerate() {
            batches.insert(index, ReceiverStream::new(source));
        }
        while let Some((source, batch)) = batches.next().await {
            let origin = if source == 0 { ProblemSource::Mesh } else { ProblemSource::Objects };
            let mut changes = Vec::with_capacity(batch.len());
            let mut synced = 0;
            let mut demands = Vec::new();
            for event in batch {
                match event {
                    SourceEvent::Added(object) | SourceEvent::Updated(object) => {
                        demands.extend(demand_of(&object));
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
                // Whoever fetches ends only when the process does.
                _ = self.keys.send(demand).await;
            }
            if !changes.is_empty() {
                self.push.change(changes).await?;
            }
            if synced > 0 {
                unsynced = usize::saturating_sub(unsynced, synced);
                if unsynced == 1 {
                    // All others are there; what they demand is known.
                    _ = self.keys.send(Demand::Complete).await;
                }
                if unsynced == 0 {
                    self.push.full_sync().await?;
                }
            }
        }
        Ok(())
    }

    /// Keeps, counts and logs the problems of a place.
    fn note(&mut self, origin: ProblemSource, place: Arc<str>, problems: Vec<Problem>) {
        self.refusals.note(origin, &place, &problems);
        for problem in &problems {
            match &problem.fault {
                Fault::Rejected(_) | Fault::Unreadable(_) | Fault::Duplicate { .. } => {
                    tracing::warn!(%problem, "rejected an object; the last valid version stays in force");
                }
                Fault::UnknownField(_) | Fault::Warning(_) => {
                    tracing::warn!(%problem, "accepted an object with warnings")
                }
                Fault::UnknownKind => tracing::debug!(%problem, "passed over"),
            }
        }
        self.problems.set(place, problems);
    }
}

/// The keys that an object demands, if it is of the kind that does.
fn demand_of(object: &AnyObject) -> Option<Demand> {
    let AnyObject::RequestAuthentication(policy) = object else { return None };
    let wanted = policy.spec.jwt_rules.iter().filter_map(|rule| {
        let timeout = rule.timeout.and_then(Duration::as_std);
        Some((rule.key_source()?, timeout.unwrap_or(DEFAULT_KEY_TIMEOUT)))
    });
    Some(Demand::Of(policy.meta.key(), wanted.collect()))
}
