//! The engine: subscribers, the value published to each, and its update after changes.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use super::config::{EngineConfig, EngineSizes, PushStats};
use super::core::{Core, Derived, PublishedState, SubscriberState};
use super::ids::{NodeId, QueryId, SubscriberId};
use super::inputs::Inputs;
use super::query::{Computes, Query};
use super::view::View;

mod copy;
mod freeing;
mod hold;
mod links;
mod provenance;
mod reach;
mod remarks;
mod revalidate;

pub use provenance::Faulty;
pub use remarks::Remark;

/// Receives published values: the subscriber, the topic of its subscription, and the value, which
/// subscribers with the same attributes share. Must not block, nor panic.
pub type Publish<'a, I> =
    dyn FnMut(SubscriberId, <I as Inputs>::Topic, &Arc<<I as Inputs>::Published>) + 'a;

/// The engine. One thread owns it.
pub struct Engine<I: Inputs> {
    /// Kept results, subscribers, subscriptions.
    core: RefCell<Core<I>>,
    /// The snapshot in force.
    snapshot: Arc<I::Snapshot>,
    environment: Arc<I::Environment>,
    next_subscriber: u64,
    /// The last two values that were compared, and whether they are equal.
    compared: Option<ComparedValues<I>>,
}

/// Two published values.
struct ComparedValues<I: Inputs> {
    old: Arc<I::Published>,
    new: Arc<I::Published>,
    are_equal: bool,
}

impl<I: Inputs> Engine<I> {
    /// An engine on a first snapshot.
    #[must_use]
    pub fn new(snapshot: Arc<I::Snapshot>, environment: Arc<I::Environment>) -> Self {
        Self::with_config(EngineConfig::default(), snapshot, environment)
    }

    /// An engine on a first snapshot, with this configuration.
    #[must_use]
    pub fn with_config(
        config: EngineConfig,
        snapshot: Arc<I::Snapshot>,
        environment: Arc<I::Environment>,
    ) -> Self {
        Self {
            core: RefCell::new(Core::new(config)),
            snapshot,
            environment,
            next_subscriber: 0,
            compared: None,
        }
    }

    /// The snapshot in force.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<I::Snapshot> {
        &self.snapshot
    }

    /// The revision of the snapshot in force, counted from 1.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.core.borrow().revision
    }

    /// Adds a subscriber. Nothing is computed until it subscribes.
    pub fn connect(&mut self, subscriber: Arc<I::Subscriber>) -> SubscriberId {
        let id = SubscriberId::of(self.next_subscriber);
        self.next_subscriber += 1;
        let state = SubscriberState::new(subscriber);
        self.core.get_mut().subscribers.insert(id, state);
        id
    }

    /// Removes a subscriber.
    pub fn disconnect(&mut self, id: SubscriberId) {
        let core = self.core.get_mut();
        let Some(state) = core.subscribers.remove(&id) else {
            return;
        };

        if !state.held.is_empty() {
            core.sweeps.add_orphans();
        }

        for (topic, published) in state.published {
            Self::unlink_ended(core, id, topic, published.node);
        }

        for (attr, derived) in state.derived {
            if let Derived::From(node) = derived
                && let Some(node) = core.memo.get_mut(node)
            {
                node.rare_mut().watchers.remove(&(id, attr));
            }
        }

        core.marked.remove_failing(id);
    }

    /// Subscribes to the value of a query, instead of the subscriber's previous subscription to
    /// this topic, and publishes it at once.
    pub fn subscribe<Q: Query>(
        &mut self,
        id: SubscriberId,
        topic: I::Topic,
        query: &Q,
        publish: &mut Publish<'_, I>,
    ) where
        I: Computes<Q, Value = <I as Inputs>::Published>,
    {
        let query = self.core.get_mut().query_id(query);
        self.unsubscribe(id, topic);

        if let Some((node, value)) = self.evaluate(id, query) {
            let published = PublishedState {
                query,
                node,
                value: value.clone(),
            };
            self.link_published(id, topic, published);
            publish(id, topic, &value);
        }

        self.release(id);
        self.revalidate_dropped(publish, &mut PushStats::default());
        self.compared = None;
    }

    /// Removes a subscription.
    pub fn unsubscribe(&mut self, id: SubscriberId, topic: I::Topic) {
        let core = self.core.get_mut();
        if let Some(old) = core
            .subscribers
            .get_mut(&id)
            .and_then(|state| state.published.remove(&topic))
        {
            Self::unlink_ended(core, id, topic, old.node);
        }
    }

    /// Replaces the snapshot in force, and publishes what differs. `changed` must contain every
    /// fact whose value differs from the last snapshot's; the cost is proportional to the number of
    /// their readers.
    pub fn apply(
        &mut self,
        snapshot: Arc<I::Snapshot>,
        changed: &[I::Fact],
        publish: &mut Publish<'_, I>,
    ) -> PushStats {
        let core = self.core.get_mut();
        core.revision += 1;
        self.snapshot = snapshot;
        let before = core.counters;
        self.mark(changed);

        let mut stats = PushStats::default();
        let failing = self.core.get_mut().marked.take_failing();
        self.revalidate(failing, publish, &mut stats);
        self.revalidate_dropped(publish, &mut stats);
        self.compared = None;

        let core = self.core.get_mut();
        stats.computed = core.counters.computed() - before.computed();
        stats.visited = core.counters.visited() - before.visited();
        stats
    }

    /// The value of a topic that was last published to a subscriber.
    #[must_use]
    pub fn published(&self, id: SubscriberId, topic: I::Topic) -> Option<Arc<I::Published>> {
        self.core
            .borrow()
            .subscribers
            .get(&id)?
            .published
            .get(&topic)
            .map(|published| published.value.clone())
    }

    /// Sizes for metrics and debugging.
    #[must_use]
    pub fn sizes(&self) -> EngineSizes {
        self.core.borrow().sizes()
    }

    /// All facts that something has read.
    #[must_use]
    pub fn facts(&self) -> Vec<I::Fact> {
        self.core.borrow().facts.keys().cloned().collect()
    }

    /// The value of a query for a subscriber, outside of any subscription; `None` if the subscriber
    /// is not connected.
    ///
    /// # Panics
    /// If the query's computation panics and it has no fallback value.
    pub fn query<Q: Query>(&self, id: SubscriberId, query: &Q) -> Option<Arc<I::Value>>
    where
        I: Computes<Q>,
    {
        Some(self.view(id)?.get(query))
    }

    /// As [`Self::query`], for a value that is not needed again: the next sweep frees it, also if no
    /// subscription ends until then.
    ///
    /// # Panics
    /// As [`Self::query`].
    pub fn query_once<Q: Query>(&self, id: SubscriberId, query: &Q) -> Option<Arc<I::Value>>
    where
        I: Computes<Q>,
    {
        let value = self.view(id)?.get(query);
        self.core.borrow_mut().sweeps.add_orphans();
        Some(value)
    }

    /// The snapshot as seen for a subscriber, outside of any computation; `None` if the subscriber
    /// is not connected.
    ///
    /// Lookups derive attributes until all that a query reads are known, which never ends for a
    /// subscriber without a state to keep them in.
    #[must_use]
    pub fn view(&self, id: SubscriberId) -> Option<View<'_, I>> {
        let is_connected = self.core.borrow().subscribers.contains_key(&id);
        is_connected.then(|| self.view_for(id))
    }

    /// As [`Self::view`], for a subscriber that is connected, or to which no query is addressed.
    fn view_for(&self, subscriber: SubscriberId) -> View<'_, I> {
        View {
            core: &self.core,
            snapshot: &self.snapshot,
            environment: &self.environment,
            subscriber,
        }
    }

    /// Marks all results that these facts may affect. Dependents of a gate are marked only if the
    /// gate's value has changed.
    fn mark(&mut self, changed: &[I::Fact]) {
        let core = self.core.get_mut();
        core.gates.close();
        changed.iter().for_each(|fact| core.mark(fact));
        // Each gate is settled for a subscriber of its own.
        self.view_for(SubscriberId::NONE).settle_gates(u16::MAX);
        self.core.get_mut().open_all();
    }

    /// Updates a subscription's query for a subscriber. `None` if its computation panics, or the
    /// subscriber is not connected.
    fn evaluate(
        &self,
        subscriber: SubscriberId,
        query: QueryId,
    ) -> Option<(NodeId, Arc<I::Published>)> {
        let node = self.view(subscriber)?.node_of(query).ok()?;
        let value = self
            .core
            .borrow()
            .memo
            .get(node)
            .map(|node| node.value.clone())?;
        Some((node, value.downcast::<I::Published>().ok()?))
    }
}

impl<I: Inputs> fmt::Debug for Engine<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("sizes", &self.sizes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
