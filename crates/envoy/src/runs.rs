//! Long lists cut into runs, so that a change of one item rechecks its run and not all items.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use navarch_api::hash::keyed_hash;

/// Mean number of items in a run.
const MEAN_RUN_LENGTH: u64 = 32;
/// Maximum number of items in a run.
const MAX_RUN: usize = 128;

/// Consecutive items of a list. As a key its cost is independent of the number of items.
#[derive(Clone, Debug)]
pub(crate) struct Run<T> {
    /// Hash of the items.
    hash: u64,
    items: Arc<[T]>,
}

impl<T> Run<T> {
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }
}

impl<T: PartialEq> PartialEq for Run<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && (Arc::ptr_eq(&self.items, &other.items) || *self.items == *other.items)
    }
}

impl<T: Eq> Eq for Run<T> {}

impl<T> Hash for Run<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Splits a list into runs. The end of a run depends only on the item, not on its position: added
/// and removed items change only their own runs.
pub(crate) fn cut<T: Hash>(items: impl IntoIterator<Item = T>) -> Vec<Run<T>> {
    let mut runs = Vec::new();
    let mut run = Vec::new();
    let mut hashes = Vec::new();

    for item in items {
        let hash = keyed_hash(&item);
        run.push(item);
        hashes.push(hash);
        if hash.is_multiple_of(MEAN_RUN_LENGTH) || run.len() >= MAX_RUN {
            runs.push(Run {
                hash: keyed_hash(&hashes),
                items: std::mem::take(&mut run).into(),
            });
            hashes.clear();
        }
    }

    if !run.is_empty() {
        runs.push(Run {
            hash: keyed_hash(&hashes),
            items: run.into(),
        });
    }

    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_the_list_and_an_insertion_changes_few_of_them() {
        for count in [0, 1, 5_000] {
            let joined: Vec<u32> = cut(0..count)
                .iter()
                .flat_map(|run| run.items().to_vec())
                .collect();
            assert_eq!(joined, (0..count).collect::<Vec<_>>());
        }
        let before = cut(0..5_000);
        assert!((80..320).contains(&before.len()), "{}", before.len());
        let after = cut((0..5_000).filter(|n| *n != 2_000));
        assert!(after.iter().filter(|run| !before.contains(run)).count() <= 4);
    }
}
