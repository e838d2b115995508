//! Small maps: all entries in one allocation.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Values by key, in the order of the keys, for maps that mostly have at most one entry: a node of
/// a tree would take the space of a dozen. Immutable; a lookup is a binary search.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmallMap<K, V>(Box<[(K, V)]>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The value of a key.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self
            .0
            .binary_search_by(|(other, _)| other.borrow().cmp(key))
            .ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    /// Of entries with the same key, the last is used.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        // Uses a tree only if the entries are not in the order of their keys, which is rare.
        let entries: Vec<(K, V)> = entries.into_iter().collect();
        if entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            return Self(entries.into());
        }
        Self(
            entries
                .into_iter()
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_in_order_and_the_last_of_a_key_counts() {
        let map: SmallMap<&str, i32> = [("b", 1), ("a", 2), ("b", 3)].into_iter().collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&"a", &2), (&"b", &3)]);
        assert_eq!(
            (map.get("b"), map.get("c"), map.is_empty()),
            (Some(&3), None, false)
        );
        assert!(SmallMap::<u8, u8>::default().is_empty());
    }
}
