//! The attributes of subscribers that were read, and their values.

use std::hash::Hash;

use super::ids::{AttrId, EntryId, QueryId, ValueId};
use super::interner::Interner;
use super::query::{DerivedValue, Value};
use navarch_tables::hash_index::KeyHash;

/// Attributes by id and by definition.
#[derive(Clone)]
pub(crate) struct Attributes<A, V>(Interner<AttrId, AttrDef<A, V>>);

/// Values of attributes by id and by value.
#[derive(Clone)]
pub(crate) struct AttrValues<V>(Interner<ValueId, AttrValue<V>>);

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum AttrValue<V> {
    /// Of an attribute of the subscriber itself.
    Plain(V),
    /// Of a derived attribute.
    Derived(DerivedValue),
    /// A derived attribute whose computation panicked, without an earlier value.
    Failed,
}

/// An attribute of a subscriber: plain, or the value of a query.
#[derive(Clone)]
pub(crate) enum AttrDef<A, V> {
    /// A property of the subscriber itself.
    Plain(A),
    /// The value of a query.
    Derived {
        query: QueryId,
        /// Converts the query's result to that value.
        convert: ToAttrValue<V>,
    },
}

/// Converts the result of a query to the value of the attribute.
pub(crate) type ToAttrValue<V> = fn(&Value) -> AttrValue<V>;

impl<A: Hash, V> AttrDef<A, V> {
    /// The hash by which it is found.
    fn hash(&self) -> KeyHash {
        match self {
            Self::Plain(attr) => KeyHash::of(attr),
            Self::Derived { query, .. } => KeyHash::of(query),
        }
    }
}

impl<A: Clone + Eq + Hash, V> Attributes<A, V> {
    /// Interns a property of subscribers.
    pub(crate) fn plain(&mut self, attr: &A) -> AttrId {
        let hash = KeyHash::of(attr);
        let is_it = |known: &AttrDef<A, V>| matches!(known, AttrDef::Plain(known) if known == attr);
        self.0
            .find(hash, is_it)
            .unwrap_or_else(|| self.0.add(hash, AttrDef::Plain(attr.clone())))
    }

    /// Interns the value of a query.
    pub(crate) fn derived(&mut self, query: QueryId, convert: ToAttrValue<V>) -> AttrId {
        self.find_derived(query).unwrap_or_else(|| {
            self.0
                .add(KeyHash::of(&query), AttrDef::Derived { query, convert })
        })
    }

    /// The attribute that is the value of a query.
    pub(crate) fn find_derived(&self, query: QueryId) -> Option<AttrId> {
        let is_it = |known: &AttrDef<A, V>| match known {
            AttrDef::Derived { query: known, .. } => *known == query,
            AttrDef::Plain(_) => false,
        };
        self.0.find(KeyHash::of(&query), is_it)
    }

    pub(crate) fn get(&self, id: AttrId) -> Option<&AttrDef<A, V>> {
        self.0.get(id)
    }

    /// The number of attributes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the attribute at an index unless it is read. Returns the steps that this counts for;
    /// `None` behind the last index.
    pub(crate) fn forget_unread(
        &mut self,
        at: usize,
        is_read: impl Fn(AttrId) -> bool,
    ) -> Option<usize> {
        if at >= self.0.end() {
            return None;
        }

        let id = AttrId::new(at);
        if let Some(definition) = self.0.get(id)
            && !is_read(id)
        {
            let hash = definition.hash();
            self.0.remove(id, hash);
        }
        Some(1)
    }

    /// As [`Interner::cut_end`].
    pub(crate) fn cut_end(&mut self) -> bool {
        self.0.cut_end()
    }
}

impl<V: Eq + Hash> AttrValues<V> {
    /// Interns a value.
    pub(crate) fn id(&mut self, value: AttrValue<V>) -> ValueId {
        let hash = KeyHash::of(&value);
        self.0
            .find(hash, |known| *known == value)
            .unwrap_or_else(|| self.0.add(hash, value))
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the values that are not used.
    pub(crate) fn forget_unused(&mut self, is_used: impl Fn(ValueId) -> bool) {
        let unused: Vec<(ValueId, KeyHash)> = self
            .0
            .iter()
            .filter(|(id, _)| !is_used(*id))
            .map(|(id, value)| (id, KeyHash::of(value)))
            .collect();
        for (id, hash) in unused {
            self.0.remove(id, hash);
        }
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

impl<A, V> Default for Attributes<A, V> {
    fn default() -> Self {
        Self(Interner::default())
    }
}

impl<V> Default for AttrValues<V> {
    fn default() -> Self {
        Self(Interner::default())
    }
}
