//! The queries that were read, each with the tree that finds its result for a subscriber.

use std::sync::Arc;

use super::ids::{AttrId, EntryId, NodeId, QueryId, ValueId};
use super::inputs::Inputs;
use super::interner::Interner;
use super::query::AnyQuery;
use super::tree::Tree;
use navarch_tables::hash_index::KeyHash;

/// Queries by id and by key.
pub(crate) struct Queries<I: Inputs>(Interner<QueryId, KeptQuery<I>>);

struct KeptQuery<I: Inputs> {
    query: Arc<dyn AnyQuery<I>>,
    /// Its results, by the attribute values of subscribers.
    tree: Option<Tree>,
}

impl<I: Inputs> Queries<I> {
    /// The id of the query with this hash for which `is_it` returns true.
    pub(crate) fn find(
        &self,
        hash: KeyHash,
        is_it: &dyn Fn(&dyn AnyQuery<I>) -> bool,
    ) -> Option<QueryId> {
        self.0.find(hash, |kept| is_it(&*kept.query))
    }

    /// Adds a new query.
    pub(crate) fn add(&mut self, hash: KeyHash, query: Arc<dyn AnyQuery<I>>) -> QueryId {
        self.0.add(hash, KeptQuery { query, tree: None })
    }

    /// The query of an id.
    pub(crate) fn get(&self, id: QueryId) -> Arc<dyn AnyQuery<I>> {
        self.0
            .get(id)
            .map(|kept| kept.query.clone())
            .expect("ids are given out for kept queries and dropped with them")
    }

    /// The number of queries.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether results of a query are always gates, regardless of the number of dependents.
    pub(crate) fn is_gate(&self, id: QueryId) -> bool {
        self.0.get(id).is_some_and(|kept| kept.query.is_gate())
    }

    /// The results of a query.
    pub(crate) fn tree(&self, id: QueryId) -> Option<&Tree> {
        self.0.get(id)?.tree.as_ref()
    }

    /// Adds a result, which subscribers with these attributes find. Results that they no longer lead
    /// to are added to `dropped`.
    pub(crate) fn add_result(
        &mut self,
        id: QueryId,
        attrs: &[(AttrId, ValueId)],
        node: NodeId,
        dropped: &mut Vec<NodeId>,
    ) {
        if let Some(kept) = self.0.get_mut(id) {
            Tree::insert(&mut kept.tree, attrs, node, dropped);
        }
    }

    /// Removes a result.
    pub(crate) fn remove_result(&mut self, id: QueryId, attrs: &[(AttrId, ValueId)], node: NodeId) {
        if let Some(kept) = self.0.get_mut(id) {
            Tree::remove(&mut kept.tree, attrs, node);
        }
    }

    /// Forgets the query at an index if it has no results and is no attribute. Returns the steps
    /// that this counts for; `None` behind the last index.
    pub(crate) fn forget_unused(
        &mut self,
        at: usize,
        is_attribute: impl Fn(QueryId) -> bool,
    ) -> Option<usize> {
        if at >= self.0.end() {
            return None;
        }

        let id = QueryId::new(at);
        if let Some(kept) = self.0.get(id)
            && kept.tree.is_none()
            && !is_attribute(id)
        {
            let hash = kept.query.key_hash();
            self.0.remove(id, hash);
        }
        Some(1)
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

impl<I: Inputs> Clone for Queries<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I: Inputs> Default for Queries<I> {
    fn default() -> Self {
        Self(Interner::default())
    }
}

impl<I: Inputs> Clone for KeptQuery<I> {
    fn clone(&self) -> Self {
        Self {
            query: self.query.clone(),
            tree: self.tree.clone(),
        }
    }
}
