//! A copy of the engine, on which a change can be tried.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::Engine;
use crate::core::SubscriberState;
use crate::ids::SubscriberId;
use crate::inputs::Inputs;

impl<I: Inputs> Engine<I> {
    /// An independent engine with the same subscribers and results: changes of it do not affect
    /// this engine, and cost only what they affect. The cost of the copy is proportional to the
    /// kept results.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            core: RefCell::new(self.core.borrow().copy()),
            snapshot: self.snapshot.clone(),
            environment: self.environment.clone(),
            next_subscriber: self.next_subscriber,
            compared: None,
        }
    }

    /// The connected subscribers, and the topics of each.
    pub fn subscribers(&self) -> Vec<(SubscriberId, BTreeSet<I::Topic>)> {
        let core = self.core.borrow();
        let topics = |(id, state): (&SubscriberId, &SubscriberState<I>)| {
            (*id, state.published.keys().copied().collect())
        };
        core.subscribers.iter().map(topics).collect()
    }
}
