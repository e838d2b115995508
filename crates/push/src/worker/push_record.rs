//! The last pushes, as they are remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use navarch_api::object::ObjectRef;

use crate::context::PushContext;
use crate::engine::Settled;
use crate::fact::FactKey;

/// Objects of a push that are remembered.
const REMEMBERED_OBJECTS: usize = 32;

/// One push: what caused it and what it did.
#[derive(Clone, Debug)]
pub struct PushRecord {
    /// Revision of the snapshot.
    pub revision: u64,
    /// How many facts changed.
    pub facts: usize,
    /// The first of them.
    pub changed: Vec<FactKey>,
    /// The first of the objects that changed, each with the generation of what is in force since; `None` where it is gone.
    pub objects: Vec<(ObjectRef, Option<i64>)>,
    /// When the thread began to work on it.
    pub began: Instant,
    /// What it did.
    pub settled: Settled,
    /// How long the thread worked on it, from taking the changes in to the last collection handed over.
    pub took: Duration,
}

/// The first of the objects that a push is about.
pub(super) fn objects_of(context: &PushContext, changed: &[FactKey]) -> Vec<(ObjectRef, Option<i64>)> {
    // Of an object of which two versions are in force, some proxies are sent the new one.
    let generation = |name: &ObjectRef| match context.rollouts.get(name) {
        Some(rollout) if rollout.share().is_some() => Some(rollout.generation),
        Some(_) | None => context.objects.any(name).map(|object| object.meta().generation),
    };
    let object = |fact: &FactKey| {
        if let FactKey::Object(name) | FactKey::Rollout(name) = fact { Some(name.clone()) } else { None }
    };
    let objects: BTreeSet<ObjectRef> = changed.iter().filter_map(object).collect();
    objects.into_iter().take(REMEMBERED_OBJECTS).map(|name| (name.clone(), generation(&name))).collect()
}
