//! Frees unmarked results, and then entries that only these used.

use super::{Core, Sweep};
use crate::core::{Derived, number};
use crate::fact::FactKey;
use crate::memo::{AttrDef, AttrId, FactId, QueryId};
use crate::tree::Tree;

impl Core {
    /// Removes a proxy's answers to attributes that no trace reads.
    pub(super) fn forget_answers(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let proxy = *sweep.proxies.get(at)?;
        let mut steps = self.mark_answers(sweep, at);
        let Some(state) = self.proxies.get_mut(&proxy) else {
            return Some(1);
        };

        steps += 1 + state.answers.len();
        state.answers.retain(|attr, _| sweep.attrs.contains(attr));
        state.derived.retain(|attr, derived| {
            let is_read = sweep.attrs.contains(attr);
            if let Derived::From(node) = derived
                && !is_read
                && let Some(node) = self.nodes.get_mut(node)
            {
                node.rare_mut().watchers.remove(&(proxy, *attr));
            }
            is_read
        });

        sweep.values.extend(state.answers.values().copied());
        Some(steps)
    }

    /// Adds an unmarked result to those to be removed.
    pub(super) fn sort_dead(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.results.get(at)?;
        if let Some(node) = self
            .nodes
            .get(&id)
            .filter(|node| node.sweep != self.sweep_number)
        {
            sweep.dead.entry(node.height).or_default().push(id);
        }
        Some(1)
    }

    /// Removes the highest unmarked result. One that has got a subscriber or watcher since is
    /// marked instead.
    pub(super) fn remove_dead(&mut self, sweep: &mut Sweep) -> Option<usize> {
        let mut highest = sweep.dead.last_entry()?;
        let Some(id) = highest.get_mut().pop() else {
            highest.remove();
            return Some(1);
        };

        let number = self.sweep_number;
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.sweep != number) else {
            return Some(1);
        };

        if !node.rare().subscribers.is_empty() || !node.rare().watchers.is_empty() {
            node.sweep = number;
            sweep.grey.push(id);
            return Some(1);
        }

        self.notices.set(id, Vec::new());
        if let Some(node) = self.nodes.remove(&id)
            && let Some(slot) = self.trees.get_mut(node.query.0)
        {
            Tree::remove(slot, &node.attrs, id);
        }

        Some(1)
    }

    /// Removes removed results from the parents of a result.
    pub(super) fn forget_parents(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.results.get(at)?;
        let Some(mut parents) = self
            .nodes
            .get_mut(&id)
            .map(|node| std::mem::take(&mut node.parents))
        else {
            return Some(1);
        };
        let steps = 1 + parents.len() / 8;
        parents.retain_and_shrink(|id| self.nodes.contains_key(id));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.parents = parents;
        }
        Some(steps)
    }

    /// Frees a fact without readers.
    pub(super) fn forget_fact(&mut self, at: usize) -> Option<usize> {
        let mut parents = std::mem::take(&mut self.facts.get_mut(at)?.parents);
        let steps = 1 + parents.len() / 8;
        parents.retain_and_shrink(|id| self.nodes.contains_key(id));
        let fact = self.facts.get_mut(at)?;
        if parents.is_empty() && self.free_facts.insert(FactId(at)) {
            // The name in the key may be long.
            let key = std::mem::replace(&mut fact.key, FactKey::AllServices);
            self.fact_index.remove(&key, number(at));
        }
        fact.parents = parents;
        Some(steps)
    }

    /// Frees an attribute that no trace reads.
    pub(super) fn forget_attr(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let slot = self.attrs.get_mut(at)?;
        let id = AttrId(at);
        if sweep.attrs.contains(&id) {
            return Some(1);
        }
        match slot.take() {
            Some(AttrDef::Plain(attr)) => _ = self.plain_ids.remove(&attr),
            Some(AttrDef::Derived { query, .. }) => _ = self.derived_ids.remove(&query),
            None => return Some(1),
        }
        self.free_attrs.push(id);
        Some(1)
    }

    /// Frees answers that neither traces nor proxies have: all in one step, as there are few.
    pub(super) fn forget_values(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        if at > 0 {
            return None;
        }
        let steps = self.value_ids.len();
        let free = &mut self.free_values;
        self.value_ids.retain(|_, id| {
            let is_used = sweep.values.contains(id);
            if !is_used {
                free.push(*id);
            }
            is_used
        });
        Some(1 + steps / 8)
    }

    /// Frees a query key whose tree is empty and that is not an attribute.
    pub(super) fn forget_query(&mut self, at: usize) -> Option<usize> {
        let slot = self.queries.get_mut(at)?;
        let id = QueryId(at);
        let is_unused =
            self.trees.get(at).is_some_and(Option::is_none) && !self.derived_ids.contains_key(&id);
        if is_unused && let Some(query) = slot.take() {
            self.query_index.remove_at(query.key_hash(), number(at));
            self.free_queries.insert(id);
        }
        Some(1)
    }

    /// Truncates free facts and queries at the ends of their tables.
    pub(super) fn cut_ends(&mut self) -> Option<usize> {
        let is_last = |id: Option<usize>, length: usize| id.is_some_and(|id| id + 1 == length);
        if is_last(self.free_facts.last().map(|id| id.0), self.facts.len()) {
            self.free_facts.pop_last();
            self.facts.pop();
            return Some(1);
        }
        if is_last(self.free_queries.last().map(|id| id.0), self.queries.len()) {
            self.free_queries.pop_last();
            self.queries.pop();
            self.trees.pop();
            return Some(1);
        }
        None
    }

    /// Shrinks tables that were much larger: streams with many names may have ended.
    pub(super) fn shrink_tables(&mut self) {
        let room = |length: usize| 2 * length + 1024;
        self.facts.shrink_to(room(self.facts.len()));
        self.queries.shrink_to(room(self.queries.len()));
        self.trees.shrink_to(room(self.queries.len()));
        self.nodes.shrink_to(room(self.nodes.len()));
        self.fact_index.shrink_to(room(self.facts.len()));
        self.query_index.shrink_to(room(self.queries.len()));
        self.value_ids.shrink_to(room(self.value_ids.len()));
    }
}
