//! Lists that are cut into chunks by their content, so that a change of one item rechecks its chunk
//! and not all items.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use navarch_tables::hash::keyed_hash;

/// Mean number of items in a chunk: a change rechecks the items of one chunk, and all chunks of the
/// list.
const MEAN_CHUNK_LENGTH: u64 = 32;
/// Maximum number of items in a chunk.
const MAX_CHUNK_LENGTH: usize = 128;

/// Consecutive items of a list. As a key its cost is independent of the number of items.
#[derive(Clone, Debug)]
pub struct Chunk<T> {
    /// Hash of the items' hashes.
    hash: u64,
    items: Arc<[T]>,
}

/// A list in chunks.
pub type ChunkedList<T> = Vec<Chunk<T>>;

impl<T> Chunk<T> {
    /// The items, at least one.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

impl<T: PartialEq> PartialEq for Chunk<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && (Arc::ptr_eq(&self.items, &other.items) || *self.items == *other.items)
    }
}

impl<T: Eq> Eq for Chunk<T> {}

impl<T> Hash for Chunk<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A list under construction.
struct Cutter<T> {
    chunks: ChunkedList<T>,
    /// The items after the last chunk.
    rest: Vec<T>,
    /// Their hashes.
    hashes: Vec<u64>,
}

impl<T: Hash> Cutter<T> {
    fn with_capacity(chunks: usize) -> Self {
        Self {
            chunks: Vec::with_capacity(chunks),
            rest: Vec::new(),
            hashes: Vec::new(),
        }
    }

    /// Appends an item, and ends the chunk if needed.
    fn push(&mut self, item: T) {
        let hash = keyed_hash(&item);
        self.rest.push(item);
        self.hashes.push(hash);
        if is_end(hash) || self.rest.len() >= MAX_CHUNK_LENGTH {
            self.end_chunk();
        }
    }

    fn end_chunk(&mut self) {
        self.chunks.push(Chunk {
            hash: keyed_hash(&self.hashes),
            items: std::mem::take(&mut self.rest).into(),
        });
        self.hashes.clear();
    }

    fn finish(mut self) -> ChunkedList<T> {
        if !self.rest.is_empty() {
            self.end_chunk();
        }
        self.chunks
    }
}

/// Cuts a list. The hash of an item decides whether a chunk ends there, independently of its
/// position: added and removed items change the chunks that contain them, and leave the others
/// unchanged.
#[must_use]
pub fn cut<T: Hash>(items: impl IntoIterator<Item = T>) -> ChunkedList<T> {
    let mut cutter = Cutter::with_capacity(0);
    for item in items {
        cutter.push(item);
    }
    cutter.finish()
}

/// Sorts items, removes duplicates, and cuts them.
#[must_use]
pub fn sort_and_cut<'a, T: Clone + Hash + Ord + 'a>(
    items: impl IntoIterator<Item = &'a T>,
) -> ChunkedList<T> {
    let mut items: Vec<&T> = items.into_iter().collect();
    items.sort_unstable();
    items.dedup();
    cut(items.into_iter().cloned())
}

/// Updates a sorted list after items were added and removed: the result is the same as [`cut`] of
/// all items. The cost is proportional to the number of chunks, and the items of changed chunks.
#[must_use]
pub fn update<T: Clone + Hash + Ord>(
    list: &[Chunk<T>],
    added: &BTreeSet<T>,
    removed: &BTreeSet<T>,
) -> ChunkedList<T> {
    let mut added = added.iter().peekable();
    let mut removed = removed.iter().peekable();
    let mut new = Cutter::with_capacity(list.len());

    for chunk in list {
        let Some(last) = chunk.items.last() else {
            continue;
        };

        // The last chunk may be incomplete: items after it belong to it.
        let is_open = chunk.items.len() < MAX_CHUNK_LENGTH && !is_end(keyed_hash(last));
        let is_touched = added.peek().is_some_and(|item| is_open || *item <= last)
            || removed.peek().is_some_and(|item| *item <= last);

        // While no items of earlier chunks are left over, an untouched chunk is kept as it is.
        if new.rest.is_empty() && !is_touched {
            new.chunks.push(chunk.clone());
            continue;
        }

        for item in &*chunk.items {
            while let Some(before) = added.next_if(|other| *other < item) {
                new.push(before.clone());
            }
            // It is in the list already.
            added.next_if(|other| *other == item);
            while removed.next_if(|other| *other < item).is_some() {}
            if removed.next_if(|other| *other == item).is_none() {
                new.push(item.clone());
            }
        }
    }

    for item in added {
        new.push(item.clone());
    }

    new.finish()
}

/// Whether an item with this hash ends a chunk.
fn is_end(hash: u64) -> bool {
    hash.is_multiple_of(MEAN_CHUNK_LENGTH)
}

#[cfg(test)]
mod tests {
    use navarch_api::names::ResourceName;

    use super::*;

    fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<ResourceName> {
        numbers
            .into_iter()
            .map(|n| ResourceName::new(format!("outbound|80||svc{n:05}.shop")))
            .collect()
    }

    #[test]
    fn chunks_are_the_list() {
        for count in [0, 1, 31, 5000] {
            let all = names(0..count);
            let chunks = cut(all.clone());
            let joined: Vec<ResourceName> = chunks
                .iter()
                .flat_map(|chunk| chunk.items().iter().cloned())
                .collect();
            assert_eq!(joined, all);
            assert!(
                chunks
                    .iter()
                    .all(|chunk| (1..=MAX_CHUNK_LENGTH).contains(&chunk.items().len()))
            );
        }
        let chunks = cut(names(0..5000)).len();
        assert!((80..320).contains(&chunks), "{chunks}");
    }

    #[test]
    fn chunks_of_a_changed_list_equal_those_of_a_new_list() {
        let all = names(0..3000);
        let mut present: BTreeSet<ResourceName> = all.iter().step_by(2).cloned().collect();
        let mut chunks = update(&[], &present, &BTreeSet::new());
        assert_eq!(chunks, cut(present.clone()));

        for step in 0..60_usize {
            // Names in a row, scattered ones, the first and the last.
            let chosen = |from: usize, by: usize| {
                all.iter()
                    .skip(from)
                    .step_by(by)
                    .take(1 + step * 7)
                    .cloned()
            };

            let added: BTreeSet<ResourceName> = chosen(step * 41 % 3000, 1 + step % 5).collect();
            let removed: BTreeSet<ResourceName> = chosen(step * 53 % 3000, 1 + step % 3)
                .filter(|name| !added.contains(name))
                .collect();
            present.extend(added.iter().cloned());
            present.retain(|name| !removed.contains(name));
            chunks = update(&chunks, &added, &removed);
            assert_eq!(chunks, cut(present.clone()), "step {step}");
        }

        assert!(update(&chunks, &BTreeSet::new(), &present).is_empty());
    }

    #[test]
    fn names_after_the_last_one_join_its_chunk() {
        let all = names(0..500);
        let mut chunks = ChunkedList::new();
        for count in 1..=all.len() {
            chunks = update(
                &chunks,
                &BTreeSet::from([all[count - 1].clone()]),
                &BTreeSet::new(),
            );
            assert_eq!(chunks, cut(all[..count].to_vec()), "{count} names");
        }
    }

    #[test]
    fn an_added_name_changes_few_chunks() {
        let all = names(0..5000);
        let before = cut(all.clone());
        for gone in [0, 1234, 4999] {
            let fewer = all.iter().filter(|name| **name != all[gone]).cloned();
            let new = cut(fewer)
                .iter()
                .filter(|chunk| !before.contains(chunk))
                .count();
            assert!(new <= 4, "{new}");
        }
        assert_eq!(sort_and_cut(all.iter().rev().chain(&all)), before);
    }
}
