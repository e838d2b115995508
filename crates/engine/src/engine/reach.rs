//! The subscriptions that facts affect: follows the same edges as marking, without changing
//! anything.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::deps::Dep;
use crate::ids::{NodeId, SubscriberId};
use crate::inputs::Inputs;
use navarch_tables::hash::KeyedSet;

impl<I: Inputs> Engine<I> {
    /// The subscriptions that depend on any of these facts. Costs what depends on the facts.
    #[must_use]
    pub fn reach(&self, facts: &[I::Fact]) -> BTreeMap<SubscriberId, BTreeSet<I::Topic>> {
        let core = self.core.borrow();
        let mut todo: Vec<NodeId> = facts.iter().flat_map(|fact| core.readers(fact)).collect();
        let mut seen = KeyedSet::default();
        let mut reached: BTreeMap<SubscriberId, BTreeSet<I::Topic>> = BTreeMap::new();

        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }

            let Some(node) = core.memo.get(id) else {
                continue;
            };

            for (subscriber, topic) in node.subscribers() {
                reached.entry(subscriber).or_default().insert(topic);
            }

            // A parent may have been recomputed since without reading this one.
            let reads = |parent: &&NodeId| core.memo.reads(**parent, Dep::Node(id));
            todo.extend(node.parents.as_slice().iter().filter(reads));
        }

        reached
    }
}
