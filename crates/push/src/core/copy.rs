//! A copy of the tables, for an engine on which a change is tried.

use super::{Core, ProxyState};
use crate::trace::Traces;

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
            memo: self.memo.clone(),
            facts: self.facts.clone(),
            queries: self.queries.clone(),
            attributes: self.attributes.clone(),
            answers: self.answers.clone(),
            // No computation is in progress between the engine's operations.
            traces: Traces::default(),
            proxies: self.proxies.iter().map(proxy).collect(),
            gates: self.gates.clone(),
            marked: self.marked.clone(),
            counters: self.counters,
            diagnostics: self.diagnostics.clone(),
            sweeps: self.sweeps.copy(),
        }
    }
}
