//! Where published collections go: to the sinks of proxies, and to an observer that records them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fact::FactKey;
use super::resource::{Collection, ResourceType};
use super::subscription::ProxyId;
use navarch_tables::hash::KeyedMap;

/// Why a push happened; shared by all collections that it publishes.
#[derive(Debug, Default)]
pub struct PushCause {
    /// Revision of the snapshot, counted from 1 at start.
    pub revision: u64,
    /// The facts that changed, empty for an answer to a subscription.
    pub changed: Vec<FactKey>,
    /// Number of subscriptions that this answers; 0 for a change.
    pub answers: u32,
}

/// The receiver of a proxy's collections. Must not block: it is called from the engine's thread,
/// once per change and proxy.
pub trait Sink: Send + Sync {
    /// Receives the new collection of one type.
    fn publish(
        &self,
        resource_type: ResourceType,
        collection: Arc<Collection>,
        cause: &Arc<PushCause>,
    );

    /// All collections of a change were published; not called after an answer to a subscription,
    /// nor if nothing was published. Sinks that order responses across types wait for it.
    fn change_ended(&self) {}
}

/// A collection that was published to a proxy.
#[derive(Clone, Debug)]
pub struct PublishedCollection {
    /// The stream that gets it: a proxy that connects again has another id.
    pub proxy: ProxyId,
    /// The type of the subscription that the collection answers.
    pub resource_type: ResourceType,
    /// The collection, shared with the engine and other proxies.
    pub collection: Arc<Collection>,
}

/// The sinks of all proxies.
#[derive(Default)]
pub(super) struct Delivery {
    /// The sink of each proxy.
    sinks: KeyedMap<ProxyId, Arc<dyn Sink>>,
    /// Proxies to which the current change was published.
    published_to: BTreeSet<ProxyId>,
    /// Collections published since this was last taken; `None` without an observer.
    kept: Option<Vec<PublishedCollection>>,
}

impl Delivery {
    /// Sets the sink of a proxy.
    pub(super) fn connect(&mut self, proxy: ProxyId, sink: Arc<dyn Sink>) {
        self.sinks.insert(proxy, sink);
    }

    /// Removes the sink of a proxy.
    pub(super) fn disconnect(&mut self, proxy: ProxyId) {
        self.sinks.remove(&proxy);
    }

    /// Whether a proxy has a sink.
    pub(super) fn is_connected(&self, proxy: ProxyId) -> bool {
        self.sinks.contains_key(&proxy)
    }

    /// Publishes a collection that answers a subscription; returns false if the proxy has no sink.
    pub(super) fn answer(
        &mut self,
        proxy: ProxyId,
        resource_type: ResourceType,
        collection: &Arc<Collection>,
        cause: &Arc<PushCause>,
    ) -> bool {
        let Some(sink) = self.sinks.get(&proxy) else {
            return false;
        };

        sink.publish(resource_type, collection.clone(), cause);
        if let Some(kept) = &mut self.kept {
            kept.push(PublishedCollection {
                proxy,
                resource_type,
                collection: collection.clone(),
            });
        }
        true
    }

    /// Publishes a collection that differs after a change; returns false if the proxy has no sink.
    pub(super) fn publish(
        &mut self,
        proxy: ProxyId,
        resource_type: ResourceType,
        collection: &Arc<Collection>,
        cause: &Arc<PushCause>,
    ) -> bool {
        let is_delivered = self.answer(proxy, resource_type, collection, cause);
        if is_delivered {
            self.published_to.insert(proxy);
        }
        is_delivered
    }

    /// Calls [`Sink::change_ended`] of the sinks with new collections.
    pub(super) fn end_change(&mut self) {
        for sink in std::mem::take(&mut self.published_to)
            .iter()
            .filter_map(|proxy| self.sinks.get(proxy))
        {
            sink.change_ended();
        }
    }

    /// Keeps published collections from now on, until they are taken.
    pub(super) fn keep(&mut self) {
        self.kept.get_or_insert_default();
    }

    /// Takes the collections published since the last call; empty unless they are kept.
    pub(super) fn take_kept(&mut self) -> Vec<PublishedCollection> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
