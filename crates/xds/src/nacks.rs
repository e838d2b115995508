//! The rejections of clients that wait to be looked into, in turn by namespace.
//!
//! A client can send arbitrarily many. So each stream has one place for each type, and a namespace
//! with many rejections delays those of others by one at a time. Only clients with an identity are
//! here: rejections of others never count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use navarch_api::names::Namespace;
use navarch_push::engine::ProxyId;
use navarch_push::resource::ResourceType;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of rejections of one namespace that wait; further ones are dropped.
const MAX_OF_NAMESPACE: usize = 8_192;

/// The NACK of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nack {
    /// The client's id in the engine.
    pub proxy: ProxyId,
    /// Type of the rejected resources.
    pub resource_type: ResourceType,
}

/// The NACKs that wait. Clones share them; one task takes them.
#[derive(Clone, Debug, Default)]
pub struct NackQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when one is added.
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    namespaces: BTreeMap<Namespace, OfNamespace>,
    /// The namespaces with NACKs, in the order of their turns.
    turns: VecDeque<Namespace>,
}

#[derive(Debug, Default)]
struct OfNamespace {
    /// In the order in which they came.
    order: VecDeque<Nack>,
    /// The same, to find one.
    known: BTreeSet<Nack>,
}

impl NackQueue {
    /// Adds the NACK of a client whose verified identity is of this namespace, unless it waits
    /// already.
    pub fn add(&self, namespace: &Namespace, nack: Nack) {
        self.0.waiting.lock().add(namespace, nack);
        self.0.added.notify_one();
    }

    /// Waits for the next NACK. Cancelling it loses none.
    pub async fn next(&self) -> Nack {
        loop {
            if let Some(nack) = self.0.waiting.lock().take() {
                return nack;
            }
            self.0.added.notified().await;
        }
    }
}

impl Waiting {
    fn add(&mut self, namespace: &Namespace, nack: Nack) {
        let of_namespace = self.namespaces.entry(namespace.clone()).or_default();
        let has_room = of_namespace.order.len() < MAX_OF_NAMESPACE;
        if !has_room || !of_namespace.known.insert(nack) {
            return;
        }

        of_namespace.order.push_back(nack);
        if of_namespace.order.len() == 1 {
            self.turns.push_back(namespace.clone());
        }
    }

    /// Takes the oldest NACK of the namespace whose turn it is.
    fn take(&mut self) -> Option<Nack> {
        let namespace = self.turns.pop_front()?;
        let of_namespace = self.namespaces.get_mut(&namespace)?;
        let nack = of_namespace.order.pop_front()?;
        of_namespace.known.remove(&nack);

        if of_namespace.order.is_empty() {
            self.namespaces.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        Some(nack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nack(number: u64) -> Nack {
        Nack {
            proxy: ProxyId::of(number),
            resource_type: ResourceType::Cluster,
        }
    }

    #[test]
    fn a_namespace_that_rejects_without_end_delays_others_by_one() {
        let evil = Namespace::new("evil");
        let shop = Namespace::new("shop");
        let mut waiting = Waiting::default();
        for _ in 0..1000 {
            waiting.add(&evil, nack(1));
        }
        assert_eq!(waiting.namespaces[&evil].order.len(), 1, "one for a type");

        for number in 0..2 * MAX_OF_NAMESPACE as u64 {
            waiting.add(&evil, nack(number));
        }
        let shops = 1 << 32;
        waiting.add(&shop, nack(shops));
        waiting.add(&shop, nack(shops + 1));
        let taken: Vec<Nack> = (0..4).filter_map(|_| waiting.take()).collect();
        assert_eq!(taken, [nack(1), nack(shops), nack(0), nack(shops + 1)]);

        let rest = std::iter::from_fn(|| waiting.take()).count();
        assert_eq!(rest, MAX_OF_NAMESPACE - 2);
        assert!(waiting.namespaces.is_empty(), "nothing is kept");
    }

    #[tokio::test]
    async fn a_nack_wakes_the_one_who_waits() {
        let queue = NackQueue::default();
        let (taken, ()) = tokio::join!(queue.next(), async {
            tokio::task::yield_now().await;
            queue.add(&Namespace::new("shop"), nack(1));
        });
        assert_eq!(taken, nack(1));
    }
}
