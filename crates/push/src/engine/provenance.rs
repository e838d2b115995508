//! The inputs of results: to find the object to blame, and for debugging.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::collect::ResourceOf;
use super::{Engine, ProxyId};
use crate::deps::Dep;
use crate::fact::FactKey;
use crate::ids::{NodeId, QueryId};
use crate::resource::ResourceType;
use navarch_api::hash::KeyedSet;
use navarch_api::names::ResourceName;

/// One resource whose translation panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faulty {
    /// The computed query.
    pub query: String,
    /// The panic message.
    pub message: Arc<str>,
    /// The facts that it depends on: the objects to blame are among them.
    pub facts: Vec<FactKey>,
}

impl Engine {
    /// The facts that a resource of a proxy depends on, sorted: its objects are among them.
    #[must_use]
    pub fn provenance(&self, id: ProxyId, kind: ResourceType, name: &ResourceName) -> Vec<FactKey> {
        let query = self.resource_query(id, kind, name);
        let view = self.view(id.0);
        match view.node_of(query) {
            Ok(node) => self.facts_below(node),
            Err(_) => Vec::new(),
        }
    }

    /// As [`Engine::provenance`], in the order in which they were read.
    #[must_use]
    pub fn provenance_in_order(
        &self,
        id: ProxyId,
        kind: ResourceType,
        name: &ResourceName,
    ) -> Vec<FactKey> {
        let query = self.resource_query(id, kind, name);
        let Ok(node) = self.view(id.0).node_of(query) else {
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

    /// The query of a resource as the proxy has subscribed to it.
    fn resource_query(&self, id: ProxyId, kind: ResourceType, name: &ResourceName) -> QueryId {
        // Resources differ only for this type, and only subscriptions by address have unknown
        // names.
        let is_on_demand = kind == ResourceType::Workload
            && self
                .published(id, kind)
                .is_some_and(|collection| collection.unknown.is_some());
        self.core.borrow_mut().query_id(&ResourceOf {
            kind,
            name: name.clone(),
            is_on_demand,
        })
    }

    /// Resources whose translation panicked and that are served with their last good value.
    #[must_use]
    pub fn faults(&self) -> Vec<Faulty> {
        let nodes: Vec<(NodeId, QueryId, Arc<str>)> = {
            let core = self.core.borrow();
            let faulty = core
                .memo
                .iter()
                .filter_map(|(id, node)| Some((id, node.query, node.fault()?.clone())));
            faulty.collect()
        };

        let mut faults: Vec<Faulty> = nodes
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
    fn facts_below(&self, node: NodeId) -> Vec<FactKey> {
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
