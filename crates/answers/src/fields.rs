//! Which fields of its objects a resource depends on.
//!
//! Nothing is recorded for this while resources are built. On a copy of the snapshot each part of
//! each object is removed in turn: if the resource then differs, it depends on that part. The
//! result is exact, except that a duplicate part is not found, since the resource is the same
//! without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::Client;
use super::mirror::Mirror;
use super::object_parts::{ObjectPart, parts};
use navarch_api::names::ResourceName;
use navarch_api::object::ObjectRef;
use navarch_base::resource_version::Version;
use navarch_push::context::PushContext;
use navarch_push::engine::Interest;
use navarch_push::mesh_state::Change;
use navarch_push::resource::ResourceType;

/// Maximum number of trials for one answer: each applies a change to a mesh with one proxy.
const MAX_TRIALS: usize = 400;

/// The effect of an object on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The fields on which the resource depends; empty if it depends on metadata, such as labels.
    Fields(Vec<String>),
    /// The object was read, and the resource is the same without it.
    None,
}

/// The effects of the objects of a resource, as far as known: objects with unknown effect are
/// omitted, and all objects if the copy yields another resource than `shown`. Runs on the calling
/// thread, at the cost of the proxy's part of the mesh; the stack must be as large as that of the
/// push thread.
#[must_use]
pub fn effects(
    context: &PushContext,
    client: &Client,
    resource_type: ResourceType,
    name: &ResourceName,
    shown: Version,
    objects: &[ObjectRef],
) -> BTreeMap<ObjectRef, Effect> {
    let mut found = BTreeMap::new();
    let interest = Interest {
        wildcard: false,
        names: Arc::new(BTreeSet::from([name.clone()])),
    };
    let client = Client {
        proxy: client.proxy.clone(),
        interests: BTreeMap::from([(resource_type, interest)]),
    };

    let mut trial = Trial {
        mirror: Mirror::of(context, vec![client]),
        resource_type,
        name,
        left: MAX_TRIALS,
    };

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
    resource_type: ResourceType,
    name: &'a ResourceName,
    /// The number of remaining trials.
    left: usize,
}

impl Trial<'_> {
    /// The resource as it is on the copy.
    fn version(&self) -> Option<Version> {
        self.mirror
            .had(0)
            .get(&self.resource_type)?
            .resources
            .find(self.name)
            .map(|resource| resource.version)
    }

    /// The resource as it would be after a change.
    fn version_after(&mut self, change: Change) -> Option<Version> {
        self.left = self.left.saturating_sub(1);
        self.mirror.apply(vec![change]);
        self.version()
    }

    /// The effect of an object; `None` if it would take too many trials.
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

        // If restoring the object fails, results cannot be compared.
        if restored != Some(shown) {
            self.left = 0;
            return None;
        }

        Some(if is_same {
            Effect::None
        } else {
            Effect::Fields(fields)
        })
    }
}
