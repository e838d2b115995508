//! What waits to be revalidated.

use std::collections::BTreeSet;

use crate::ids::{NodeId, SubscriberId};
use crate::memo::Node;

/// Subscriptions and derived attributes that may be out of date.
#[derive(Clone)]
pub(crate) struct Marked<T> {
    /// Marked nodes with subscribers.
    published: Vec<NodeId>,
    /// Marked nodes that are attributes of subscribers.
    watched: Vec<NodeId>,
    /// Subscriptions whose node was dropped.
    dropped_subscriptions: BTreeSet<(SubscriberId, T)>,
    /// Subscribers with a derived attribute whose node was dropped.
    dropped_derived: BTreeSet<SubscriberId>,
    /// Subscribers with a derived attribute that could not be updated: retried at every change.
    failing: BTreeSet<SubscriberId>,
}

impl<T: Copy + Ord> Marked<T> {
    /// Notes a result that was just marked.
    pub(super) fn add(&mut self, id: NodeId, node: &Node<T>) {
        if node.is_published() {
            self.published.push(id);
        }
        if node.is_watched() {
            self.watched.push(id);
        }
    }

    /// Notes the subscribers and watchers of a result that was dropped.
    pub(super) fn add_dropped(&mut self, node: &Node<T>) {
        self.dropped_subscriptions.extend(node.subscribers());
        self.dropped_derived.extend(node.watchers());
    }

    /// Notes a subscriber whose derived attribute could not be updated.
    pub(super) fn add_failing(&mut self, subscriber: SubscriberId) {
        self.failing.insert(subscriber);
    }

    /// Forgets a subscriber that failed.
    pub(crate) fn remove_failing(&mut self, subscriber: SubscriberId) {
        self.failing.remove(&subscriber);
    }

    /// Forgets that the node of a subscription was dropped: it is up to date again.
    pub(crate) fn forget_subscription(&mut self, subscriber: SubscriberId, topic: T) {
        self.dropped_subscriptions.remove(&(subscriber, topic));
    }

    /// Forgets that the nodes of a subscriber's derived attributes were dropped: these have values
    /// again.
    pub(crate) fn forget_derived(&mut self, subscriber: SubscriberId) {
        self.dropped_derived.remove(&subscriber);
    }

    /// Whether derived attributes of subscribers may be out of date.
    pub(super) fn has_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether results with subscribers or watchers were dropped and these are not revalidated yet.
    pub(crate) fn has_dropped(&self) -> bool {
        let marked = self.published.is_empty() && self.watched.is_empty();
        !(marked && self.dropped_subscriptions.is_empty() && self.dropped_derived.is_empty())
    }

    /// Takes the marked nodes with subscribers.
    pub(crate) fn take_published(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.published)
    }

    /// Takes the marked nodes that are attributes of subscribers.
    pub(crate) fn take_watched(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.watched)
    }

    /// Takes the subscriptions whose node was dropped.
    pub(crate) fn take_dropped_subscriptions(&mut self) -> BTreeSet<(SubscriberId, T)> {
        std::mem::take(&mut self.dropped_subscriptions)
    }

    /// Takes the subscribers with a derived attribute whose node was dropped.
    pub(crate) fn take_dropped_derived(&mut self) -> BTreeSet<SubscriberId> {
        std::mem::take(&mut self.dropped_derived)
    }

    /// Takes the subscribers with a derived attribute that could not be updated.
    pub(crate) fn take_failing(&mut self) -> BTreeSet<SubscriberId> {
        std::mem::take(&mut self.failing)
    }
}

impl<T> Default for Marked<T> {
    fn default() -> Self {
        Self {
            published: Vec::new(),
            watched: Vec::new(),
            dropped_subscriptions: BTreeSet::new(),
            dropped_derived: BTreeSet::new(),
            failing: BTreeSet::new(),
        }
    }
}
