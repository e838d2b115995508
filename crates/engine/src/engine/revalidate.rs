//! Revalidation after a change: what is marked is verified, and what differs is published.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ComparedValues, Engine, Publish};
use crate::config::PushStats;
use crate::ids::{AttrId, NodeId, SubscriberId, ValueId};
use crate::inputs::Inputs;

/// How many times subscriptions with dropped results are revalidated before the rest waits for the
/// next change.
const MAX_DROPPED_ROUNDS: usize = 4;

/// The subscriptions that show one result. All of their subscribers have the same values of
/// the attributes that it has read.
struct Group<T> {
    node: NodeId,
    subscribers: Vec<(SubscriberId, T)>,
}

impl<I: Inputs> Engine<I> {
    /// Revalidates everything marked and publishes what differs. `retried` are subscribers whose
    /// derived attributes are computed again even though no result below them is marked.
    pub(crate) fn revalidate(
        &mut self,
        retried: BTreeSet<SubscriberId>,
        publish: &mut Publish<'_, I>,
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
        let groups: Vec<Group<I::Topic>> = published
            .into_iter()
            .filter_map(|node| {
                Some(Group {
                    node,
                    subscribers: core.memo.get(node)?.subscribers().collect(),
                })
            })
            .collect();

        stats.groups += groups.len();
        let moved = self.rederive(watchers);
        for group in groups {
            self.revalidate_group(&group, &moved, publish, stats);
        }

        for subscriber in moved {
            let topics: BTreeSet<I::Topic> = match self.core.get_mut().subscribers.get(&subscriber)
            {
                Some(state) => state.published.keys().copied().collect(),
                None => BTreeSet::new(),
            };
            for topic in topics {
                self.revalidate_subscription(subscriber, topic, publish, stats);
            }
        }
    }

    /// Revalidates subscriptions whose node was dropped during another computation. That requires a
    /// computation that is not pure, or one that panics: each turn may drop further nodes, so the
    /// number of turns is limited.
    pub(crate) fn revalidate_dropped(
        &mut self,
        publish: &mut Publish<'_, I>,
        stats: &mut PushStats,
    ) {
        for _ in 0..MAX_DROPPED_ROUNDS {
            let core = self.core.get_mut();
            if !core.marked.has_dropped() {
                return;
            }
            let dropped = core.marked.take_dropped_subscriptions();
            let dropped_derived = core.marked.take_dropped_derived();
            self.revalidate(dropped_derived, publish, stats);
            for (subscriber, topic) in dropped {
                self.revalidate_subscription(subscriber, topic, publish, stats);
            }
        }
    }

    /// Recomputes the derived attributes of these subscribers; returns the subscribers with a
    /// different one.
    fn rederive(&mut self, subscribers: BTreeSet<SubscriberId>) -> BTreeSet<SubscriberId> {
        let mut moved = BTreeSet::new();

        for subscriber in subscribers {
            // All values are removed first, so that one that depends on another waits for it in any
            // order.
            let core = self.core.get_mut();
            let Some(state) = core.subscribers.get_mut(&subscriber) else {
                continue;
            };

            let before: Vec<(AttrId, Option<ValueId>)> = state
                .derived
                .keys()
                .map(|attr| (*attr, state.attr_values.remove(attr)))
                .collect();

            for (attr, old) in before {
                let known = self.core.get_mut().attr_value(subscriber, attr);
                let now = known.unwrap_or_else(|| self.view_for(subscriber).derive(attr));
                if old != Some(now) {
                    moved.insert(subscriber);
                }
            }

            self.core.get_mut().marked.forget_derived(subscriber);
        }

        moved
    }

    /// Revalidates the subscribers of one marked node: while their attributes stay the same, one
    /// evaluation is enough for all.
    fn revalidate_group(
        &mut self,
        group: &Group<I::Topic>,
        moved: &BTreeSet<SubscriberId>,
        publish: &mut Publish<'_, I>,
        stats: &mut PushStats,
    ) {
        let mut shared: Option<Arc<I::Published>> = None;
        for (subscriber, topic) in group
            .subscribers
            .iter()
            .filter(|(subscriber, _)| !moved.contains(subscriber))
        {
            match &shared {
                Some(value) => self.publish_if_new(*subscriber, *topic, value, publish, stats),
                None => {
                    let Some((now, value)) =
                        self.revalidate_subscription(*subscriber, *topic, publish, stats)
                    else {
                        continue;
                    };
                    if now == group.node {
                        shared = Some(value);
                    }
                }
            }
        }
    }

    /// Evaluates one subscription for its own subscriber and publishes the value if it is new.
    fn revalidate_subscription(
        &mut self,
        subscriber: SubscriberId,
        topic: I::Topic,
        publish: &mut Publish<'_, I>,
        stats: &mut PushStats,
    ) -> Option<(NodeId, Arc<I::Published>)> {
        let (query, old) = {
            let published = self
                .core
                .get_mut()
                .subscribers
                .get(&subscriber)?
                .published
                .get(&topic)?;
            (published.query, published.node)
        };
        let (node, value) = self.evaluate(subscriber, query)?;
        if node != old {
            let core = self.core.get_mut();
            Self::unlink(core, subscriber, topic, old);
            if let Some(published) = core
                .subscribers
                .get_mut(&subscriber)
                .and_then(|state| state.published.get_mut(&topic))
            {
                published.node = node;
            }
            Self::link(core, subscriber, topic, node);
        }

        self.core
            .get_mut()
            .marked
            .forget_subscription(subscriber, topic);
        self.publish_if_new(subscriber, topic, &value, publish, stats);

        Some((node, value))
    }

    /// Publishes a value to a subscriber unless it has an equal one.
    fn publish_if_new(
        &mut self,
        subscriber: SubscriberId,
        topic: I::Topic,
        value: &Arc<I::Published>,
        publish: &mut Publish<'_, I>,
        stats: &mut PushStats,
    ) {
        let state = self.core.get_mut().subscribers.get_mut(&subscriber);
        let Some(published) = state.and_then(|state| state.published.get_mut(&topic)) else {
            return;
        };

        if Arc::ptr_eq(&published.value, value) {
            return;
        }

        // Members of a group change from the same old to the same new value: these are compared
        // once, not once per subscriber.
        let are_equal = match &self.compared {
            Some(compared)
                if Arc::ptr_eq(&compared.old, &published.value)
                    && Arc::ptr_eq(&compared.new, value) =>
            {
                compared.are_equal
            }
            Some(_) | None => *published.value == **value,
        };

        let old = std::mem::replace(&mut published.value, value.clone());
        self.compared = Some(ComparedValues {
            old,
            new: value.clone(),
            are_equal,
        });

        if !are_equal {
            publish(subscriber, topic, value);
            stats.published += 1;
        }
    }
}
