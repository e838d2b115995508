//! The facts under results: to find the input to blame, and for debugging.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use crate::core::Derived;
use crate::deps::Dep;
use crate::ids::{NodeId, QueryId, SubscriberId};
use crate::inputs::Inputs;
use crate::query::{Computes, Query};
use navarch_tables::hash::KeyedSet;

/// A result whose computation panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faulty<F> {
    /// `Debug` of the query.
    pub query: String,
    /// What the computation panicked with.
    pub message: Arc<str>,
    /// The facts that it depends on: the inputs to blame are among them.
    pub facts: Vec<F>,
}

impl<I: Inputs> Engine<I> {
    /// The facts that a result depends on, sorted; empty if its computation panics.
    pub fn provenance<Q: Query>(&self, id: SubscriberId, query: &Q) -> Vec<I::Fact>
    where
        I: Computes<Q>,
    {
        match self.node(id, query) {
            Some(node) => self.facts_below(node),
            None => Vec::new(),
        }
    }

    /// As [`Engine::provenance`], in the order in which they were read.
    pub fn provenance_in_order<Q: Query>(&self, id: SubscriberId, query: &Q) -> Vec<I::Fact>
    where
        I: Computes<Q>,
    {
        let node = self.node(id, query);
        node.map_or_else(Vec::new, |node| self.facts_in_order(node, None))
    }

    /// Those facts of [`Engine::provenance_in_order`] that may be why the result is not the one of
    /// a revision: they have changed since, and so has every result between them and this one. All
    /// of them if the subscriber may have had other attributes then.
    ///
    /// A result that nothing needed at the revision, and that has its value of before again, has
    /// not changed since: then there may be none, although the subscriber gets another result.
    pub fn provenance_since<Q: Query>(
        &self,
        id: SubscriberId,
        query: &Q,
        revision: u64,
    ) -> Vec<I::Fact>
    where
        I: Computes<Q>,
    {
        let Some(node) = self.node(id, query) else {
            return Vec::new();
        };
        let has_moved = self.may_have_moved(id, node, revision);
        self.facts_in_order(node, (!has_moved).then_some(revision))
    }

    /// Whether a subscriber may have had another node at a revision: a fact has changed since from
    /// which an attribute is derived that the node depends on.
    fn may_have_moved(&self, id: SubscriberId, node: NodeId, since: u64) -> bool {
        let core = self.core.borrow();
        let Some(state) = core.subscribers.get(&id) else {
            return true;
        };
        let derived_for = |node: NodeId| {
            let attrs = core.memo.get(node).map(|node| node.attrs.clone());
            let attrs = attrs.iter().flat_map(|attrs| attrs.iter());
            let origins = attrs.filter_map(|(attr, _)| match state.derived.get(attr) {
                Some(Derived::From(origin)) => Some(*origin),
                Some(Derived::Failed(_)) | None => None,
            });
            origins.collect::<Vec<NodeId>>()
        };

        let mut seen = KeyedSet::default();
        let mut todo = derived_for(node);
        while let Some(node) = todo.pop() {
            if !seen.insert(node) {
                continue;
            }
            todo.extend(derived_for(node));
            for dep in core.memo.get(node).iter().flat_map(|node| node.deps.iter()) {
                match dep {
                    Dep::Node(child) => todo.push(child),
                    Dep::Fact(fact) if core.facts.has_changed_since(fact, since) => return true,
                    Dep::Fact(_) => {}
                }
            }
        }

        false
    }

    /// The facts under a node, in the order in which they were read; only along what has changed
    /// since a revision, if one is given.
    fn facts_in_order(&self, node: NodeId, since: Option<u64>) -> Vec<I::Fact> {
        let core = self.core.borrow();
        let has_changed = |dep: Dep, since: u64| match dep {
            Dep::Fact(fact) => core.facts.has_changed_since(fact, since),
            Dep::Node(id) => core
                .memo
                .get(id)
                .is_some_and(|node| node.changed_at > since),
        };
        let mut seen = KeyedSet::default();
        let mut reported = KeyedSet::default();
        let mut facts = Vec::new();

        // A stack: the first dependency read is on top.
        let mut todo = vec![Dep::Node(node)];
        while let Some(dep) = todo.pop() {
            if since.is_some_and(|since| !has_changed(dep, since)) {
                continue;
            }
            match dep {
                Dep::Fact(fact) if reported.insert(fact) => {
                    facts.extend(core.facts.key(fact).cloned());
                }
                Dep::Node(id) if seen.insert(id) => {
                    let deps: Vec<Dep> = core
                        .memo
                        .get(id)
                        .iter()
                        .flat_map(|node| node.deps.iter())
                        .collect();
                    todo.extend(deps.into_iter().rev());
                }
                Dep::Fact(_) | Dep::Node(_) => {}
            }
        }

        facts
    }

    /// The up-to-date node of a query; `None` if its computation panics, or the subscriber is not
    /// connected.
    fn node<Q: Query>(&self, id: SubscriberId, query: &Q) -> Option<NodeId>
    where
        I: Computes<Q>,
    {
        let query = self.core.borrow_mut().query_id(query);
        self.view(id)?.node_of(query).ok()
    }

    /// Results whose computation panicked and that have their fallback value.
    #[must_use]
    pub fn faults(&self) -> Vec<Faulty<I::Fact>> {
        let nodes: Vec<(NodeId, QueryId, Arc<str>)> = {
            let core = self.core.borrow();
            let faulty = core
                .memo
                .iter()
                .filter_map(|(id, node)| Some((id, node.query, node.fault()?.clone())));
            faulty.collect()
        };

        let mut faults: Vec<Faulty<I::Fact>> = nodes
            .into_iter()
            .map(|(id, query, message)| {
                let query = format!("{:?}", self.core.borrow().queries.get(query));
                Faulty {
                    query,
                    message,
                    facts: self.facts_below(id),
                }
            })
            .collect();

        faults.sort_by(|a, b| {
            (&a.query, &a.facts, &a.message).cmp(&(&b.query, &b.facts, &b.message))
        });
        faults
    }

    /// All facts under a node, sorted.
    fn facts_below(&self, node: NodeId) -> Vec<I::Fact> {
        let core = self.core.borrow();
        let mut seen = KeyedSet::default();
        let mut facts = BTreeSet::new();
        let mut todo = vec![node];
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            for dep in core.memo.get(id).iter().flat_map(|node| node.deps.iter()) {
                match dep {
                    Dep::Node(child) => todo.push(child),
                    Dep::Fact(fact) => facts.extend(core.facts.key(fact).cloned()),
                }
            }
        }

        facts.into_iter().collect()
    }
}
