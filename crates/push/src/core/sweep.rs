//! Forgetting: what no subscription rests on goes, and the names of what went are given again.

use super::{Core, Derived};
use crate::fact::FactKey;
use crate::memo::{AttrDef, AttrId, Dep, FactId, NodeId, QueryId, ValueId};
use crate::tree::Tree;
use navarch_api::hash::KeyedSet;

/// What a sweep left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    /// Results.
    results: usize,
    /// Facts.
    facts: usize,
    /// Answers.
    values: usize,
    /// Query keys.
    queries: usize,
}

/// What something rests on.
#[derive(Default)]
struct Live {
    /// Results.
    nodes: KeyedSet<NodeId>,
    /// Questions in their traces.
    attrs: KeyedSet<AttrId>,
}

/// Whether a table outgrew what the last sweep left of it so far that a sweep pays.
fn outgrew(now: usize, swept: usize) -> bool {
    now > 2 * swept + 4096
}

impl Core {
    /// Whether enough was forgotten or orphaned that a sweep pays.
    pub(crate) fn wants_sweep(&self) -> bool {
        outgrew(self.nodes.len(), self.swept.results)
            || outgrew(self.fact_ids.len(), self.swept.facts)
            || outgrew(self.value_ids.len(), self.swept.values)
            || outgrew(self.queries.len() - self.free_queries.len(), self.swept.queries)
            || self.loose_edges > 8 * self.nodes.len() + 65_536
    }

    /// Drops every result that no subscription rests on, and every question, answer, fact and query key that only such
    /// results had. Costs what is kept; must not run inside a computation.
    pub(crate) fn sweep(&mut self) {
        let live = self.live();
        let dead: Vec<NodeId> = self.nodes.keys().filter(|id| !live.nodes.contains(id)).copied().collect();
        self.forget_answers(&live);
        for id in dead {
            self.notices.set(id, Vec::new());
            if let Some(node) = self.nodes.remove(&id)
                && let Some(slot) = self.trees.get_mut(node.query.0)
            {
                Tree::remove(slot, &node.attrs, id);
            }
        }
        for node in self.nodes.values_mut() {
            node.parents.retain(|parent| live.nodes.contains(parent));
            node.parents.shrink_to_fit();
        }
        self.forget_facts(&live);
        self.forget_attrs(&live);
        self.forget_values();
        self.forget_queries();
        self.give_room_back();
        self.has_orphans = false;
        self.loose_edges = 0;
        self.swept = Swept {
            results: self.nodes.len(),
            facts: self.fact_ids.len(),
            values: self.value_ids.len(),
            queries: self.queries.len() - self.free_queries.len(),
        };
    }

    /// What subscriptions rest on. A proxy's derived answer counts as long as some trace asks for it.
    fn live(&self) -> Live {
        let mut live = Live::default();
        let shown = self.nodes.iter().filter(|(_, node)| !node.subscribers.is_empty());
        let prepared = self.proxies.values().filter_map(|state| state.prepared.as_ref());
        let prepared = prepared.flat_map(|prepared| prepared.pieces.iter().chain(&prepared.resources));
        let mut todo: Vec<NodeId> = shown.map(|(id, _)| id).chain(prepared).copied().collect();
        while !todo.is_empty() {
            while let Some(id) = todo.pop() {
                let Some(node) = self.nodes.get(&id).filter(|_| live.nodes.insert(id)) else { continue };
                live.attrs.extend(node.attrs.iter().map(|(attr, _)| *attr));
                todo.extend(node.deps.iter().filter_map(|dep| match dep {
                    Dep::Node(child) => Some(*child),
                    Dep::Fact(_) => None,
                }));
            }
            for state in self.proxies.values() {
                let answers = state.derived.iter().filter(|(attr, _)| live.attrs.contains(attr));
                todo.extend(answers.filter_map(|(_, derived)| match derived {
                    Derived::From(node) if !live.nodes.contains(node) && self.nodes.contains_key(node) => Some(*node),
                    Derived::From(_) | Derived::Failed(_) => None,
                }));
            }
        }
        live
    }

    /// Takes from proxies the answers that no trace asks for.
    fn forget_answers(&mut self, live: &Live) {
        for (proxy, state) in &mut self.proxies {
            state.answers.retain(|attr, _| live.attrs.contains(attr));
            state.derived.retain(|attr, derived| {
                let asked = live.attrs.contains(attr);
                if let Derived::From(node) = derived
                    && !asked
                    && let Some(node) = self.nodes.get_mut(node)
                {
                    node.watchers.remove(&(*proxy, *attr));
                }
                asked
            });
        }
    }

    /// Frees the facts that nothing reads.
    fn forget_facts(&mut self, live: &Live) {
        for (index, fact) in self.facts.iter_mut().enumerate() {
            fact.parents.retain(|parent| live.nodes.contains(parent));
            fact.parents.shrink_to_fit();
            let id = FactId(index);
            if fact.parents.is_empty() && self.fact_ids.get(&fact.key) == Some(&id) {
                self.fact_ids.remove(&fact.key);
                // The name in it may be long.
                fact.key = FactKey::AllServices;
                self.free_facts.push(id);
            }
        }
    }

    /// Frees the questions that no trace asks.
    fn forget_attrs(&mut self, live: &Live) {
        for (index, slot) in self.attrs.iter_mut().enumerate() {
            let id = AttrId(index);
            if live.attrs.contains(&id) {
                continue;
            }
            match slot.take() {
                Some(AttrDef::Plain(attr)) => _ = self.plain_ids.remove(&attr),
                Some(AttrDef::Derived { query, .. }) => _ = self.derived_ids.remove(&query),
                None => continue,
            }
            self.free_attrs.push(id);
        }
    }

    /// Frees the answers that neither traces nor proxies give.
    fn forget_values(&mut self) {
        let traces = self.nodes.values().flat_map(|node| node.attrs.iter().map(|(_, value)| *value));
        let proxies = self.proxies.values().flat_map(|state| state.answers.values().copied());
        let used: KeyedSet<ValueId> = traces.chain(proxies).collect();
        let free = &mut self.free_values;
        self.value_ids.retain(|_, id| {
            let keep = used.contains(id);
            if !keep {
                free.push(*id);
            }
            keep
        });
    }

    /// Gives back the room of tables that were much larger: streams with many names may have gone.
    fn give_room_back(&mut self) {
        while self.facts.last().is_some_and(|fact| fact.parents.is_empty()) {
            self.facts.pop();
        }
        while self.queries.last().is_some_and(Option::is_none) && self.trees.last().is_some_and(Option::is_none) {
            self.queries.pop();
            self.trees.pop();
        }
        let (facts, queries) = (self.facts.len(), self.queries.len());
        self.free_facts.retain(|id| id.0 < facts);
        self.free_queries.retain(|id| id.0 < queries);
        let room = |length: usize| 2 * length + 1024;
        self.facts.shrink_to(room(facts));
        self.queries.shrink_to(room(queries));
        self.trees.shrink_to(room(queries));
        self.free_facts.shrink_to(room(self.free_facts.len()));
        self.free_queries.shrink_to(room(self.free_queries.len()));
        self.nodes.shrink_to(room(self.nodes.len()));
        self.fact_ids.shrink_to(room(self.fact_ids.len()));
        self.value_ids.shrink_to(room(self.value_ids.len()));
    }

    /// Frees query keys whose tree is empty and that are no proxy's attribute.
    fn forget_queries(&mut self) {
        for (index, slot) in self.queries.iter_mut().enumerate() {
            let id = QueryId(index);
            let unused = self.trees.get(index).is_some_and(Option::is_none) && !self.derived_ids.contains_key(&id);
            if unused && let Some(query) = slot.take() {
                query.forget(&mut self.tables);
                self.free_queries.push(id);
            }
        }
    }
}
