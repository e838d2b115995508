//! Links between subscriptions and the results that they show.

use super::Engine;
use crate::core::{Core, PublishedState};
use crate::ids::{NodeId, SubscriberId};
use crate::inputs::Inputs;

impl<I: Inputs> Engine<I> {
    /// Links a subscription to its node.
    pub(crate) fn link_published(
        &mut self,
        subscriber: SubscriberId,
        topic: I::Topic,
        published: PublishedState<I>,
    ) {
        let core = self.core.get_mut();
        core.marked.forget_subscription(subscriber, topic);
        Self::link(core, subscriber, topic, published.node);
        if let Some(state) = core.subscribers.get_mut(&subscriber) {
            state.published.insert(topic, published);
        }
    }

    /// Links a subscription to a node. The node may have had no subscribers when the sweep in
    /// progress checked it: without a mark the sweep would remove the attributes that it depends on.
    pub(crate) fn link(
        core: &mut Core<I>,
        subscriber: SubscriberId,
        topic: I::Topic,
        node: NodeId,
    ) {
        core.touch(node);
        if let Some(node) = core.memo.get_mut(node) {
            node.rare_mut().subscribers.insert((subscriber, topic));
        }
    }

    /// Unlinks a subscription from a node.
    pub(crate) fn unlink(
        core: &mut Core<I>,
        subscriber: SubscriberId,
        topic: I::Topic,
        node: NodeId,
    ) {
        if let Some(node) = core.memo.get_mut(node) {
            node.rare_mut().subscribers.remove(&(subscriber, topic));
        }
    }

    /// Unlinks an ending subscription from a node, which may then be unused.
    pub(crate) fn unlink_ended(
        core: &mut Core<I>,
        subscriber: SubscriberId,
        topic: I::Topic,
        node: NodeId,
    ) {
        Self::unlink(core, subscriber, topic, node);
        if core.memo.get(node).is_some_and(|node| !node.is_published()) {
            core.sweeps.add_orphans();
        }
    }
}
