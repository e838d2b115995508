//! Which waiting rollouts are stored next. Users decide how many wait and how large they are, and
//! every replica reads all that is stored each second: so there is a bound for each namespace, and
//! one for each poll, in turn by namespace.

use std::collections::{BTreeMap, VecDeque};

use navarch_api::names::Namespace;
use navarch_api::object::ObjectRef;

/// Maximum number of waiting rollouts of a namespace that are stored.
const MAX_OF_NAMESPACE: usize = 64;
/// Size of those of a namespace at which no more are stored, in bytes.
const MAX_BYTES_OF_NAMESPACE: usize = 2 << 20;

/// The waiting rollouts of one poll.
#[derive(Debug, Default)]
pub(super) struct WaitingQueue<'a>(BTreeMap<&'a Namespace, OfNamespace<'a>>);

#[derive(Debug, Default)]
struct OfNamespace<'a> {
    /// The serial numbers and names, the oldest first.
    waiting: VecDeque<(u64, &'a ObjectRef)>,
    /// The size of those that are stored and older than the first of `waiting`.
    bytes: usize,
    /// How many turns it had.
    turns: usize,
}

impl<'a> WaitingQueue<'a> {
    /// Waiting rollouts with their serial numbers.
    pub(super) fn new(waiting: impl Iterator<Item = (u64, &'a ObjectRef)>) -> Self {
        let mut queue = Self::default();
        for (serial, name) in waiting {
            let of_namespace = queue.0.entry(&name.name.namespace).or_default();
            of_namespace.waiting.push_back((serial, name));
        }
        for of_namespace in queue.0.values_mut() {
            let waiting = of_namespace.waiting.make_contiguous();
            waiting.sort_unstable_by_key(|(serial, _)| *serial);
            of_namespace.waiting.truncate(MAX_OF_NAMESPACE);
        }
        queue
    }

    /// The next one to store: of the namespaces that had the fewest turns, the oldest. `stored` is
    /// the size of one that is stored; the next call finds the returned one among them, unless its
    /// namespace is [given up](Self::give_up).
    pub(super) fn next(
        &mut self,
        stored: impl Fn(&ObjectRef) -> Option<usize>,
    ) -> Option<&'a ObjectRef> {
        self.0
            .retain(|_, of_namespace| of_namespace.has_next(&stored));
        let next = self.0.values_mut().min_by_key(|of_namespace| {
            let serial = of_namespace.waiting.front().map(|(serial, _)| *serial);
            (of_namespace.turns, serial)
        })?;
        next.turns += 1;
        next.waiting.front().map(|(_, name)| *name)
    }

    /// Stores no more of a namespace.
    pub(super) fn give_up(&mut self, namespace: &Namespace) {
        self.0.remove(namespace);
    }
}

impl OfNamespace<'_> {
    /// Passes over those that are stored; returns whether the first of the others may be.
    fn has_next(&mut self, stored: impl Fn(&ObjectRef) -> Option<usize>) -> bool {
        while let Some((_, name)) = self.waiting.front() {
            let Some(bytes) = stored(name) else {
                return self.bytes < MAX_BYTES_OF_NAMESPACE;
            };
            self.bytes = self.bytes.saturating_add(bytes);
            self.waiting.pop_front();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use navarch_api::object::{Kind, NamespacedName};

    use super::*;

    fn rules(namespace: &str, count: usize) -> Vec<ObjectRef> {
        let one = |number| ObjectRef {
            kind: Kind::VirtualService,
            name: NamespacedName::new(namespace, &format!("r{number:03}")),
        };
        (0..count).map(one).collect()
    }

    /// Stores everything, each rollout with this size; returns the namespaces in their order.
    fn stored(rules: &[ObjectRef], bytes: usize) -> Vec<&str> {
        let mut done = BTreeSet::new();
        let mut order = Vec::new();
        let mut queue = WaitingQueue::new((0..).zip(rules));
        while let Some(name) = queue.next(|name| done.contains(name).then_some(bytes)) {
            assert!(done.insert(name.clone()));
            order.push(name.name.namespace.as_str());
        }
        order
    }

    fn count(order: &[&str], namespace: &str) -> usize {
        order.iter().filter(|one| **one == namespace).count()
    }

    #[test]
    fn namespaces_take_turns_and_have_a_bound() {
        let all = [rules("evil", 100), rules("shop", 3)].concat();
        let order = stored(&all, 1000);
        assert_eq!(order[..6], ["evil", "shop", "evil", "shop", "evil", "shop"]);
        assert_eq!(count(&order, "evil"), MAX_OF_NAMESPACE);
    }

    #[test]
    fn large_objects_have_a_bound_in_bytes() {
        let all = [rules("evil", 100), rules("shop", 1)].concat();
        let order = stored(&all, 1 << 20);
        assert_eq!(count(&order, "evil"), 2);
        assert_eq!(count(&order, "shop"), 1);
    }

    #[test]
    fn a_namespace_that_is_given_up_stops_no_other() {
        let all = [rules("evil", 2), rules("shop", 1)].concat();
        let mut queue = WaitingQueue::new((0..).zip(&all));
        let first = queue.next(|_| None).unwrap();
        queue.give_up(&first.name.namespace);
        let second = queue.next(|_| None).unwrap();
        assert_eq!(second.name.namespace.as_str(), "shop");
        queue.give_up(&second.name.namespace);
        assert!(queue.next(|_| None).is_none());
    }
}
