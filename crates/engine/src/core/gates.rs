//! Gates: results with many dependents, which are updated before any of the dependents is marked.
//!
//! A change may affect a table on which thousands of results depend, and usually leaves it equal.
//! Marking these results, and finding out for each that nothing changed, would cost in proportion
//! to all of them rather than to the change. So marking stops at such a table; if its value stays
//! equal, its dependents are not touched.
//!
//! Gates are settled by height, the lowest first: then no dependency of a gate waits for another
//! gate. A dependency that a computation reads for the first time may be higher than waiting gates:
//! those are settled first ([`Core::next_gate`] is called before any result is read), and as they
//! may depend on the one in progress, that one opens before. So every value that is read is valid.
//!
//! A gate is computed for a subscriber whose attributes match it. While derived attributes may be
//! out of date themselves, there is no such subscriber, and all gates open: their dependents are
//! marked as if there were no gates.

use std::collections::BTreeSet;

use super::{Core, Lookup};
use crate::deps::{Dep, Deps};
use crate::ids::{NodeId, SubscriberId};
use crate::inputs::Inputs;
use navarch_tables::hash::KeyedSet;

/// With more gates waiting, a change affects so much that gates do not pay off.
const MAX_PENDING_GATES: usize = 2_048;

/// A gate to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) node: NodeId,
    /// A subscriber for which it can be updated, if any.
    pub(crate) subscriber: Option<SubscriberId>,
}

/// The gates that wait, and those that are being settled.
#[derive(Clone, Default)]
pub(crate) struct Gates {
    /// Marked results whose dependents are not marked until the result is known to differ, the
    /// lowest first.
    waiting: BTreeSet<(u16, NodeId)>,
    /// Gates that are being settled, the outermost first.
    settling: Vec<NodeId>,
    /// Whether marking waits at gates.
    are_closed: bool,
}

impl Gates {
    /// Whether no gate waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets marking wait at gates from now on.
    pub(crate) fn close(&mut self) {
        self.are_closed = true;
    }

    /// Whether marking waits at gates.
    #[inline]
    pub(super) fn are_closed(&self) -> bool {
        self.are_closed
    }

    /// Adds a gate of this height.
    pub(super) fn add(&mut self, height: u16, id: NodeId) {
        self.waiting.insert((height, id));
    }

    /// Removes a gate; returns whether it was waiting.
    fn remove(&mut self, height: u16, id: NodeId) -> bool {
        self.waiting.remove(&(height, id))
    }

    /// Whether a gate waits below a height.
    #[inline]
    fn is_any_below(&self, height: u16) -> bool {
        self.waiting
            .first()
            .is_some_and(|(lowest, _)| *lowest < height)
    }

    /// Removes and returns the lowest gate.
    fn pop(&mut self) -> Option<NodeId> {
        self.waiting.pop_first().map(|(_, id)| id)
    }
}

impl<I: Inputs> Core<I> {
    /// Whether a result is a gate.
    pub(super) fn is_gate(&self, id: NodeId) -> bool {
        let Some(node) = self.memo.get(id) else {
            return false;
        };
        if self.queries.is_gate(node.query) {
            return true;
        }
        let min = self.config.gate_min_dependents;
        let looks_through_much = |parent: &NodeId| {
            self.memo
                .get(*parent)
                .is_some_and(|node| node.deps.len() >= min)
        };
        node.parents.len() >= min || node.parents.as_slice().iter().any(looks_through_much)
    }

    /// The height of a result with these dependencies.
    pub(super) fn height_over(&self, deps: &Deps) -> u16 {
        let heights = deps.iter().filter_map(|dep| match dep {
            Dep::Node(id) => self.memo.get(id).map(|node| node.height.saturating_add(1)),
            Dep::Fact(_) => None,
        });
        heights.max().unwrap_or_default()
    }

    /// Raises the height of a result above its current dependencies, and that of its dependents
    /// above it.
    pub(crate) fn raise(&mut self, id: NodeId) {
        let Some(deps) = self.memo.get(id).map(|node| node.deps.clone()) else {
            return;
        };

        let mut todo = vec![(id, self.height_over(&deps))];
        while let Some((id, height)) = todo.pop() {
            let Some(node) = self.memo.get_mut(id).filter(|node| node.height < height) else {
                continue;
            };

            let before = std::mem::replace(&mut node.height, height);
            if self.gates.remove(before, id) {
                self.gates.add(height, id);
            }

            let Some(parents) = self.memo.get(id).map(|node| node.parents.clone()) else {
                continue;
            };

            // The list may contain nodes that no longer read this one, which could make a cycle.
            let reads = |parent: &NodeId| {
                let parent = self.memo.get(*parent);
                parent
                    .is_some_and(|node| node.height <= height && node.deps.contains(Dep::Node(id)))
            };

            todo.extend(
                parents
                    .as_slice()
                    .iter()
                    .filter(|parent| reads(parent))
                    .map(|parent| (*parent, height.saturating_add(1))),
            );
        }
    }

    /// Removes and returns the lowest waiting gate below a height. Opens all gates if derived
    /// attributes may be out of date.
    pub(crate) fn next_gate(&mut self, below: u16) -> Option<Gate> {
        if self.marked.has_watched() || self.gates.waiting.len() > MAX_PENDING_GATES {
            self.open_all();
        }
        if !self.gates.is_any_below(below) {
            return None;
        }

        let under_way = self.gates.settling.clone();
        under_way.into_iter().for_each(|id| self.open(id));
        let node = self.gates.pop()?;
        self.gates.settling.push(node);
        let subscriber = self.matching_subscriber(node);
        Some(Gate { node, subscriber })
    }

    /// Ends the settling of the gate that was returned last; if it could not be settled, its
    /// dependents are marked.
    pub(crate) fn settled(&mut self, id: NodeId) {
        self.gates.settling.pop();
        self.open(id);
    }

    /// Marks the dependents of a gate.
    pub(crate) fn open(&mut self, id: NodeId) {
        let Some(node) = self.memo.get_mut(id).filter(|node| node.gated) else {
            return;
        };
        node.gated = false;
        self.gates.remove(node.height, id);
        let parents = node.parents.as_slice().to_vec();
        self.mark_all(parents);
    }

    /// Closes a gate that is up to date with an equal value: its dependents are not marked because
    /// of it.
    pub(crate) fn close_unchanged(&mut self, id: NodeId) {
        if let Some(node) = self.memo.get_mut(id).filter(|node| node.gated) {
            node.gated = false;
            self.gates.remove(node.height, id);
        }
    }

    /// Marks the dependents of all gates, and disables gates from now on.
    pub(crate) fn open_all(&mut self) {
        self.gates.are_closed = false;
        let under_way = self.gates.settling.clone();
        under_way.into_iter().for_each(|id| self.open(id));
        while let Some(id) = self.gates.pop() {
            self.open(id);
        }
    }

    /// A subscriber of a dependent of this result whose attributes match it.
    fn matching_subscriber(&mut self, id: NodeId) -> Option<SubscriberId> {
        let query = self.memo.get(id)?.query;
        let mut seen = KeyedSet::default();
        let mut todo = vec![id];
        while let Some(above) = todo.pop() {
            if !seen.insert(above) {
                continue;
            }

            let Some(node) = self.memo.get(above) else {
                continue;
            };

            // Subscribers that share a result have the same attributes, so one is enough.
            let subscribers = [
                node.subscribers().next().map(|(subscriber, _)| subscriber),
                node.watchers().next(),
            ];
            todo.extend_from_slice(node.parents.as_slice());

            for subscriber in subscribers.into_iter().flatten() {
                if matches!(self.find(query, subscriber), Lookup::Node(found) if found == id) {
                    return Some(subscriber);
                }
            }
        }

        None
    }
}
