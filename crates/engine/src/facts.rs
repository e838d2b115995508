//! The facts that something has read, and who read them.

use std::hash::Hash;

use super::ids::{EntryId, FactId, NodeId};
use super::interner::Interner;
use super::node_list::NodeList;
use navarch_tables::hash_index::KeyHash;

/// Facts by id and by key.
#[derive(Clone)]
pub(crate) struct Facts<F>(Interner<FactId, Fact<F>>);

/// A fact that something has read.
#[derive(Clone)]
struct Fact<F> {
    key: F,
    /// Revision of the last change; 0 if none since the first read.
    changed_at: u64,
    /// Results that read it. May contain dropped results and results that no longer read it.
    parents: NodeList,
}

impl<F: Clone + Eq + Hash> Facts<F> {
    /// The id of a fact that has been read.
    pub(crate) fn find(&self, key: &F) -> Option<FactId> {
        self.find_hashed(KeyHash::of(key), key)
    }

    fn find_hashed(&self, hash: KeyHash, key: &F) -> Option<FactId> {
        self.0.find(hash, |fact| fact.key == *key)
    }

    /// Interns a fact key.
    pub(crate) fn id(&mut self, key: F) -> FactId {
        let hash = KeyHash::of(&key);
        if let Some(id) = self.find_hashed(hash, &key) {
            return id;
        }

        // Changes before the first read do not matter.
        let fact = Fact {
            key,
            changed_at: 0,
            parents: NodeList::default(),
        };
        self.0.add(hash, fact)
    }

    /// The key of a fact.
    pub(crate) fn key(&self, id: FactId) -> Option<&F> {
        self.0.get(id).map(|fact| &fact.key)
    }

    /// The keys of all facts that have been read.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &F> {
        self.0.iter().map(|(_, fact)| &fact.key)
    }

    /// The number of facts that have been read.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a fact has changed after a revision.
    pub(crate) fn has_changed_since(&self, id: FactId, revision: u64) -> bool {
        self.0.get(id).is_none_or(|fact| fact.changed_at > revision)
    }

    /// Notes a change and returns the results that `reads` confirms as readers; the others are
    /// forgotten.
    pub(crate) fn change(
        &mut self,
        id: FactId,
        revision: u64,
        reads: impl Fn(&NodeId) -> bool,
    ) -> Vec<NodeId> {
        let Some(fact) = self.0.get_mut(id) else {
            return Vec::new();
        };
        fact.changed_at = revision;
        fact.parents.sort_and_dedup();
        fact.parents.retain(reads);
        fact.parents.as_slice().to_vec()
    }

    /// The results that read a fact; may contain some that no longer do.
    pub(crate) fn readers(&self, id: FactId) -> &[NodeId] {
        self.0
            .get(id)
            .map(|fact| fact.parents.as_slice())
            .unwrap_or_default()
    }

    /// Adds a reader.
    pub(crate) fn add_reader(&mut self, id: FactId, node: NodeId) {
        if let Some(fact) = self.0.get_mut(id) {
            fact.parents.push(node);
        }
    }

    /// Forgets the readers of the fact at an index that are not kept, and the fact if none is left.
    /// Returns the steps that this counts for; `None` behind the last index.
    pub(crate) fn forget_unread(
        &mut self,
        at: usize,
        is_kept: impl Fn(&NodeId) -> bool,
    ) -> Option<usize> {
        if at >= self.0.end() {
            return None;
        }

        let id = FactId::new(at);
        let Some(fact) = self.0.get_mut(id) else {
            return Some(1);
        };
        let steps = 1 + fact.parents.len() / 8;
        fact.parents.retain_and_shrink(is_kept);
        if fact.parents.is_empty() {
            let hash = KeyHash::of(&fact.key);
            self.0.remove(id, hash);
        }
        Some(steps)
    }

    /// As [`Interner::cut_end`].
    pub(crate) fn cut_end(&mut self) -> bool {
        self.0.cut_end()
    }

    /// As [`Interner::shrink`].
    pub(crate) fn shrink(&mut self) {
        self.0.shrink();
    }
}

impl<F> Default for Facts<F> {
    fn default() -> Self {
        Self(Interner::default())
    }
}
