//! Names cut into parts. If a kind has tens of thousands of objects, readers of all objects read
//! one part at a time, and a table of all objects is composed of parts.

use std::hash::Hash;

use imbl::{OrdMap, OrdSet};

use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_tables::hash::keyed_hash;

/// Number of parts. A change rechecks this many parts, and the names of one part.
pub const PARTS: u8 = 128;

/// The kinds whose names are kept in parts.
const KINDS: [Kind; 4] = [
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::TcpRoute,
];

/// The names of objects, by kind and part. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct NameParts(OrdMap<(Kind, u8), OrdSet<NamespacedName>>);

/// The part of a key. The hash differs in each process, so that users cannot choose the part.
#[must_use]
pub fn part_of(key: &(impl Hash + ?Sized)) -> u8 {
    u8::try_from(keyed_hash(key) % u64::from(PARTS)).expect("the remainder is less than PARTS")
}

impl NameParts {
    /// Whether the names of a kind are kept in parts.
    pub(super) fn has(kind: Kind) -> bool {
        KINDS.contains(&kind)
    }

    /// Adds or removes the name of an object. Returns its part, if its kind has parts.
    pub(super) fn set(&mut self, object: &ObjectRef, is_there: bool) -> Option<u8> {
        if !Self::has(object.kind) {
            return None;
        }
        let part = part_of(&object.name);
        let names = self.0.entry((object.kind, part)).or_default();
        match is_there {
            true => names.insert(object.name.clone()),
            false => names.remove(&object.name),
        };
        Some(part)
    }

    /// The names of a part, in order.
    pub(super) fn get(&self, kind: Kind, part: u8) -> impl Iterator<Item = &NamespacedName> {
        self.0.get(&(kind, part)).into_iter().flatten()
    }
}
