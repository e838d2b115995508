//! Tables that assign a number to each distinct entry.

use std::collections::BTreeSet;

use super::ids::EntryId;
use navarch_tables::growth::push_tight;
use navarch_tables::hash_index::{HashIndex, KeyHash};

/// Entries by consecutive ids, found by the hash of their keys. Ids of removed entries are reused.
///
/// The key is a part of the entry, so it is stored once. The caller hashes and compares keys, since
/// a key can be found in another form than that in which it is stored.
#[derive(Clone)]
pub(crate) struct Interner<I, T> {
    /// `None` where an entry was removed.
    entries: Vec<Option<T>>,
    /// Ids of removed entries; the lowest is reused first so that `entries` can shrink.
    free: BTreeSet<I>,
    /// Indexes in `entries` by key.
    index: HashIndex,
}

/// The index in its table of an entry with this number in a [`HashIndex`].
fn index(number: u32) -> usize {
    usize::try_from(number).expect("a usize has at least 32 bits")
}

/// The number in a [`HashIndex`] of an entry with this index.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("2³² entries would take hundreds of gigabytes")
}

impl<I: EntryId, T> Interner<I, T> {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All indexes of entries are less than this.
    pub(crate) fn end(&self) -> usize {
        self.entries.len()
    }

    /// The entry whose key has this hash and for which `is_it` returns true.
    pub(crate) fn find(&self, hash: KeyHash, is_it: impl Fn(&T) -> bool) -> Option<I> {
        let mut candidates = self
            .index
            .get_at(hash)
            .iter()
            .map(|number| I::new(index(*number)));
        candidates.find(|id| self.get(*id).is_some_and(&is_it))
    }

    /// Adds an entry whose key is new.
    pub(crate) fn add(&mut self, hash: KeyHash, entry: T) -> I {
        let id = self
            .free
            .pop_first()
            .unwrap_or_else(|| I::new(self.entries.len()));
        match self.entries.get_mut(id.index()) {
            Some(slot) => *slot = Some(entry),
            None => push_tight(&mut self.entries, Some(entry)),
        }
        self.index.insert_at(hash, number(id.index()));
        id
    }

    /// Removes an entry, whose key has this hash.
    pub(crate) fn remove(&mut self, id: I, hash: KeyHash) {
        if let Some(slot) = self.entries.get_mut(id.index())
            && slot.take().is_some()
        {
            self.index.remove_at(hash, number(id.index()));
            self.free.insert(id);
        }
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.entries.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.entries.get_mut(id.index())?.as_mut()
    }

    /// All entries, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let slots = self.entries.iter().enumerate();
        slots.filter_map(|(at, slot)| Some((I::new(at), slot.as_ref()?)))
    }

    /// Cuts off the last slot, if it is free.
    pub(crate) fn cut_end(&mut self) -> bool {
        let is_free = self
            .free
            .last()
            .is_some_and(|last| last.index() + 1 == self.entries.len());
        if is_free {
            self.free.pop_last();
            self.entries.pop();
        }
        is_free
    }

    /// Frees memory of a table that was much larger.
    pub(crate) fn shrink(&mut self) {
        let room = 2 * self.entries.len() + 1024;
        self.entries.shrink_to(room);
        self.index.shrink_to(room);
    }
}

impl<I, T> Default for Interner<I, T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: BTreeSet::new(),
            index: HashIndex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::FactId;

    /// Texts that are their own keys.
    type Texts = Interner<FactId, &'static str>;

    fn id_of(texts: &mut Texts, text: &'static str) -> FactId {
        let hash = KeyHash::of(text);
        texts
            .find(hash, |known| *known == text)
            .unwrap_or_else(|| texts.add(hash, text))
    }

    #[test]
    fn equal_keys_have_one_id_until_it_is_removed() {
        let mut texts = Texts::default();
        let [a, b, c] = ["a", "b", "c"].map(|text| id_of(&mut texts, text));
        assert_eq!([a, b, c], [0, 1, 2].map(FactId));
        assert_eq!(id_of(&mut texts, "b"), b);
        assert_eq!((texts.get(b), texts.len()), (Some(&"b"), 3));

        texts.remove(b, KeyHash::of("b"));
        texts.remove(a, KeyHash::of("a"));
        assert_eq!((texts.get(b), texts.len(), texts.end()), (None, 1, 3));
        assert_eq!(texts.iter().collect::<Vec<_>>(), [(c, &"c")]);

        assert_eq!(id_of(&mut texts, "d"), a, "the lowest free id is next");
        assert_eq!(id_of(&mut texts, "b"), b);
    }

    #[test]
    fn only_free_slots_at_the_end_are_cut() {
        let mut texts = Texts::default();
        let ids = ["a", "b", "c"].map(|text| id_of(&mut texts, text));
        assert!(!texts.cut_end());
        for (id, text) in ids.into_iter().zip(["a", "b", "c"]) {
            if text != "b" {
                texts.remove(id, KeyHash::of(text));
            }
        }

        assert!(texts.cut_end() && !texts.cut_end());
        assert_eq!((texts.len(), texts.end()), (1, 2));
        texts.shrink();
        assert_eq!(id_of(&mut texts, "b"), ids[1]);
    }
}
