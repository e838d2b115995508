//! Marking: from changed facts to all results that depend on them.

use super::Core;
use crate::deps::Dep;
use crate::fact::FactKey;
use crate::memo::NodeId;
use navarch_api::hash_index::KeyHash;

impl Core {
    /// Marks all results that (transitively) read a changed fact, up to gates. The cost is
    /// proportional to these.
    pub(crate) fn mark(&mut self, key: &FactKey) {
        let Some(id) = self.known_fact(KeyHash::of(key), key) else {
            return;
        };
        let Some(fact) = self.facts.get_mut(id.0) else {
            return;
        };
        fact.changed_at = self.revision;
        let nodes = &self.nodes;
        let dep = Dep::Fact(id);
        fact.parents.sort_and_dedup();
        fact.parents.retain(|parent| {
            nodes
                .get(parent)
                .is_some_and(|node| node.deps.contains(dep))
        });
        let todo = fact.parents.as_slice().to_vec();
        self.mark_all(todo);
    }

    /// The results that read a fact.
    pub(crate) fn readers(&self, key: &FactKey) -> Vec<NodeId> {
        let Some(id) = self.known_fact(KeyHash::of(key), key) else {
            return Vec::new();
        };
        let parents = self
            .facts
            .get(id.0)
            .map(|fact| fact.parents.as_slice())
            .unwrap_or_default()
            .iter();
        let reads = |parent: &&NodeId| {
            self.nodes
                .get(*parent)
                .is_some_and(|node| node.deps.contains(Dep::Fact(id)))
        };
        parents.filter(reads).copied().collect()
    }

    /// Marks these results and all that (transitively) read them, up to gates.
    pub(crate) fn mark_all(&mut self, mut todo: Vec<NodeId>) {
        while let Some(id) = todo.pop() {
            let is_gate = self.waits_at_gates && self.is_gate(id);
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };

            if node.dirty {
                continue;
            }

            node.dirty = true;
            self.visited += 1;
            if !node.rare().subscribers.is_empty() {
                self.marked_published.push(id);
            }

            if !node.rare().watchers.is_empty() {
                self.marked_watched.push(id);
            }

            if is_gate {
                node.gated = true;
                self.gates.insert((node.height, id));
                continue;
            }

            node.parents.sort_and_dedup();
            todo.extend_from_slice(node.parents.as_slice());
        }
    }
}
