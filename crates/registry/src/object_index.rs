//! Objects by the hash of a key, cheap to clone.
//!
//! An ordered set of imbl takes three to five times the memory for each entry: it stores whole keys, in nodes that are half empty
//! after insertions in order (434 bytes for a pod with five keys, against 96 here). `HashIndex` of navarch-api is even smaller, but
//! a copy of it costs as much as its content.

use std::sync::Arc;

use imbl::OrdMap;

use navarch_api::object::{Kind, NamespacedName, ObjectRef};

/// Objects by 64-bit hashes. If two keys have the same hash, each finds the objects of both: among 5 million keys this has a
/// probability of one in a million, and clients cannot cause it, because hashes are keyed.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectIndex {
    /// Entries by the high bits of their hash, each list sorted. A change copies one list: 21 entries with 350,000 in all.
    buckets: OrdMap<u16, Arc<[Entry]>>,
}

/// An object of one hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// The hash without its high bits, which are in the number of the bucket, followed by the index of the kind in [`Kind::ALL`].
    tag: u64,
    name: NamespacedName,
}

/// Number of high bits of a hash that are the number of the bucket.
const BUCKET_BITS: u32 = 14;
/// The number of bits of a tag for the kind. As many high bits of the hash are only in the number of the bucket.
const KIND_BITS: u32 = 8;

/// The bucket of a hash.
fn bucket(hash: u64) -> u16 {
    (hash >> (u64::BITS - BUCKET_BITS)) as u16
}

impl Entry {
    fn new(hash: u64, object: &ObjectRef) -> Self {
        Self { tag: hash << KIND_BITS | object.kind as u64, name: object.name.clone() }
    }

    fn object(&self) -> ObjectRef {
        let kind = usize::from(self.tag.to_le_bytes()[0]);
        ObjectRef { kind: *Kind::ALL.get(kind).expect("it was the place of a kind"), name: self.name.clone() }
    }
}

impl ObjectIndex {
    /// Adds an object to a hash.
    pub(super) fn insert(&mut self, hash: u64, object: &ObjectRef) {
        let entry = Entry::new(hash, object);
        let entries = self.buckets.entry(bucket(hash)).or_default();
        if let Err(at) = entries.binary_search(&entry) {
            let (before, after) = entries.split_at(at);
            *entries = before.iter().cloned().chain([entry]).chain(after.iter().cloned()).collect();
        }
    }

    /// Removes an object from a hash.
    pub(super) fn remove(&mut self, hash: u64, object: &ObjectRef) {
        let Some(entries) = self.buckets.get_mut(&bucket(hash)) else { return };
        let Ok(at) = entries.binary_search(&Entry::new(hash, object)) else { return };
        if entries.len() == 1 {
            self.buckets.remove(&bucket(hash));
            return;
        }
        let (before, after) = entries.split_at(at);
        *entries = before.iter().chain(after.iter().skip(1)).cloned().collect();
    }

    /// The objects of a hash, in their order.
    pub(super) fn get(&self, hash: u64) -> impl Iterator<Item = ObjectRef> + use<'_> {
        let entries = self.buckets.get(&bucket(hash)).map(|entries| &**entries).unwrap_or_default();
        let from = entries.partition_point(|entry| entry.tag < hash << KIND_BITS);
        let here = entries.iter().skip(from);
        here.take_while(move |entry| entry.tag >> KIND_BITS == hash << KIND_BITS >> KIND_BITS).map(Entry::object)
    }

    /// Whether it has no objects.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, name: &str) -> ObjectRef {
        ObjectRef { kind, name: NamespacedName::new("shop", name) }
    }

    #[test]
    fn objects_are_found_by_their_hash_in_order_as_long_as_they_are_there() {
        let mut index = ObjectIndex::default();
        // The first three are in one bucket.
        let hashes = [1, 2, 1 << 49, u64::MAX, 1 << 50];
        let objects = [object(Kind::ServiceImport, "a"), object(Kind::Namespace, "b"), object(Kind::Pod, "c")];
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
            assert_eq!(found(&index, hash), [objects[1].clone(), objects[0].clone()]);
        }
        assert_eq!(found(&index, 3), []);
        for hash in hashes {
            objects.iter().for_each(|object| index.remove(hash, object));
        }
        assert!(index.is_empty() && found(&copy, 2) == sorted);
    }

    #[test]
    fn kinds_stand_at_their_own_places() {
        assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| *kind as usize == at));
        assert!(Kind::ALL.len() <= 1 << KIND_BITS);
    }
}
