//! Gates: results with many dependents, which are updated before any of the dependents is marked.
//!
//! A change of a VirtualService affects the table of a port's virtual hosts, on which thousands of
//! hosts depend, and usually leaves it equal. Marking the hosts, and finding out for each that
//! nothing changed, would cost in proportion to all hosts rather than to the change. So marking
//! stops at such a result; if its value stays equal, its dependents are not touched.
//!
//! Gates are settled by height, the lowest first: then no dependency of a gate waits for another
//! gate. A dependency that a computation reads for the first time may be higher than waiting gates:
//! those are settled first ([`Core::next_gate`] is called before any result is read), and as they
//! may depend on the one in progress, that one opens before. So every value that is read is valid.
//!
//! A gate is computed for a subscribed proxy whose answers match it. While answers of proxies may
//! be out of date themselves, there is no such proxy, and all gates open: their dependents are
//! marked as if there were no gates.

use super::{Core, Lookup};
use crate::deps::{Dep, Deps};
use crate::memo::NodeId;
use navarch_api::hash::KeyedSet;

/// With more gates waiting, a change affects so much that gates do not pay off.
const MAX_PENDING_GATES: usize = 2_048;

/// A gate to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) node: NodeId,
    /// A proxy for which it can be updated, if any.
    pub(crate) proxy: Option<u64>,
}

impl Core {
    /// Whether a result is a gate.
    pub(super) fn is_gate(&self, id: NodeId) -> bool {
        let Some(node) = self.nodes.get(&id) else {
            return false;
        };
        if self.is_gate_by_nature(node.query) {
            return true;
        }
        let min = self.config.gate_min_dependents;
        let looks_through_much = |parent: &NodeId| {
            self.nodes
                .get(parent)
                .is_some_and(|node| node.deps.len() >= min)
        };
        node.parents.len() >= min || node.parents.as_slice().iter().any(looks_through_much)
    }

    /// The height of a result with these dependencies.
    pub(super) fn height_over(&self, deps: &Deps) -> u16 {
        let heights = deps.iter().filter_map(|dep| match dep {
            Dep::Node(id) => self
                .nodes
                .get(&id)
                .map(|node| node.height.saturating_add(1)),
            Dep::Fact(_) => None,
        });
        heights.max().unwrap_or_default()
    }

    /// Raises the height of a result above its current dependencies, and that of its dependents
    /// above it.
    pub(crate) fn raise(&mut self, id: NodeId) {
        let Some(deps) = self.nodes.get(&id).map(|node| node.deps.clone()) else {
            return;
        };

        let mut todo = vec![(id, self.height_over(&deps))];
        while let Some((id, height)) = todo.pop() {
            let Some(node) = self.nodes.get_mut(&id).filter(|node| node.height < height) else {
                continue;
            };

            let before = std::mem::replace(&mut node.height, height);
            if self.gates.remove(&(before, id)) {
                self.gates.insert((height, id));
            }

            let Some(parents) = self.nodes.get(&id).map(|node| node.parents.clone()) else {
                continue;
            };

            // The list may contain nodes that no longer read this one, which could make a cycle.
            let reads = |parent: &NodeId| {
                let parent = self.nodes.get(parent);
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

    /// Removes and returns the lowest waiting gate below a height. Opens all gates if answers of
    /// proxies may be out of date.
    pub(crate) fn next_gate(&mut self, below: u16) -> Option<Gate> {
        if !self.marked_watched.is_empty() || self.gates.len() > MAX_PENDING_GATES {
            self.open_all();
        }
        self.gates.first().filter(|(height, _)| *height < below)?;
        let under_way = self.settling.clone();
        under_way.into_iter().for_each(|id| self.open(id));
        let (_, node) = self.gates.pop_first()?;
        self.settling.push(node);
        let proxy = self.matching_subscriber(node);
        Some(Gate { node, proxy })
    }

    /// Ends the settling of the gate that was returned last; if it could not be settled, its
    /// dependents are marked.
    pub(crate) fn settled(&mut self, id: NodeId) {
        self.settling.pop();
        self.open(id);
    }

    /// Marks the dependents of a gate.
    pub(crate) fn open(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.gated) else {
            return;
        };
        node.gated = false;
        self.gates.remove(&(node.height, id));
        let parents = node.parents.as_slice().to_vec();
        self.mark_all(parents);
    }

    /// Closes a gate that is up to date with an equal value: its dependents are not marked because
    /// of it.
    pub(crate) fn close_unchanged(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.gated) {
            node.gated = false;
            self.gates.remove(&(node.height, id));
        }
    }

    /// Marks the dependents of all gates, and disables gates from now on.
    pub(crate) fn open_all(&mut self) {
        self.waits_at_gates = false;
        let under_way = self.settling.clone();
        under_way.into_iter().for_each(|id| self.open(id));
        while let Some((_, id)) = self.gates.pop_first() {
            self.open(id);
        }
    }

    /// A subscriber of a dependent of this result whose answers match it.
    fn matching_subscriber(&mut self, id: NodeId) -> Option<u64> {
        let query = self.nodes.get(&id)?.query;
        let mut seen = KeyedSet::default();
        let mut todo = vec![id];
        while let Some(above) = todo.pop() {
            if !seen.insert(above) {
                continue;
            }

            let Some(node) = self.nodes.get(&above) else {
                continue;
            };

            // Proxies that share a result gave the same answers, so one is enough.
            let proxies = [
                node.rare().subscribers.first().map(|(proxy, _)| *proxy),
                node.rare().watchers.first().map(|(proxy, _)| *proxy),
            ];
            todo.extend_from_slice(node.parents.as_slice());

            for proxy in proxies.into_iter().flatten() {
                if matches!(self.find(query, proxy), Lookup::Node(found) if found == id) {
                    return Some(proxy);
                }
            }
        }

        None
    }
}
