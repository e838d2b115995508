//! Numbers of things by the hash of what they are found by.

use std::fmt;
use std::hash::Hash;

use super::hash::{KeyedMap, keyed_hash};

/// Finds things that have numbers. Neither the things nor the keys are kept here, eight bytes for each key are: so what is found
/// has to be looked at, for now and then it is something whose key has the same hash.
#[derive(Clone, Default)]
pub struct HashIndex {
    /// Who is found under a hash.
    entries: KeyedMap<u32, Entry>,
    /// Where several are found under one: their numbers, ascending.
    lists: Vec<Vec<u32>>,
    /// Lists that are empty, to be used again.
    free: Vec<u32>,
}

/// One number; or, with [`LIST_TAG`] set, which of the lists there is.
#[derive(Clone, Copy, Debug)]
struct Entry(u32);

/// What sets the numbers of lists apart.
const LIST_TAG: u32 = 1 << 31;

/// Up to how many numbers a list has no room for more: most stay so short.
const MAX_EXACT_CAPACITY: usize = 8;

impl Entry {
    /// Which list this is, if it is one.
    fn list(self) -> Option<usize> {
        (self.0 & LIST_TAG != 0).then(|| usize::try_from(self.0 & !LIST_TAG).unwrap_or(usize::MAX))
    }
}

impl fmt::Debug for HashIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries.iter().map(|(hash, entry)| (hash, self.numbers(entry)))).finish()
    }
}

/// The hash of a key.
fn hash(key: &(impl Hash + ?Sized)) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    let hash = keyed_hash(key) as u32;
    hash
}

impl HashIndex {
    /// From now on the thing of this number, which is less than 2³¹, is found by this key.
    pub fn insert(&mut self, key: &(impl Hash + ?Sized), number: u32) {
        let entry = self.entries.entry(hash(key)).or_insert(Entry(number));
        let Some(list) = entry.list() else {
            if entry.0 != number {
                let both = vec![entry.0.min(number), entry.0.max(number)];
                let at = self.free.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    u32::try_from(self.lists.len() - 1).expect("there are more numbers than lists, and less than 2³¹")
                });
                *entry = Entry(at | LIST_TAG);
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

    /// The thing of this number is not found by this key any more.
    pub fn remove(&mut self, key: &(impl Hash + ?Sized), number: u32) {
        let hash = hash(key);
        let Some(entry) = self.entries.get_mut(&hash) else { return };
        let Some(at) = entry.list() else {
            if entry.0 == number {
                self.entries.remove(&hash);
            }
            return;
        };
        let Some(list) = self.lists.get_mut(at) else { return };
        if let Ok(at) = list.binary_search(&number) {
            list.remove(at);
        }
        if let [one] = list[..] {
            *list = Vec::new();
            self.free.push(entry.0 & !LIST_TAG);
            *entry = Entry(one);
        }
    }

    /// The numbers of the things that this key finds, ascending, each once; some may have another key.
    #[must_use]
    pub fn get(&self, key: &(impl Hash + ?Sized)) -> &[u32] {
        self.entries.get(&hash(key)).map(|entry| self.numbers(entry)).unwrap_or_default()
    }

    /// The numbers behind an entry.
    fn numbers<'a>(&'a self, entry: &'a Entry) -> &'a [u32] {
        match entry.list() {
            Some(at) => self.lists.get(at).expect("an entry with the list tag has its list"),
            None => std::slice::from_ref(&entry.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_as_long_as_they_are_there() {
        let mut index = HashIndex::default();
        let found = |index: &HashIndex, key: &str| index.get(key).to_vec();
        for number in [2, 2, 1, 3] {
            index.insert("k", number);
        }
        index.insert("other", 7);
        assert_eq!((found(&index, "k"), found(&index, "other")), (vec![1, 2, 3], vec![7]));
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
