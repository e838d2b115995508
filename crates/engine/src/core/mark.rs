//! Marking: from changed facts to all results that depend on them.

use super::Core;
use crate::deps::Dep;
use crate::ids::NodeId;
use crate::inputs::Inputs;

impl<I: Inputs> Core<I> {
    /// Marks all results that (transitively) read a changed fact, up to gates. The cost is
    /// proportional to these.
    pub(crate) fn mark(&mut self, key: &I::Fact) {
        let Some(id) = self.facts.find(key) else {
            return;
        };
        let reads = |parent: &NodeId| self.memo.reads(*parent, Dep::Fact(id));
        let todo = self.facts.change(id, self.revision, reads);
        self.mark_all(todo);
    }

    /// The results that read a fact.
    pub(crate) fn readers(&self, key: &I::Fact) -> Vec<NodeId> {
        let Some(id) = self.facts.find(key) else {
            return Vec::new();
        };
        let parents = self.facts.readers(id).iter().copied();
        parents
            .filter(|parent| self.memo.reads(*parent, Dep::Fact(id)))
            .collect()
    }

    /// Marks these results and all that (transitively) read them, up to gates.
    pub(crate) fn mark_all(&mut self, mut todo: Vec<NodeId>) {
        while let Some(id) = todo.pop() {
            let is_gate = self.gates.are_closed() && self.is_gate(id);
            let Some(node) = self.memo.get_mut(id) else {
                continue;
            };

            if node.dirty {
                continue;
            }

            node.dirty = true;
            self.counters.visit(1);
            self.marked.add(id, node);

            if is_gate {
                node.gated = true;
                self.gates.add(node.height, id);
                continue;
            }

            node.parents.sort_and_dedup();
            todo.extend_from_slice(node.parents.as_slice());
        }
    }
}
