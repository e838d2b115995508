//! Whether a proxy has the last change of an input: the snapshot of that change, and collections
//! that are equal to those that are in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fact::FactKey;
use crate::resource::Collection;
use crate::worker::Inspect;
use navarch_api::object::ObjectRef;

/// Compared collections, by address. A proxy that gets another version of an object may have an
/// equal collection, which is not sent again. The caller must hold the collections while this is
/// used, so that no address is reused.
#[derive(Debug, Default)]
pub struct Compared(BTreeMap<(*const Collection, *const Collection), bool>);

impl Compared {
    /// Whether two are equal. Similar proxies share collections, so each pair is compared once.
    pub fn are_equal(&mut self, one: &Arc<Collection>, other: &Arc<Collection>) -> bool {
        let compare = || **one == **other;
        Arc::ptr_eq(one, other)
            || *self
                .0
                .entry((Arc::as_ptr(one), Arc::as_ptr(other)))
                .or_insert_with(compare)
    }
}

/// The snapshot of an object's last change; if it was long ago, the oldest remembered snapshot.
/// Never too old.
#[must_use]
pub fn changed_at(inspect: &Inspect<'_>, object: &ObjectRef) -> u64 {
    last_change(inspect, &FactKey::Object(object.clone()))
}

/// The snapshot of a fact's last change, as [`changed_at`].
#[must_use]
pub fn last_change(inspect: &Inspect<'_>, fact: &FactKey) -> u64 {
    // If not all facts are remembered, the object's may be among them.
    let may_hold = inspect
        .pushes
        .iter()
        .rev()
        .find(|push| push.facts > push.changed.len() || push.changed.contains(fact));
    let oldest = || {
        inspect
            .pushes
            .front()
            .map_or_else(|| inspect.engine.revision(), |push| push.revision)
    };
    may_hold.map_or_else(oldest, |push| push.revision)
}
