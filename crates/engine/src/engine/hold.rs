//! Results that are computed one by one before a subscription depends on them, so that other
//! subscribers can be served in between.

use super::Engine;
use crate::core::Lookup;
use crate::ids::{NodeId, SubscriberId};
use crate::inputs::Inputs;
use crate::query::{Computes, Query};

impl<I: Inputs> Engine<I> {
    /// Whether a subscriber with the same attributes has got the value of a query, so that it is
    /// not computed again unless its inputs changed. False if the subscriber is not connected.
    pub fn is_known<Q: Query>(&mut self, id: SubscriberId, query: &Q) -> bool
    where
        I: Computes<Q>,
    {
        if !self.core.get_mut().subscribers.contains_key(&id) {
            return false;
        }

        let query = self.core.get_mut().query_id(query);
        loop {
            let found = self.core.get_mut().find(query, id);
            match found {
                Lookup::Node(_) => return true,
                Lookup::Nothing => return false,
                Lookup::Derive(attr) => _ = self.view_for(id).derive(attr),
            }
        }
    }

    /// Computes a query for a subscriber and keeps the result, until the subscriber's next
    /// subscription has its value or [`Self::release`] is called.
    pub fn hold<Q: Query>(&mut self, id: SubscriberId, query: &Q)
    where
        I: Computes<Q>,
    {
        if let Some(node) = self.up_to_date(id, query)
            && let Some(state) = self.core.get_mut().subscribers.get_mut(&id)
        {
            state.held.push(node);
        }
    }

    /// As [`Self::hold`], for a result that depends on all held results except the first `kept`:
    /// these need not be held any more.
    pub fn hold_instead<Q: Query>(&mut self, id: SubscriberId, kept: usize, query: &Q)
    where
        I: Computes<Q>,
    {
        let node = self.up_to_date(id, query);
        if let Some(state) = self.core.get_mut().subscribers.get_mut(&id) {
            state.held.truncate(kept);
            state.held.extend(node);
        }
    }

    /// The number of results that are held for a subscriber.
    #[must_use]
    pub fn held(&self, id: SubscriberId) -> usize {
        let core = self.core.borrow();
        core.subscribers
            .get(&id)
            .map(|state| state.held.len())
            .unwrap_or_default()
    }

    /// Holds nothing for a subscriber any more.
    pub fn release(&mut self, id: SubscriberId) {
        if let Some(state) = self.core.get_mut().subscribers.get_mut(&id) {
            state.held = Vec::new();
        }
    }

    /// The up-to-date node of a query, which the sweep in progress keeps. `None` if its computation
    /// panics, or the subscriber is not connected.
    fn up_to_date<Q: Query>(&mut self, id: SubscriberId, query: &Q) -> Option<NodeId>
    where
        I: Computes<Q>,
    {
        let query = self.core.get_mut().query_id(query);
        let node = self.view(id)?.node_of(query).ok()?;
        self.core.get_mut().touch(node);
        Some(node)
    }
}
