//! A map of sets, without empty sets.

use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Several values per key. Keys without values are not kept.
#[derive(Clone, Debug)]
pub(super) struct Multimap<K, V> {
    /// The values by key, never none.
    sets: FxHashMap<K, BTreeSet<V>>,
}

impl<K, V> Default for Multimap<K, V> {
    fn default() -> Self {
        Self { sets: FxHashMap::default() }
    }
}

impl<K: Hash + Eq, V: Ord> Multimap<K, V> {
    /// Adds a value.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.sets.entry(key).or_default().insert(value);
    }

    /// Takes a value away.
    pub(super) fn remove(&mut self, key: &K, value: &V) {
        if let Some(set) = self.sets.get_mut(key) {
            set.remove(value);
            if set.is_empty() {
                self.sets.remove(key);
            }
        }
    }

    /// The values of a key in order.
    pub(super) fn get<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a V> + use<'a, K, V> {
        self.sets.get(key).into_iter().flatten()
    }

    /// How many values a key has.
    #[must_use]
    pub(super) fn count(&self, key: &K) -> usize {
        self.sets.get(key).map_or(0, BTreeSet::len)
    }
}
