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

/// Up to how many values of a key are kept in a list: a set takes room for a dozen, and changes of long lists cost.
const FEW: usize = 16;

/// The values of a key. Most have one.
#[derive(Clone, Debug)]
enum Values<V> {
    /// One.
    One(V),
    /// Several, or what is left of several.
    More(Box<More<V>>),
}

/// Several values.
#[derive(Clone, Debug)]
enum More<V> {
    /// No more than [`FEW`], in order.
    Few(Vec<V>),
    /// Any number.
    Many(BTreeSet<V>),
}

impl<V: Ord> More<V> {
    /// Adds a value.
    fn insert(&mut self, value: V) {
        match self {
            Self::Few(few) => {
                if let Err(at) = few.binary_search(&value) {
                    few.reserve_exact(1);
                    few.insert(at, value);
                }
                if few.len() > FEW {
                    *self = Self::Many(std::mem::take(few).into_iter().collect());
                }
            }
            Self::Many(many) => {
                many.insert(value);
            }
        }
    }

    /// Takes a value away. Says whether none is left.
    fn remove(&mut self, value: &V) -> bool {
        match self {
            Self::Few(few) => {
                if let Ok(at) = few.binary_search(value) {
                    few.remove(at);
                }
                few.is_empty()
            }
            Self::Many(many) => {
                many.remove(value);
                many.is_empty()
            }
        }
    }
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
            Some(Values::One(one)) => {
                let few = if one < value { vec![one, value] } else { vec![value, one] };
                Values::More(Box::new(More::Few(few)))
            }
            Some(Values::More(mut more)) => {
                more.insert(value);
                Values::More(more)
            }
        };
        self.sets.insert(key, values);
    }

    /// Takes a value away.
    pub(super) fn remove(&mut self, key: &K, value: &V) {
        let is_empty = match self.sets.get_mut(key) {
            None => false,
            Some(Values::One(one)) => one == value,
            Some(Values::More(more)) => more.remove(value),
        };
        if is_empty {
            self.sets.remove(key);
        }
    }

    /// The values of a key in order.
    pub(super) fn get<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a V> + use<'a, K, V> {
        let (few, many): (&[V], _) = match self.sets.get(key) {
            None => (&[], None),
            Some(Values::One(one)) => (std::slice::from_ref(one), None),
            Some(Values::More(more)) => match &**more {
                More::Few(few) => (few, None),
                More::Many(many) => (&[], Some(many)),
            },
        };
        few.iter().chain(many.into_iter().flatten())
    }

    /// How many values a key has.
    #[must_use]
    pub(super) fn count(&self, key: &K) -> usize {
        match self.sets.get(key) {
            None => 0,
            Some(Values::One(_)) => 1,
            Some(Values::More(more)) => match &**more {
                More::Few(few) => few.len(),
                More::Many(many) => many.len(),
            },
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
        for value in (0..40).rev().chain(0..40) {
            map.insert("k", value);
        }
        assert_eq!(values(&map), ((0..40).collect(), 40));
        for value in 0..39 {
            map.remove(&"k", &value);
        }
        assert_eq!(values(&map), (vec![39], 1));
        map.remove(&"k", &39);
        assert!(map.sets.is_empty());
    }
}
