//! Which fields of the objects behind a resource it rests on.
//!
//! Nothing is kept for this while resources are made. On a copy of the snapshot each object is tried without each of its parts in turn:
//! where the resource then comes out otherwise, that part has made it. What is told is so exactly; a part that another one
//! repeats is not told, for without it nothing would be otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::Client;
use super::mirror::Mirror;
use super::object_parts::{ObjectPart, parts};
use navarch_api::names::ResourceName;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::engine::Interest;
use navarch_push::resource::{ResourceType, Version};
use navarch_push::world::Change;

/// Maximum number of trials for one answer: each costs a change of a mesh with one proxy.
const MAX_TRIALS: usize = 400;

/// What an object does to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// These fields of it made the resource; none where it is made by what is no part of its own, as its labels.
    Fields(Vec<String>),
    /// It was read, and the resource is the same without it.
    None,
}

/// What the objects behind a resource do to it, as far as it can be told: an object of which it cannot be is not among them, nor is any
/// where the copy comes to another resource than `shown`. Costs what the proxy's part of the mesh does, on the calling
/// thread, whose stack must be as large as that of the push thread.
#[must_use]
pub fn effects(
    context: &PushContext,
    client: &Client,
    (kind, name, shown): (ResourceType, &ResourceName, Version),
    objects: &[ObjectRef],
) -> BTreeMap<ObjectRef, Effect> {
    let mut found = BTreeMap::new();
    let interest = Interest { wildcard: false, names: Arc::new(BTreeSet::from([name.clone()])) };
    let client = Client { proxy: client.proxy.clone(), interests: BTreeMap::from([(kind, interest)]) };
    let mut trial = Trial { mirror: Mirror::of(context, vec![client]), kind, name, left: MAX_TRIALS };
    if trial.version() != Some(shown) {
        return found;
    }
    for object in objects {
        if let Some(effect) = trial.effect(object, shown) {
            found.insert(object.clone(), effect);
        }
    }
    found
}

/// A copy of the mesh on which objects are tried.
struct Trial<'a> {
    mirror: Mirror,
    kind: ResourceType,
    name: &'a ResourceName,
    /// How often there may be another try.
    left: usize,
}

impl Trial<'_> {
    /// The resource as it is on the copy.
    fn version(&self) -> Option<Version> {
        self.mirror.had(0).get(&self.kind)?.resources.find(self.name).map(|resource| resource.version)
    }

    /// The resource as it would be after a change.
    fn version_after(&mut self, change: Change) -> Option<Version> {
        self.left = self.left.saturating_sub(1);
        self.mirror.apply(vec![change]);
        self.version()
    }

    /// What an object does; nothing where it would take too many tries.
    fn effect(&mut self, name: &ObjectRef, shown: Version) -> Option<Effect> {
        let object = self.mirror.context().objects.any(name)?;
        let parts = parts(&object);
        if parts.len() + 1 > self.left {
            return None;
        }
        let is_same = self.version_after(Change::Removed(name.clone())) == Some(shown);
        let mut fields = Vec::new();
        for ObjectPart { field, without } in parts {
            if !is_same && self.version_after(Change::Put(without)) != Some(shown) {
                fields.push(field);
            }
        }
        let restored = self.version_after(Change::Put(object));
        // What cannot be restored cannot be compared with either.
        if restored != Some(shown) {
            self.left = 0;
            return None;
        }
        Some(if is_same { Effect::None } else { Effect::Fields(fields) })
    }
}
