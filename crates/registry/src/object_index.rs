//! Objects by the hash of a key, cheap to clone.
//!
//! Entries are ordered by hash, so that the nodes of the set fill evenly, and take 16 bytes. Keys
//! in full, in the order of their names, leave nodes half empty: 434 bytes for a pod with five
//! keys. `HashIndex` of navarch-tables is smaller still, but a copy of it costs all that it contains.

use std::ops::Bound;

use imbl::OrdSet;

use navarch_api::object::{Kind, NamespacedName, ObjectRef};

/// Objects by 56-bit hashes. Of two keys with one hash, each finds the objects of both: 5 million
/// keys have such a pair with a probability of one in 5,000, and nobody can choose it, since hashes
/// are keyed.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectIndex {
    entries: OrdSet<IndexedObject>,
}

/// An object of one hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IndexedObject {
    /// The hash without its high bits, above the kind's index in [`Kind::ALL`].
    tag: u64,
    name: NamespacedName,
}

/// Number of bits of a tag that contain the kind.
const KIND_BITS: u32 = 8;

impl IndexedObject {
    fn new(hash: u64, object: &ObjectRef) -> Self {
        Self {
            tag: hash << KIND_BITS | object.kind as u64,
            name: object.name.clone(),
        }
    }

    fn object(&self) -> ObjectRef {
        let kind = usize::from(self.tag.to_le_bytes()[0]);
        ObjectRef {
            kind: *Kind::ALL.get(kind).expect("it was the index of a kind"),
            name: self.name.clone(),
        }
    }
}

impl ObjectIndex {
    /// Adds an object to a hash.
    pub(super) fn insert(&mut self, hash: u64, object: &ObjectRef) {
        self.entries.insert(IndexedObject::new(hash, object));
    }

    pub(super) fn remove(&mut self, hash: u64, object: &ObjectRef) {
        self.entries.remove(&IndexedObject::new(hash, object));
    }

    /// The objects of a hash, in their order.
    pub(super) fn get(&self, hash: u64) -> impl Iterator<Item = ObjectRef> + use<'_> {
        let tag = hash << KIND_BITS;
        let first = IndexedObject {
            tag,
            name: NamespacedName::default(),
        };
        let here = self
            .entries
            .range((Bound::Included(first), Bound::Unbounded));
        here.take_while(move |entry| entry.tag >> KIND_BITS == tag >> KIND_BITS)
            .map(IndexedObject::object)
    }

    /// Whether it has no objects.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, name: &str) -> ObjectRef {
        ObjectRef {
            kind,
            name: NamespacedName::new("shop", name),
        }
    }

    #[test]
    fn objects_are_found_by_hash_in_order_until_they_are_removed() {
        let mut index = ObjectIndex::default();
        let hashes = [1, 2, 1 << 49, u64::MAX, 1 << 50];
        let objects = [
            object(Kind::ServiceImport, "a"),
            object(Kind::Namespace, "b"),
            object(Kind::Pod, "c"),
        ];

        for hash in hashes {
            for object in objects.iter().chain(&objects) {
                index.insert(hash, object);
            }
        }

        let copy = index.clone();
        let found = |index: &ObjectIndex, hash| index.get(hash).collect::<Vec<_>>();
        let mut sorted = objects.to_vec();
        sorted.sort();

        for hash in hashes {
            assert_eq!(found(&index, hash), sorted);
            index.remove(hash, &objects[2]);
            index.remove(hash, &objects[2]);
            assert_eq!(
                found(&index, hash),
                [objects[1].clone(), objects[0].clone()]
            );
        }

        assert_eq!(found(&index, 3), []);
        for hash in hashes {
            objects.iter().for_each(|object| index.remove(hash, object));
        }

        assert!(index.is_empty() && found(&copy, 2) == sorted);
    }

    #[test]
    fn kind_numbers_match_their_positions() {
        assert!(
            Kind::ALL
                .iter()
                .enumerate()
                .all(|(at, kind)| *kind as usize == at)
        );
        assert!(Kind::ALL.len() <= 1 << KIND_BITS);
    }
}
