//! The facts under results: to find the input to blame, and for debugging.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use crate::deps::Dep;
use crate::ids::{NodeId, QueryId, SubscriberId};
use crate::inputs::Inputs;
use crate::query::{Computes, Query};
use navarch_tables::hash::KeyedSet;

/// A result whose computation panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faulty<F> {
    /// The computed query.
    pub query: String,
    /// The panic message.
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
        let Some(node) = self.node(id, query) else {
            return Vec::new();
        };

        let core = self.core.borrow();
        let mut seen = KeyedSet::default();
        let mut reported = KeyedSet::default();
        let mut facts = Vec::new();

        // A stack: the first dependency read is on top.
        let mut todo = vec![Dep::Node(node)];
        while let Some(dep) = todo.pop() {
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

    /// The up-to-date node of a query; `None` if its computation panics.
    fn node<Q: Query>(&self, id: SubscriberId, query: &Q) -> Option<NodeId>
    where
        I: Computes<Q>,
    {
        let query = self.core.borrow_mut().query_id(query);
        self.view(id).node_of(query).ok()
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
