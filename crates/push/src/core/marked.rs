//! What waits to be revalidated.

use std::collections::BTreeSet;

use crate::ids::NodeId;
use crate::memo::Node;
use crate::resource::ResourceType;

/// Subscriptions and derived answers that may be out of date.
#[derive(Clone, Default)]
pub(crate) struct Marked {
    /// Marked nodes with subscribers.
    published: Vec<NodeId>,
    /// Marked nodes that are attributes of proxies.
    watched: Vec<NodeId>,
    /// Subscriptions whose node was dropped.
    dropped_subscriptions: BTreeSet<(u64, ResourceType)>,
    /// Proxies with a derived answer whose node was dropped.
    unanswered: BTreeSet<u64>,
    /// Proxies with a derived answer that could not be updated: retried at every change.
    failing: BTreeSet<u64>,
}

impl Marked {
    /// Notes a result that was just marked.
    pub(super) fn add(&mut self, id: NodeId, node: &Node) {
        if node.is_published() {
            self.published.push(id);
        }
        if node.is_watched() {
            self.watched.push(id);
        }
    }

    /// Notes the subscribers and watchers of a result that was dropped.
    pub(super) fn add_dropped(&mut self, node: &Node) {
        self.dropped_subscriptions.extend(node.subscribers());
        self.unanswered.extend(node.watchers());
    }

    /// Notes a proxy whose derived answer could not be updated.
    pub(super) fn add_failing(&mut self, proxy: u64) {
        self.failing.insert(proxy);
    }

    /// Forgets a proxy that failed.
    pub(crate) fn remove_failing(&mut self, proxy: u64) {
        self.failing.remove(&proxy);
    }

    /// Forgets that the node of a subscription was dropped: it is up to date again.
    pub(crate) fn forget_subscription(&mut self, proxy: u64, kind: ResourceType) {
        self.dropped_subscriptions.remove(&(proxy, kind));
    }

    /// Forgets that the node of a derived answer was dropped: the proxy is answered again.
    pub(crate) fn forget_unanswered(&mut self, proxy: u64) {
        self.unanswered.remove(&proxy);
    }

    /// Whether derived answers of proxies may be out of date.
    pub(super) fn has_watched(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Whether results with subscribers or watchers were dropped and these are not revalidated yet.
    pub(crate) fn has_dropped(&self) -> bool {
        let marked = self.published.is_empty() && self.watched.is_empty();
        !(marked && self.dropped_subscriptions.is_empty() && self.unanswered.is_empty())
    }

    /// Takes the marked nodes with subscribers.
    pub(crate) fn take_published(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.published)
    }

    /// Takes the marked nodes that are attributes of proxies.
    pub(crate) fn take_watched(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.watched)
    }

    /// Takes the subscriptions whose node was dropped.
    pub(crate) fn take_dropped_subscriptions(&mut self) -> BTreeSet<(u64, ResourceType)> {
        std::mem::take(&mut self.dropped_subscriptions)
    }

    /// Takes the proxies with a derived answer whose node was dropped.
    pub(crate) fn take_unanswered(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.unanswered)
    }

    /// Takes the proxies with a derived answer that could not be updated.
    pub(crate) fn take_failing(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.failing)
    }
}
