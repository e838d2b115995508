//! Gates: results on which much rests, which are brought up to date before any of that is marked.
//!
//! A change of a VirtualService touches the table of a port's virtual hosts, on which each of thousands of hosts rests, and
//! leaves it as it was. To mark the hosts, and to find of each that nothing changed, would cost what exists rather than
//! what changed. So marking waits at such a result; where its value stays, nothing above was touched.
//!
//! Gates are settled by height, the lowest first: then nothing that a gate has read waits for another gate. What a
//! computation comes to read for the first time may stand higher than waiting gates: those are settled first
//! ([`Core::next_gate`] is asked before any result is read), and as they may rest on the one under way, that one opens
//! before. So whatever is read is right, and no result is computed from what is not.
//!
//! A gate is computed for a proxy to which it is shown, whose answers fit it; while answers of proxies may be out of date
//! themselves there is none, and all gates open: what rests on them is marked as if there were no gates.

use super::{Core, Lookup};
use crate::memo::{Dep, Deps, NodeId};
use navarch_api::hash::KeyedSet;

/// How much must rest on a result to make it a gate: results that read it, or what one of those looks through. Small in
/// tests, where everything is small.
const GATE_MIN_DEPENDENTS: usize = if cfg!(test) { 2 } else { 16 };
/// With more gates waiting, a change reaches so much that it pays no longer to find out what it does not reach.
const MAX_PENDING_GATES: usize = 2_048;

/// A gate to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) node: NodeId,
    /// For whom it can be brought up to date, if for anybody.
    pub(crate) proxy: Option<u64>,
}

impl Core {
    /// Whether marking waits at a result.
    pub(super) fn is_gate(&self, id: NodeId) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        if self.is_gate_by_nature(node.query) {
            return true;
        }
        let looks_through_much =
            |parent: &NodeId| self.nodes.get(parent).is_some_and(|node| node.deps.len() >= GATE_MIN_DEPENDENTS);
        node.parents.len() >= GATE_MIN_DEPENDENTS || node.parents.iter().any(looks_through_much)
    }

    /// How high a result stands that reads these.
    pub(super) fn height_over(&self, deps: &Deps) -> u16 {
        let heights = deps.iter().filter_map(|dep| match dep {
            Dep::Node(id) => self.nodes.get(&id).map(|node| node.height.saturating_add(1)),
            Dep::Fact(_) => None,
        });
        heights.max().unwrap_or_default()
    }

    /// Puts a result above what it reads now, and what rests on it above it.
    pub(crate) fn raise(&mut self, id: NodeId) {
        let Some(deps) = self.nodes.get(&id).map(|node| node.deps.clone()) else { return };
        let mut todo = vec![(id, self.height_over(&deps))];
        while let Some((id, height)) = todo.pop() {
            let Some(node) = self.nodes.get_mut(&id).filter(|node| node.height < height) else { continue };
            let before = std::mem::replace(&mut node.height, height);
            if self.gates.remove(&(before, id)) {
                self.gates.insert((height, id));
            }
            let Some(parents) = self.nodes.get(&id).map(|node| node.parents.clone()) else { continue };
            // The list may name what no longer reads this one, and might lead in circles.
            let reads = |parent: &NodeId| {
                let parent = self.nodes.get(parent);
                parent.is_some_and(|node| node.height <= height && node.deps.contains(Dep::Node(id)))
            };
            todo.extend(parents.into_iter().filter(reads).map(|parent| (parent, height.saturating_add(1))));
        }
    }

    /// Takes the lowest gate below a height out of those that wait. Opens all where no proxy can stand for others.
    pub(crate) fn next_gate(&mut self, below: u16) -> Option<Gate> {
        if !self.marked_watched.is_empty() || self.gates.len() > MAX_PENDING_GATES {
            self.open_all();
        }
        self.gates.first().filter(|(height, _)| *height < below)?;
        let under_way = self.settling.clone();
        under_way.into_iter().for_each(|id| self.open(id));
        let (_, node) = self.gates.pop_first()?;
        self.settling.push(node);
        let proxy = self.shown_to(node);
        Some(Gate { node, proxy })
    }

    /// The gate that was taken out last is settled, or cannot be: then what rests on it is marked.
    pub(crate) fn settled(&mut self, id: NodeId) {
        self.settling.pop();
        self.open(id);
    }

    /// Marks what rests on a gate.
    pub(crate) fn open(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.gated) else { return };
        node.gated = false;
        self.gates.remove(&(node.height, id));
        let parents = node.parents.clone();
        self.mark_all(parents);
    }

    /// A result is up to date and has the value that it had: nothing above it was touched, as far as it counts.
    pub(crate) fn stay_shut(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.gated) {
            node.gated = false;
            self.gates.remove(&(node.height, id));
        }
    }

    /// Marks what rests on any gate, and waits at none from now on.
    pub(crate) fn open_all(&mut self) {
        self.waits_at_gates = false;
        let under_way = self.settling.clone();
        under_way.into_iter().for_each(|id| self.open(id));
        while let Some((_, id)) = self.gates.pop_first() {
            self.open(id);
        }
    }

    /// A proxy that is shown what rests on a result, and that the result answers.
    fn shown_to(&mut self, id: NodeId) -> Option<u64> {
        let query = self.nodes.get(&id)?.query;
        let mut seen = KeyedSet::default();
        let mut todo = vec![id];
        while let Some(above) = todo.pop() {
            if !seen.insert(above) {
                continue;
            }
            let Some(node) = self.nodes.get(&above) else { continue };
            // Those who share a result gave the same answers: one stands for all.
            let proxies = [
                node.rare().subscribers.first().map(|(proxy, _)| *proxy),
                node.rare().watchers.first().map(|(proxy, _)| *proxy),
            ];
            todo.extend_from_slice(&node.parents);
            for proxy in proxies.into_iter().flatten() {
                if matches!(self.find(query, proxy), Lookup::Node(found) if found == id) {
                    return Some(proxy);
                }
            }
        }
        None
    }
}
