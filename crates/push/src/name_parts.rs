//! Names cut into parts: where there may be tens of thousands of objects of a kind, what looks at all of them looks at one part, and
//! a table of all is made of parts.

use std::hash::Hash;

use imbl::{OrdMap, OrdSet};

use navarch_api::hash::keyed_hash;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};

/// Into how many parts names are cut. A change costs as many looks at parts, and one at as many names as a part has.
pub const PARTS: u8 = 128;

/// The kinds whose names are kept in parts.
const KINDS: [Kind; 4] = [Kind::HttpRoute, Kind::GrpcRoute, Kind::TlsRoute, Kind::TcpRoute];

/// The names of objects, by kind and part. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct NameParts(OrdMap<(Kind, u8), OrdSet<NamespacedName>>);

/// The part that something is in: another in each process, so that nobody can choose it.
#[must_use]
pub fn part_of(key: &(impl Hash + ?Sized)) -> u8 {
    u8::try_from(keyed_hash(key) % u64::from(PARTS)).unwrap_or_default()
}

impl NameParts {
    /// Notes that there is such an object, or that there is none. Gives the part that it is in, if its kind has parts.
    pub(super) fn set(&mut self, object: &ObjectRef, is_there: bool) -> Option<u8> {
        if !KINDS.contains(&object.kind) {
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
