//! Forwards events of sources to the push thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use navarch_api::any_object::AnyObject;
use navarch_api::duration::Duration;
use navarch_api::object::{Kind, ObjectRef};
use navarch_api::rollout::requests_stages;
use navarch_push::context::PushContext;
use navarch_push::mesh_state::Change;
use navarch_push::worker::{Ended, PushHandle};
use navarch_source::{
    Batch, DEFAULT_KEY_TIMEOUT, Demand, Fault, Problem, ProblemSource, Problems, RejectedConfigs,
    SourceEvent,
};

/// Converts batches of events to changes; stores and logs problems of sources.
pub(super) struct Pump {
    pub(super) push: PushHandle,
    pub(super) problems: Problems,
    /// The fetcher of keys that policies refer to.
    pub(super) keys: mpsc::Sender<Demand>,
    /// Metrics of rejected objects.
    pub(super) rejected_configs: RejectedConfigs,
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
                Fault::Rejected(_) | Fault::Unreadable(_) | Fault::Duplicate { .. } => {
                    tracing::warn!(%problem, "rejected an object; the last valid version stays in use");
                }
                Fault::UnknownField(_) | Fault::Warning(_) => {
                    tracing::warn!(%problem, "accepted an object with warnings")
                }
                Fault::UnknownKind => {
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

/// The deleted objects that have stages. An object that is added again in the same batch, as when a
/// source reads everything again, is not deleted.
fn deleted_at_once(context: &PushContext, changes: &[Change]) -> Vec<ObjectRef> {
    let is_put = |name: &ObjectRef| {
        changes.iter().any(|change| {
            if let Change::Put(object) = change {
                object.object_ref() == *name
            } else {
                false
            }
        })
    };

    let has_stages = |name: &&ObjectRef| {
        let object = context
            .objects
            .any(name)
            .or_else(|| context.new_versions.any(name));
        object.is_some_and(|object| requests_stages(name.kind, object.meta()))
    };

    let removed = changes.iter().filter_map(|change| {
        if let Change::Removed(name) = change {
            Some(name)
        } else {
            None
        }
    });

    removed
        .filter(has_stages)
        .filter(|name| !is_put(name))
        .cloned()
        .collect()
}

/// The keys that an object requires, if it is a RequestAuthentication.
fn demand_of(object: &AnyObject) -> Option<Demand> {
    let AnyObject::RequestAuthentication(policy) = object else {
        return None;
    };
    let wanted = policy.spec.jwt_rules.iter().filter_map(|rule| {
        let timeout = rule.timeout.and_then(Duration::as_std);
        Some((rule.key_source()?, timeout.unwrap_or(DEFAULT_KEY_TIMEOUT)))
    });
    Some(Demand::Of(policy.meta.key(), wanted.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_api::decode::{Format, Outcome, decode_documents};
    use navarch_api::settings::Settings;
    use navarch_push::mesh_state::MeshState;

    fn rule(name: &str, stages: &str) -> AnyObject {
        let yaml = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
             metadata: {{name: {name}, namespace: shop, annotations: {{navarch.io/rollout: '{stages}'}}}}\n\
             spec: {{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}]}}]}}\n"
        );
        match decode_documents(&yaml, Format::Yaml).remove(0).outcome {
            Outcome::Read { object, .. } => object,
            other @ (Outcome::Ignored | Outcome::Rejected(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn permanent_deletions_of_staged_objects_are_reported() {
        let staged = rule("a", "5%");
        let read_anew = rule("b", "5%");
        let at_once = rule("c", "off");
        let mut state = MeshState::new(Settings::default());
        state.apply([&staged, &read_anew, &at_once].map(|object| Change::Put(object.clone())));
        let gone =
            [&staged, &read_anew, &at_once].map(|object| Change::Removed(object.object_ref()));
        let changes: Vec<_> = gone.into_iter().chain([Change::Put(read_anew)]).collect();
        assert_eq!(
            deleted_at_once(&state.context(), &changes),
            [staged.object_ref()]
        );
    }
}
