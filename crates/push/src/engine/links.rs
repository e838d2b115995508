//! Links between subscriptions and the results that they show.

use super::Engine;
use crate::core::{Core, PublishedState};
use crate::ids::NodeId;
use crate::resource::ResourceType;

impl Engine {
    /// Links a subscription to its node.
    pub(super) fn link_published(
        &mut self,
        proxy: u64,
        kind: ResourceType,
        published: PublishedState,
    ) {
        let core = self.core.get_mut();
        core.marked.forget_subscription(proxy, kind);
        Self::link(core, proxy, kind, published.node);
        if let Some(state) = core.proxies.get_mut(&proxy) {
            state.published.insert(kind, published);
        }
    }

    /// Links a subscription to a node. The node may have had no subscribers when the sweep in
    /// progress checked it: without a mark the sweep would remove the answers that it depends on.
    pub(super) fn link(core: &mut Core, proxy: u64, kind: ResourceType, node: NodeId) {
        core.touch(node);
        if let Some(node) = core.memo.get_mut(node) {
            node.rare_mut().subscribers.insert((proxy, kind));
        }
    }

    /// Unlinks a subscription from a node.
    pub(super) fn unlink(core: &mut Core, proxy: u64, kind: ResourceType, node: NodeId) {
        if let Some(node) = core.memo.get_mut(node) {
            node.rare_mut().subscribers.remove(&(proxy, kind));
        }
    }

    /// Unlinks an ending subscription from a node, which may then be unused.
    pub(super) fn unlink_ended(core: &mut Core, proxy: u64, kind: ResourceType, node: NodeId) {
        Self::unlink(core, proxy, kind, node);
        if core.memo.get(node).is_some_and(|node| !node.is_published()) {
            core.sweeps.add_orphans();
        }
    }
}
