//! A map of sets, without empty sets.

use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Several values per key. Keys without values are not kept.
#[derive(Clone, Debug)]
pub(super) struct Multimap<K, V> {
    /// The values by key, never none.
    sets: FxHashMap<K, Values<V>>,
}

/// The values of a key. Most have one, for which a set would take room for a dozen.
#[derive(Clone, Debug)]
enum Values<V> {
    /// One.
    One(V),
    /// Several, or one that is left of several.
    Many(BTreeSet<V>),
}

impl<K, V> Default for Multimap<K, V> {
    fn default() -> Self {
        Self { sets: FxHashMap::default() }
    }
}

impl<K: Hash + Eq, V: Ord> Multimap<K, V> {
    /// Adds a value.
    pub(super) fn insert(&mut self, key: K, value: V) {
        let values = match self.sets.remove(&key) {
            None => Values::One(value),
            Some(Values::One(one)) if one == value => Values::One(one),
            Some(Values::One(one)) => Values::Many(BTreeSet::from([one, value])),
            Some(Values::Many(mut many)) => {
                many.insert(value);
                Values::Many(many)
            }
        };
        self.sets.insert(key, values);
    }

    /// Takes a value away.
    pub(super) fn remove(&mut self, key: &K, value: &V) {
        let is_empty = match self.sets.get_mut(key) {
            None => false,
            Some(Values::One(one)) => one == value,
            Some(Values::Many(many)) => many.remove(value) && many.is_empty(),
        };
        if is_empty {
            self.sets.remove(key);
        }
    }

    /// The values of a key in order.
    pub(super) fn get<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a V> + use<'a, K, V> {
        let (one, many) = match self.sets.get(key) {
            None => (None, None),
            Some(Values::One(one)) => (Some(one), None),
            Some(Values::Many(many)) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// How many values a key has.
    #[must_use]
    pub(super) fn count(&self, key: &K) -> usize {
        match self.sets.get(key) {
            None => 0,
            Some(Values::One(_)) => 1,
            Some(Values::Many(many)) => many.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_order_and_keys_without_any_are_not_kept() {
        let mut map = Multimap::default();
        let values = |map: &Multimap<&str, i32>| (map.get(&"k").copied().collect::<Vec<_>>(), map.count(&"k"));
        for value in [2, 2, 1, 3] {
            map.insert("k", value);
        }
        assert_eq!(values(&map), (vec![1, 2, 3], 3));
        map.remove(&"k", &7);
        map.remove(&"k", &1);
        map.remove(&"k", &3);
        assert_eq!(values(&map), (vec![2], 1));
        map.remove(&"k", &2);
        assert!(map.sets.is_empty());
        map.insert("k", 5);
        map.remove(&"k", &4);
        assert_eq!(values(&map), (vec![5], 1));
        map.remove(&"k", &5);
        assert!(map.sets.is_empty());
    }
}
