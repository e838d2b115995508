//! Frees unmarked results, and then entries that only these used.

use super::{Core, Sweep};
use crate::core::Derived;
use crate::inputs::Inputs;

impl<I: Inputs> Core<I> {
    /// Removes a subscriber's values of attributes that no trace reads.
    pub(super) fn forget_attr_values(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let subscriber = *sweep.subscribers.get(at)?;
        let mut steps = self.mark_attr_values(sweep, at);
        let Some(state) = self.subscribers.get_mut(&subscriber) else {
            return Some(1);
        };

        steps += 1 + state.attr_values.len();
        state
            .attr_values
            .retain(|attr, _| sweep.attrs.contains(attr));
        state.derived.retain(|attr, derived| {
            let is_read = sweep.attrs.contains(attr);
            if let Derived::From(node) = derived
                && !is_read
                && let Some(node) = self.memo.get_mut(*node)
            {
                node.rare_mut().watchers.remove(&(subscriber, *attr));
            }
            is_read
        });

        sweep.values.extend(state.attr_values.values().copied());
        Some(steps)
    }

    /// Adds an unmarked result to those to be removed.
    pub(super) fn sort_dead(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.results.get(at)?;
        if let Some(node) = self
            .memo
            .get(id)
            .filter(|node| node.sweep != self.sweeps.number)
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

        let number = self.sweeps.number;
        let Some(node) = self.memo.get_mut(id).filter(|node| node.sweep != number) else {
            return Some(1);
        };

        if node.is_published() || node.is_watched() {
            node.sweep = number;
            sweep.grey.push(id);
            return Some(1);
        }

        self.diagnostics.remove_notices(id);
        if let Some(node) = self.memo.remove(id) {
            self.queries.remove_result(node.query, &node.attrs, id);
        }

        Some(1)
    }

    /// Removes removed results from the parents of a result.
    pub(super) fn forget_parents(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.results.get(at)?;
        let Some(mut parents) = self
            .memo
            .get_mut(id)
            .map(|node| std::mem::take(&mut node.parents))
        else {
            return Some(1);
        };
        let steps = 1 + parents.len() / 8;
        parents.retain_and_shrink(|id| self.memo.contains(*id));
        if let Some(node) = self.memo.get_mut(id) {
            node.parents = parents;
        }
        Some(steps)
    }

    /// Frees attribute values that neither traces nor subscribers have: all in one step, as there
    /// are few.
    pub(super) fn forget_values(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        if at > 0 {
            return None;
        }
        let steps = self.attr_values.len();
        self.attr_values
            .forget_unused(|value| sweep.values.contains(&value));
        Some(1 + steps / 8)
    }

    /// Cuts off a free slot at the end of a table.
    pub(super) fn cut_ends(&mut self) -> Option<usize> {
        let is_cut = self.facts.cut_end()
            || self.queries.cut_end()
            || self.attributes.cut_end()
            || self.attr_values.cut_end();
        is_cut.then_some(1)
    }

    /// Shrinks tables that were much larger: subscribers with many results may have gone.
    pub(super) fn shrink_tables(&mut self) {
        self.memo.shrink();
        self.facts.shrink();
        self.queries.shrink();
        self.attr_values.shrink();
    }
}
