//! A copy of the tables, for an engine on which a change is tried.

use super::{Core, SubscriberState};
use crate::ids::SubscriberId;
use crate::inputs::Inputs;
use crate::trace::Traces;

impl<I: Inputs> Core<I> {
    /// An independent copy of the tables: results and their keys are shared. The cost is
    /// proportional to the kept results, about half a sweep. Held results and the
    /// sweep in progress are not copied.
    pub(crate) fn copy(&self) -> Self {
        let subscriber = |(id, state): (&SubscriberId, &SubscriberState<I>)| {
            let copy = SubscriberState {
                subscriber: state.subscriber.clone(),
                attr_values: state.attr_values.clone(),
                derived: state.derived.clone(),
                published: state.published.clone(),
                held: Vec::new(),
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
            attr_values: self.attr_values.clone(),
            // No computation is in progress between the engine's operations.
            traces: Traces::default(),
            subscribers: self.subscribers.iter().map(subscriber).collect(),
            gates: self.gates.clone(),
            marked: self.marked.clone(),
            counters: self.counters,
            diagnostics: self.diagnostics.clone(),
            sweeps: self.sweeps.copy(),
        }
    }
}
