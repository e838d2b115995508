//! A copy of the tables, for an engine on which a change is tried.

use super::{Core, ProxyState};

impl Core {
    /// An independent copy of the tables: results and their keys are shared. The cost is
    /// proportional to the kept results, about half a sweep. Partial results of unanswered
    /// subscriptions and the sweep in progress are not copied.
    pub(crate) fn copy(&self) -> Self {
        let proxy = |(id, state): (&u64, &ProxyState)| {
            let copy = ProxyState {
                proxy: state.proxy.clone(),
                answers: state.answers.clone(),
                derived: state.derived.clone(),
                published: state.published.clone(),
                prepared: None,
            };
            (*id, copy)
        };

        Self {
            config: self.config,
            revision: self.revision,
            next_node: self.next_node,
            nodes: self.nodes.clone(),
            facts: self.facts.clone(),
            fact_index: self.fact_index.clone(),
            free_facts: self.free_facts.clone(),
            queries: self.queries.clone(),
            free_queries: self.free_queries.clone(),
            query_index: self.query_index.clone(),
            trees: self.trees.clone(),
            attrs: self.attrs.clone(),
            free_attrs: self.free_attrs.clone(),
            plain_ids: self.plain_ids.clone(),
            derived_ids: self.derived_ids.clone(),
            value_ids: self.value_ids.clone(),
            free_values: self.free_values.clone(),
            // No computation is in progress between the engine's operations.
            frames: Vec::new(),
            proxies: self.proxies.iter().map(proxy).collect(),
            gates: self.gates.clone(),
            settling: self.settling.clone(),
            waits_at_gates: self.waits_at_gates,
            visited: self.visited,
            marked_published: self.marked_published.clone(),
            marked_watched: self.marked_watched.clone(),
            dropped_subscriptions: self.dropped_subscriptions.clone(),
            unanswered: self.unanswered.clone(),
            failing: self.failing.clone(),
            computed: self.computed,
            reused: self.reused,
            fresh_remarks: self.fresh_remarks.clone(),
            notices: self.notices.clone(),
            has_orphans: self.has_orphans,
            sweeping: None,
            sweep_number: self.sweep_number,
            swept: self.swept,
            loose_edges: self.loose_edges,
        }
    }
}
