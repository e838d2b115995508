//! Marks all results that subscriptions depend on.

use super::{Core, Sweep};
use crate::core::Derived;
use crate::deps::Dep;
use crate::ids::NodeId;
use crate::inputs::Inputs;
use crate::memo::Node;

impl<I: Inputs> Core<I> {
    /// Marks a result that is in use from now on, with its dependencies, for a sweep in progress.
    pub(crate) fn touch(&mut self, id: NodeId) {
        let number = self.sweeps.number;
        if let Some(sweep) = &mut self.sweeps.in_progress
            && let Some(node) = self.memo.get_mut(id)
            && node.sweep != number
        {
            node.sweep = number;
            sweep.grey.push(id);
        }
    }

    /// Marks a result; returns false if it is marked already or was dropped.
    fn mark_live(&mut self, sweep: &mut Sweep, id: NodeId) -> bool {
        let number = self.sweeps.number;
        let Some(node) = self.memo.get_mut(id).filter(|node| node.sweep != number) else {
            return false;
        };
        node.sweep = number;
        sweep.grey.push(id);
        true
    }

    /// Marks the dependencies of a marked result.
    pub(super) fn mark_below(&mut self, sweep: &mut Sweep, id: NodeId) -> usize {
        let Some((deps, attrs)) = self
            .memo
            .get(id)
            .map(|node| (node.deps.clone(), node.attrs.clone()))
        else {
            return 1;
        };
        for (attr, value) in attrs.iter() {
            sweep.attrs.insert(*attr);
            sweep.values.insert(*value);
        }
        for dep in deps.iter() {
            if let Dep::Node(child) = dep {
                self.mark_live(sweep, child);
            }
        }
        1 + deps.len() / 8 + attrs.len() / 8
    }

    /// Marks a result that is published. Like the other steps of a sweep, returns the steps that it
    /// counts for, and `None` behind the last index.
    pub(super) fn mark_published(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.results.get(at)?;
        if self.memo.get(id).is_some_and(Node::is_published) {
            self.mark_live(sweep, id);
        }
        Some(1)
    }

    /// Marks the results that are held for a subscriber.
    pub(super) fn mark_held(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.subscribers.get(at)?;
        let state = self.subscribers.get(&id);
        let nodes = state.map(|state| state.held.clone()).unwrap_or_default();
        for node in &nodes {
            self.mark_live(sweep, *node);
        }
        Some(1 + nodes.len())
    }

    /// Marks the nodes of a subscriber's derived attributes, as far as a trace reads these.
    pub(super) fn mark_derived(&mut self, sweep: &mut Sweep, at: usize) -> Option<usize> {
        let id = *sweep.subscribers.get(at)?;
        let Some(state) = self.subscribers.get(&id) else {
            return Some(1);
        };

        let read = state
            .derived
            .iter()
            .filter(|(attr, _)| sweep.attrs.contains(attr));
        let nodes: Vec<NodeId> = read
            .filter_map(|(_, derived)| match derived {
                Derived::From(node) => Some(*node),
                Derived::Failed(_) => None,
            })
            .collect();

        let steps = 1 + state.derived.len();
        for node in nodes {
            sweep.has_found |= self.mark_live(sweep, node);
        }

        Some(steps)
    }

    /// Marks the dependencies of a subscriber's remaining attributes, just before the others are
    /// removed: results may read more attributes since [`Self::mark_derived`] ran. That marked
    /// nearly all, in slices, so few steps remain; returns their number.
    pub(super) fn mark_attr_values(&mut self, sweep: &mut Sweep, at: usize) -> usize {
        let mut steps = 0;
        loop {
            steps += self.mark_derived(sweep, at).unwrap_or_default();
            if !std::mem::take(&mut sweep.has_found) {
                return steps;
            }
            while let Some(id) = sweep.grey.pop() {
                steps += self.mark_below(sweep, id);
            }
        }
    }
}
