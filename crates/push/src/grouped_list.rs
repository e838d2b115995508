//! Long sorted lists in two levels: items in chunks, and consecutive chunks in groups.
//!
//! Both levels are cut by their content, as in [`chunked_list`](crate::chunked_list). A change of one
//! item makes a new chunk in a new group, and passes over the other groups: with a million items
//! these are a thousand, where the chunks are thirty thousand.

use std::collections::BTreeSet;
use std::collections::btree_set;
use std::hash::Hash;
use std::iter::Peekable;

use crate::chunked_list::{Chunk, ChunkedList, Cutter};

/// Consecutive chunks of a list. As a key its cost is independent of the number of items.
pub(crate) type Group<T> = Chunk<Chunk<T>>;

/// A sorted list without duplicates, in groups of chunks. Equal lists are cut equally, however they
/// were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupedList<T> {
    groups: ChunkedList<Chunk<T>>,
}

impl<T> GroupedList<T> {
    /// The groups in order.
    pub(crate) fn groups(&self) -> &[Group<T>] {
        &self.groups
    }

    /// The only chunk; `None` if there are several, or none.
    pub(crate) fn only_chunk(&self) -> Option<&Chunk<T>> {
        let [group] = self.groups.as_slice() else {
            return None;
        };
        let [chunk] = group.items() else {
            return None;
        };
        Some(chunk)
    }

    /// All items in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.groups
            .iter()
            .flat_map(Chunk::items)
            .flat_map(Chunk::items)
    }

    /// The chunks from the first one whose last item `is_wanted`, as are all items behind that one.
    pub(crate) fn chunks_from(
        &self,
        is_wanted: impl Fn(&T) -> bool,
    ) -> impl Iterator<Item = &Chunk<T>> {
        let is_before =
            |chunk: &Chunk<T>| chunk.items().last().is_some_and(|last| !is_wanted(last));
        let is_group_before = |group: &Group<T>| group.items().last().is_some_and(is_before);

        let at = self.groups.partition_point(is_group_before);
        let groups = self.groups.get(at..).unwrap_or_default();
        let chunks = groups.first().map(Chunk::items).unwrap_or_default();
        let done = chunks.partition_point(is_before);
        groups.iter().flat_map(Chunk::items).skip(done)
    }

    /// Whether there are no items.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl<T: Hash> GroupedList<T> {
    /// Cuts items that are sorted and contain no duplicates.
    pub(crate) fn of_sorted(items: impl IntoIterator<Item = T>) -> Self {
        let mut cutter = GroupCutter::default();
        for item in items {
            cutter.push(item);
        }
        cutter.finish()
    }
}

impl<T: Clone + Hash + Ord> GroupedList<T> {
    /// Sorts items, removes duplicates, and cuts them.
    pub(crate) fn sort<'a>(items: impl IntoIterator<Item = &'a T>) -> Self
    where
        T: 'a,
    {
        let mut items: Vec<&T> = items.into_iter().collect();
        items.sort_unstable();
        items.dedup();
        Self::of_sorted(items.into_iter().cloned())
    }

    /// The list after items were added and removed, which equals that of [`Self::of_sorted`]. The
    /// cost is proportional to the number of groups, the chunks of changed groups, and the items of
    /// changed chunks.
    pub(crate) fn update(&self, added: &BTreeSet<T>, removed: &BTreeSet<T>) -> Self {
        let mut edits = Edits {
            added: added.iter().peekable(),
            removed: removed.iter().peekable(),
        };
        let mut new = GroupCutter::default();
        let mut groups = self.groups.iter().peekable();

        while let Some(group) = groups.next() {
            let is_last_group = groups.peek().is_none();
            if new.is_at_group_boundary() && !edits.touches_group(group, is_last_group) {
                new.groups.push(group.clone());
                continue;
            }

            let mut chunks = group.items().iter().peekable();
            while let Some(chunk) = chunks.next() {
                let is_last_chunk = is_last_group && chunks.peek().is_none();
                if new.items.is_at_boundary() && !edits.touches(chunk, is_last_chunk) {
                    new.push_chunk(chunk.clone());
                } else {
                    edits.apply(chunk, &mut new);
                }
            }
        }

        for item in edits.added {
            new.push(item.clone());
        }

        new.finish()
    }
}

impl<T> Default for GroupedList<T> {
    fn default() -> Self {
        Self { groups: Vec::new() }
    }
}

/// Items that are to be added and removed behind the current position in a list.
struct Edits<'a, T> {
    added: Peekable<btree_set::Iter<'a, T>>,
    removed: Peekable<btree_set::Iter<'a, T>>,
}

impl<T: Clone + Hash + Ord> Edits<'_, T> {
    /// Whether a group may change; see [`Self::touches`].
    fn touches_group(&mut self, group: &Group<T>, is_last: bool) -> bool {
        group
            .items()
            .last()
            .is_some_and(|chunk| self.touches(chunk, is_last))
    }

    /// Whether an item is added or removed before the end of a chunk. The last chunk of a list may
    /// be incomplete: items after it belong to it.
    fn touches(&mut self, chunk: &Chunk<T>, is_last: bool) -> bool {
        let Some(last) = chunk.items().last() else {
            return false;
        };
        self.added
            .peek()
            .is_some_and(|item| is_last || *item <= last)
            || self.removed.peek().is_some_and(|item| *item <= last)
    }

    /// Appends the items of a chunk, with those that are added before them and without those that
    /// are removed.
    fn apply(&mut self, chunk: &Chunk<T>, new: &mut GroupCutter<T>) {
        for item in chunk.items() {
            while let Some(before) = self.added.next_if(|other| *other < item) {
                new.push(before.clone());
            }
            // It is in the list already.
            self.added.next_if(|other| *other == item);

            while self.removed.next_if(|other| *other < item).is_some() {}
            if self.removed.next_if(|other| *other == item).is_none() {
                new.push(item.clone());
            }
        }
    }
}

/// A list under construction.
struct GroupCutter<T> {
    groups: ChunkedList<Chunk<T>>,
    /// The chunks after the last group.
    chunks: Cutter<Chunk<T>>,
    /// The items after the last chunk.
    items: Cutter<T>,
}

impl<T: Hash> GroupCutter<T> {
    fn push(&mut self, item: T) {
        if let Some(chunk) = self.items.push(item) {
            self.push_chunk(chunk);
        }
    }

    /// Appends a complete chunk.
    fn push_chunk(&mut self, chunk: Chunk<T>) {
        self.groups.extend(self.chunks.push(chunk));
    }

    /// Whether the next item begins a group.
    fn is_at_group_boundary(&self) -> bool {
        self.items.is_at_boundary() && self.chunks.is_at_boundary()
    }

    fn finish(mut self) -> GroupedList<T> {
        if let Some(chunk) = self.items.take() {
            self.push_chunk(chunk);
        }
        self.groups.extend(self.chunks.take());
        self.groups.shrink_to_fit();
        GroupedList {
            groups: self.groups,
        }
    }
}

impl<T> Default for GroupCutter<T> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            chunks: Cutter::default(),
            items: Cutter::default(),
        }
    }
}

#[cfg(test)]
mod tests;
