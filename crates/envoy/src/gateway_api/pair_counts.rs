//! Counts by two keys, such as the number of routes of each listener: a table that is updated, not
//! rebuilt, when counted items are added or removed, and read in parts.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use imbl::OrdMap;

use navarch_push::name_parts::{PARTS, part_of};

/// The count of each pair.
pub(super) type Sums<K, V> = BTreeMap<(K, V), i32>;

/// The counts of one first key, by the second key; never zero.
pub(super) type Counts<V> = BTreeMap<V, i32>;

/// One shard of the counts.
pub(super) type CountsPart<K, V> = Arc<OrdMap<K, Arc<Counts<V>>>>;

/// The counts of all pairs, sharded by the first key.
#[derive(Clone, Debug)]
pub(super) struct PairCounts<K: Clone + Ord, V: Clone + Ord> {
    /// The input of each shard.
    sums: Vec<Arc<Sums<K, V>>>,
    /// The counts by first key, in parts of all first keys.
    parts: Vec<CountsPart<K, V>>,
}

impl<K: Clone + Ord + Hash, V: Clone + Ord> PairCounts<K, V> {
    pub(super) fn empty() -> Self {
        let parts = usize::from(PARTS);
        Self {
            sums: vec![Arc::default(); parts],
            parts: vec![Arc::default(); parts],
        }
    }

    /// The updated counts, where `sum` returns the input of each part. The cost is proportional to
    /// the differences.
    pub(super) fn updated(&self, sum: impl FnMut(u8) -> Arc<Sums<K, V>>) -> Self {
        let mut new = Self {
            sums: (0..PARTS).map(sum).collect(),
            parts: self.parts.clone(),
        };
        let mut changes: BTreeMap<&(K, V), i32> = BTreeMap::new();

        for (before, now) in self
            .sums
            .iter()
            .zip(&new.sums)
            .filter(|(before, now)| !Arc::ptr_eq(before, now))
        {
            before
                .iter()
                .for_each(|(pair, count)| *changes.entry(pair).or_default() -= count);
            now.iter()
                .for_each(|(pair, count)| *changes.entry(pair).or_default() += count);
        }

        for ((key, other), change) in changes.into_iter().filter(|(_, change)| *change != 0) {
            let part = new.parts.get_mut(usize::from(part_of(key)));
            let part = part.expect("there are as many parts as `part_of` returns");
            let part = Arc::make_mut(part);
            let mut counts = part
                .get(key)
                .map(|counts| Counts::clone(counts))
                .unwrap_or_default();

            match counts.get(other).copied().unwrap_or_default() + change {
                0 => _ = counts.remove(other),
                count => _ = counts.insert(other.clone(), count),
            }

            match counts.is_empty() {
                true => _ = part.remove(key),
                false => _ = part.insert(key.clone(), Arc::new(counts)),
            }
        }

        new
    }

    /// One part of the first keys.
    pub(super) fn part(&self, part: u8) -> CountsPart<K, V> {
        self.parts
            .get(usize::from(part))
            .expect("there are as many parts as `part_of` returns")
            .clone()
    }
}

impl<K: Clone + Ord, V: Clone + Ord> PartialEq for PairCounts<K, V> {
    fn eq(&self, other: &Self) -> bool {
        // The input is not compared: it determines the counts.
        self.parts == other.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(tally: &PairCounts<&'static str, u8>, key: &'static str) -> Vec<(u8, i32)> {
        let part = tally.part(part_of(&key));
        part.get(key)
            .map(|counts| {
                counts
                    .iter()
                    .map(|(other, count)| (*other, *count))
                    .collect()
            })
            .unwrap_or_default()
    }

    #[test]
    fn pair_counts_follow_additions_and_removals() {
        let sums = |part: u8, some: &[(&'static str, u8, i32)]| {
            let some: Arc<Sums<&'static str, u8>> = Arc::new(
                some.iter()
                    .map(|(key, other, count)| ((*key, *other), *count))
                    .collect(),
            );
            move |requested: u8| {
                if requested == part {
                    some.clone()
                } else {
                    Arc::default()
                }
            }
        };

        let first = PairCounts::empty().updated(sums(3, &[("a", 1, 2), ("a", 2, 1), ("b", 1, 1)]));
        assert_eq!(
            (counts(&first, "a"), counts(&first, "b")),
            (vec![(1, 2), (2, 1)], vec![(1, 1)])
        );

        // Elsewhere they count as well.
        let moved = first.updated(sums(4, &[("a", 1, 2), ("a", 2, 1), ("b", 1, 1)]));
        assert!(moved == first);
        let second = first.updated(sums(3, &[("a", 1, 1), ("c", 1, 1)]));
        assert_eq!(
            (counts(&second, "a"), counts(&second, "b")),
            (vec![(1, 1)], vec![])
        );

        assert!(second == PairCounts::empty().updated(sums(0, &[("a", 1, 1), ("c", 1, 1)])));
    }
}
