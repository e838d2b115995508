//! Lists that are cut into chunks by their content, so that a change of one item rechecks its chunk
//! and not all items.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use navarch_tables::hash::keyed_hash;

/// Mean number of items in a chunk: a change rechecks the items of one chunk, and all chunks of the
/// list. Lists with thousands of chunks are a [`GroupedList`](crate::grouped_list::GroupedList).
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

/// Cuts items, one after the other.
pub(crate) struct Cutter<T> {
    /// The items after the last complete chunk.
    rest: Vec<T>,
    /// Their hashes.
    hashes: Vec<u64>,
}

impl<T: Hash> Cutter<T> {
    /// Appends an item. Returns the chunk that ends with it, if one does.
    pub(crate) fn push(&mut self, item: T) -> Option<Chunk<T>> {
        let hash = keyed_hash(&item);
        self.rest.push(item);
        self.hashes.push(hash);
        let is_complete = is_end(hash) || self.rest.len() >= MAX_CHUNK_LENGTH;
        match is_complete {
            true => self.take(),
            false => None,
        }
    }

    /// Takes the items after the last complete chunk, as a chunk; `None` if there are none.
    pub(crate) fn take(&mut self) -> Option<Chunk<T>> {
        if self.rest.is_empty() {
            return None;
        }
        let hash = keyed_hash(&self.hashes);
        self.hashes.clear();
        Some(Chunk {
            hash,
            items: std::mem::take(&mut self.rest).into(),
        })
    }

    /// Whether the next item begins a chunk.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<T> Default for Cutter<T> {
    fn default() -> Self {
        Self {
            rest: Vec::new(),
            hashes: Vec::new(),
        }
    }
}

/// Cuts a list. The hash of an item decides whether a chunk ends there, independently of its
/// position: added and removed items change the chunks that contain them, and leave the others
/// unchanged.
#[must_use]
pub fn cut<T: Hash>(items: impl IntoIterator<Item = T>) -> ChunkedList<T> {
    let mut cutter = Cutter::default();
    let mut chunks: ChunkedList<T> = items
        .into_iter()
        .filter_map(|item| cutter.push(item))
        .collect();
    chunks.extend(cutter.take());
    chunks
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
    }
}
