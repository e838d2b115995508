//! An index from hashes of keys to numbers of items.

use std::fmt;
use std::hash::Hash;

use crate::hash::{KeyedMap, keyed_hash};

/// An index of numbered items. It stores only eight bytes per key, neither items nor keys. The
/// caller must check a found item, since another key can have the same hash.
#[derive(Clone, Default)]
pub struct HashIndex {
    entries: KeyedMap<u32, IndexEntry>,
    /// The numbers of entries with several items, ascending.
    lists: Vec<Vec<u32>>,
    /// Indexes of unused lists.
    free: Vec<u32>,
}

/// One number; or, with [`LIST_TAG`] set, the index of a list.
#[derive(Clone, Copy, Debug)]
struct IndexEntry(u32);

/// The bit that marks indexes of lists.
const LIST_TAG: u32 = 1 << 31;

/// Lists up to this length have exact capacity: most stay this short.
const MAX_EXACT_CAPACITY: usize = 8;

impl IndexEntry {
    /// The index of the list, if it is one.
    fn list(self) -> Option<usize> {
        (self.0 & LIST_TAG != 0).then(|| usize::try_from(self.0 & !LIST_TAG).unwrap_or(usize::MAX))
    }
}

impl fmt::Debug for HashIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.entries
                    .iter()
                    .map(|(hash, entry)| (hash, self.numbers(entry))),
            )
            .finish()
    }
}

/// The hash of a key in a [`HashIndex`], for callers with keys of many types: only the hashing is
/// compiled for each type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(u32);

impl KeyHash {
    /// Equal for equal keys within this process, different in another: the hash function has a
    /// random key.
    pub fn of(key: &(impl Hash + ?Sized)) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "half of the bits of a hash are still a hash"
        )]
        let hash = keyed_hash(key) as u32;
        Self(hash)
    }
}

impl HashIndex {
    /// Adds an item, whose number is less than 2³¹, to a key.
    pub fn insert(&mut self, key: &(impl Hash + ?Sized), number: u32) {
        self.insert_at(KeyHash::of(key), number);
    }

    /// Removes an item from a key.
    pub fn remove(&mut self, key: &(impl Hash + ?Sized), number: u32) {
        self.remove_at(KeyHash::of(key), number);
    }

    /// The numbers of the items of a key, ascending and unique; some may have another key with the
    /// same hash.
    #[must_use]
    pub fn get(&self, key: &(impl Hash + ?Sized)) -> &[u32] {
        self.get_at(KeyHash::of(key))
    }

    /// Whether it has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// As [`HashIndex::insert`], for the hash of the key.
    pub fn insert_at(&mut self, hash: KeyHash, number: u32) {
        let entry = self.entries.entry(hash.0).or_insert(IndexEntry(number));
        let Some(list) = entry.list() else {
            if entry.0 != number {
                let both = vec![entry.0.min(number), entry.0.max(number)];
                let at = self.free.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    u32::try_from(self.lists.len() - 1)
                        .expect("there are at least as many numbers as lists, and fewer than 2³¹")
                });
                *entry = IndexEntry(at | LIST_TAG);
                if let Some(list) = entry.list().and_then(|at| self.lists.get_mut(at)) {
                    *list = both;
                }
            }
            return;
        };

        if let Some(list) = self.lists.get_mut(list)
            && let Err(at) = list.binary_search(&number)
        {
            if list.len() < MAX_EXACT_CAPACITY {
                list.reserve_exact(1);
            }
            list.insert(at, number);
        }
    }

    /// As [`HashIndex::remove`], for the hash of the key.
    pub fn remove_at(&mut self, hash: KeyHash, number: u32) {
        let Some(entry) = self.entries.get_mut(&hash.0) else {
            return;
        };

        let Some(at) = entry.list() else {
            if entry.0 == number {
                self.entries.remove(&hash.0);
            }
            return;
        };

        let Some(list) = self.lists.get_mut(at) else {
            return;
        };

        if let Ok(at) = list.binary_search(&number) {
            list.remove(at);
        }

        if let [one] = list[..] {
            *list = Vec::new();
            self.free.push(entry.0 & !LIST_TAG);
            *entry = IndexEntry(one);
        }
    }

    /// As [`HashIndex::get`], for the hash of the key.
    #[must_use]
    pub fn get_at(&self, hash: KeyHash) -> &[u32] {
        self.entries
            .get(&hash.0)
            .map(|entry| self.numbers(entry))
            .unwrap_or_default()
    }

    /// Frees memory that this many keys do not need.
    pub fn shrink_to(&mut self, keys: usize) {
        self.entries.shrink_to(keys);
    }

    fn numbers<'a>(&'a self, entry: &'a IndexEntry) -> &'a [u32] {
        match entry.list() {
            Some(at) => self
                .lists
                .get(at)
                .expect("an entry with the list tag has a list"),
            None => std::slice::from_ref(&entry.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_until_they_are_removed() {
        let mut index = HashIndex::default();
        let found = |index: &HashIndex, key: &str| index.get(key).to_vec();
        for number in [2, 2, 1, 3] {
            index.insert("k", number);
        }

        index.insert("other", 7);
        assert_eq!(
            (found(&index, "k"), found(&index, "other")),
            (vec![1, 2, 3], vec![7])
        );
        index.remove("k", 9);
        index.remove("k", 1);
        index.remove("k", 3);

        assert_eq!(found(&index, "k"), [2]);
        index.remove("k", 5);
        assert_eq!(found(&index, "k"), [2]);
        index.remove("k", 2);
        index.remove("other", 7);
        assert!(found(&index, "k").is_empty() && index.entries.is_empty());
    }

    #[test]
    fn lists_are_used_again() {
        let mut index = HashIndex::default();
        for round in 0..3 {
            for number in (0..40).rev() {
                index.insert(&round, number);
            }
            assert_eq!(index.get(&round), (0..40).collect::<Vec<_>>());
            for number in 0..40 {
                index.remove(&round, number);
            }
            assert_eq!(index.get(&round), &[] as &[u32]);
        }
        assert_eq!((index.lists.len(), index.entries.len()), (1, 0));
    }
}
