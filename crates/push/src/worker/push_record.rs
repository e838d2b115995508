//! The last pushes, as they are remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use navarch_api::object::ObjectRef;

use super::arrivals::Arrivals;
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
    /// The first of the objects that changed.
    pub objects: Vec<ChangedObject>,
    /// When the first of its changes was handed over by whoever watches; `None` where none was.
    pub came: Option<Instant>,
    /// When the thread began to work on it.
    pub began: Instant,
    /// How long the thread worked until the snapshot was in force, of `took`.
    pub taken_in: Duration,
    /// What it did.
    pub settled: Settled,
    /// How long the thread worked on it, from taking the changes in to the last collection handed over.
    pub took: Duration,
}

/// An object that a push is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// Which it is.
    pub name: ObjectRef,
    /// The generation of what is in force since; `None` where it is gone.
    pub generation: Option<i64>,
    /// When its first change that is in the push was handed over by whoever watches, as far as that is known.
    pub came: Option<Instant>,
}

/// The first of the objects that a push is about.
pub(super) fn objects_of(context: &PushContext, changed: &[FactKey], arrivals: &Arrivals) -> Vec<ChangedObject> {
    // Of an object of which two versions are in force, some proxies are sent the new one.
    let generation = |name: &ObjectRef| match context.rollouts.get(name) {
        Some(rollout) if rollout.share().is_some() => Some(rollout.generation),
        Some(_) | None => context.objects.any(name).map(|object| object.meta().generation),
    };
    let object = |fact: &FactKey| {
        if let FactKey::Object(name) | FactKey::Rollout(name) = fact { Some(name.clone()) } else { None }
    };
    let objects: BTreeSet<ObjectRef> = changed.iter().filter_map(object).collect();
    let told = |name: ObjectRef| ChangedObject { generation: generation(&name), came: arrivals.of(&name), name };
    objects.into_iter().take(REMEMBERED_OBJECTS).map(told).collect()
}
