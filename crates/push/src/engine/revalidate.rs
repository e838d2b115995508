//! Revalidation after a change: what is marked is verified, and what differs is published.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Engine, PushCause, PushStats};
use crate::ids::{AttrId, NodeId, ValueId};
use crate::resource::{Collection, ResourceType};

/// How many times subscriptions with dropped results are revalidated before the rest waits for the
/// next change.
const MAX_DROPPED_ROUNDS: usize = 4;

impl Engine {
    /// Revalidates everything marked and publishes what differs. `retried` are proxies whose
    /// derived answers are computed again even though no result below them is marked.
    pub(super) fn revalidate(
        &mut self,
        retried: BTreeSet<u64>,
        cause: &Arc<PushCause>,
        stats: &mut PushStats,
    ) {
        let core = self.core.get_mut();
        let watched = core.marked.take_watched();
        let published = core.marked.take_published();
        let mut watchers = retried;
        for node in watched.iter().filter_map(|id| core.memo.get(*id)) {
            watchers.extend(node.watchers());
        }

        // Subscribers are noted before anything is computed, since computing may replace nodes.
        let groups: Vec<(NodeId, Vec<(u64, ResourceType)>)> = published
            .into_iter()
            .filter_map(|id| Some((id, core.memo.get(id)?.subscribers().collect())))
            .collect();

        stats.groups += groups.len();
        let moved = self.rederive(watchers);
        for (node, subscribers) in groups {
            self.revalidate_group(node, &subscribers, &moved, cause, stats);
        }

        for proxy in moved {
            let kinds: Vec<ResourceType> = match self.core.get_mut().proxies.get(&proxy) {
                Some(state) => state.published.keys().copied().collect(),
                None => Vec::new(),
            };
            for kind in ResourceType::ALL
                .into_iter()
                .filter(|kind| kinds.contains(kind))
            {
                self.revalidate_subscription(proxy, kind, cause, stats);
            }
        }
    }

    /// Revalidates subscriptions whose node was dropped during another computation. That requires a
    /// translator that is not pure, or one that panics: each turn may drop further nodes, so the
    /// number of turns is limited.
    pub(super) fn revalidate_dropped(&mut self, cause: &Arc<PushCause>, stats: &mut PushStats) {
        for _ in 0..MAX_DROPPED_ROUNDS {
            let core = self.core.get_mut();
            if !core.marked.has_dropped() {
                return;
            }
            let dropped = core.marked.take_dropped_subscriptions();
            let unanswered = core.marked.take_unanswered();
            self.revalidate(unanswered, cause, stats);
            for (proxy, kind) in dropped {
                self.revalidate_subscription(proxy, kind, cause, stats);
            }
        }
    }

    /// Calls [`Sink::settled`](super::Sink::settled) of the sinks with new collections.
    pub(super) fn notify_sinks(&mut self) {
        self.compared = None;
        for sink in std::mem::take(&mut self.published_to)
            .iter()
            .filter_map(|proxy| self.sinks.get(proxy))
        {
            sink.settled();
        }
    }

    /// Recomputes the derived answers of these proxies; returns the proxies with a different one.
    fn rederive(&mut self, proxies: BTreeSet<u64>) -> BTreeSet<u64> {
        let mut moved = BTreeSet::new();

        for proxy in proxies {
            // All answers are removed first, so that an answer that depends on another waits for it
            // in any order.
            let core = self.core.get_mut();
            let Some(state) = core.proxies.get_mut(&proxy) else {
                continue;
            };

            let before: Vec<(AttrId, Option<ValueId>)> = state
                .derived
                .keys()
                .map(|attr| (*attr, state.answers.remove(attr)))
                .collect();

            for (attr, old) in before {
                let known = self.core.get_mut().answer(proxy, attr);
                let now = known.unwrap_or_else(|| self.view(proxy).derive(attr));
                if old != Some(now) {
                    moved.insert(proxy);
                }
            }

            self.core.get_mut().marked.forget_unanswered(proxy);
        }

        moved
    }

    /// Revalidates the subscribers of one marked node. All of them have the same answers to the
    /// node's attributes, so while the attributes stay the same, one evaluation is enough for all.
    fn revalidate_group(
        &mut self,
        node: NodeId,
        subscribers: &[(u64, ResourceType)],
        moved: &BTreeSet<u64>,
        cause: &Arc<PushCause>,
        stats: &mut PushStats,
    ) {
        let mut shared: Option<Arc<Collection>> = None;
        for (proxy, kind) in subscribers
            .iter()
            .filter(|(proxy, _)| !moved.contains(proxy))
        {
            match &shared {
                Some(collection) => self.publish_if_new(*proxy, *kind, collection, cause, stats),
                None => {
                    let Some((now, collection)) =
                        self.revalidate_subscription(*proxy, *kind, cause, stats)
                    else {
                        continue;
                    };
                    if now == node {
                        shared = Some(collection);
                    }
                }
            }
        }
    }

    /// Evaluates one subscription for its own proxy and publishes the collection if it is new.
    fn revalidate_subscription(
        &mut self,
        proxy: u64,
        kind: ResourceType,
        cause: &Arc<PushCause>,
        stats: &mut PushStats,
    ) -> Option<(NodeId, Arc<Collection>)> {
        let (query, old) = {
            let published = self
                .core
                .get_mut()
                .proxies
                .get(&proxy)?
                .published
                .get(&kind)?;
            (published.query, published.node)
        };
        let (node, collection) = self.evaluate(proxy, query)?;
        if node != old {
            let core = self.core.get_mut();
            Self::unlink(core, proxy, kind, old);
            if let Some(published) = core
                .proxies
                .get_mut(&proxy)
                .and_then(|state| state.published.get_mut(&kind))
            {
                published.node = node;
            }
            Self::link(core, proxy, kind, node);
        }

        self.core.get_mut().marked.forget_subscription(proxy, kind);
        self.publish_if_new(proxy, kind, &collection, cause, stats);

        Some((node, collection))
    }

    /// Publishes a collection to the proxy's sink unless the sink has an equal one.
    fn publish_if_new(
        &mut self,
        proxy: u64,
        kind: ResourceType,
        collection: &Arc<Collection>,
        cause: &Arc<PushCause>,
        stats: &mut PushStats,
    ) {
        let state = self.core.get_mut().proxies.get_mut(&proxy);
        let Some(published) = state.and_then(|state| state.published.get_mut(&kind)) else {
            return;
        };

        if Arc::ptr_eq(&published.collection, collection) {
            return;
        }

        // Members of a group change from the same old to the same new collection: these are
        // compared once, not once per proxy.
        let equal = match &self.compared {
            Some((old, new, equal))
                if Arc::ptr_eq(old, &published.collection) && Arc::ptr_eq(new, collection) =>
            {
                *equal
            }
            Some(_) | None => *published.collection == **collection,
        };

        let old = std::mem::replace(&mut published.collection, collection.clone());
        self.compared = Some((old, collection.clone(), equal));

        if !equal && let Some(sink) = self.sinks.get(&proxy) {
            sink.publish(kind, collection.clone(), cause);
            self.note_published(proxy, kind, collection.clone());
            self.published_to.insert(proxy);
            stats.published += 1;
        }
    }
}
