//! Records of the last pushes.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use navarch_api::object::ObjectRef;

use super::arrivals::Arrivals;
use crate::context::PushContext;
use crate::engine::PushStats;
use crate::fact::FactKey;

/// Maximum number of objects in a push record.
const REMEMBERED_OBJECTS: usize = 32;

/// One push: its cause and effects.
#[derive(Clone, Debug)]
pub struct PushRecord {
    /// Revision of the snapshot.
    pub revision: u64,
    /// Number of changed facts.
    pub facts: usize,
    /// The first changed facts.
    pub changed: Vec<FactKey>,
    /// The first changed objects.
    pub objects: Vec<ChangedObject>,
    /// When a source queued the first of its changes; `None` if there was none.
    pub received_at: Option<Instant>,
    /// When the thread began to work on it.
    pub began: Instant,
    /// Time from the start until the snapshot was in force; part of `took`.
    pub taken_in: Duration,
    /// The work that the push took.
    pub stats: PushStats,
    /// Total time, from applying the changes to publishing the last collection.
    pub took: Duration,
}

/// A changed object of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// Kind, namespace and name, also of an object that was removed.
    pub name: ObjectRef,
    /// The generation in force after the push; `None` if the object was removed.
    pub generation: Option<i64>,
    /// When a source queued its first change in the push, if known.
    pub received_at: Option<Instant>,
}

/// The first changed objects of a push.
pub(super) fn objects_of(
    context: &PushContext,
    changed: &[FactKey],
    arrivals: &Arrivals,
) -> Vec<ChangedObject> {
    // If two versions of an object are in force, some proxies get the new one.
    let generation = |name: &ObjectRef| match context.rollouts.get(name) {
        Some(rollout) if rollout.share().is_some() => Some(rollout.generation),
        Some(_) | None => context
            .objects
            .any(name)
            .map(|object| object.meta().generation),
    };

    let object = |fact: &FactKey| {
        if let FactKey::Object(name) | FactKey::Rollout(name) = fact {
            Some(name.clone())
        } else {
            None
        }
    };

    let objects: BTreeSet<ObjectRef> = changed.iter().filter_map(object).collect();
    let changed_object = |name: ObjectRef| ChangedObject {
        generation: generation(&name),
        received_at: arrivals.of(&name),
        name,
    };

    objects
        .into_iter()
        .take(REMEMBERED_OBJECTS)
        .map(changed_object)
        .collect()
}
