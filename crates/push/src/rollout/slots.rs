//! Which waiting rollouts may begin: a limited number at once, shared fairly by namespace.
//!
//! A rollout holds a slot while proxies are about to acknowledge its stage. One that rests (in its
//! pause, paused by an operator, or not acknowledged for long) holds none, so others pass it. The
//! number of begun ones is limited as well, since each may split the proxies that share results.
//! Both limits leave room for the first ones of other namespaces: two namespaces whose proxies
//! acknowledge nothing hold all slots but those.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use navarch_api::names::Namespace;

/// Maximum number of rollouts that proxies are about to acknowledge.
pub const MAX_MOVING: usize = 16;
/// The same when a namespace begins its first.
pub const MAX_MOVING_WITH_FIRSTS: usize = 32;
/// Maximum number of begun rollouts of one namespace.
pub const MAX_OF_NAMESPACE: usize = 8;
/// Maximum number of begun rollouts.
pub const MAX_BEGUN: usize = 64;
/// The same when a namespace begins its first.
pub const MAX_BEGUN_WITH_FIRSTS: usize = 128;

/// The begun rollouts.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    moving: usize,
    /// The namespaces of those that proxies are about to acknowledge.
    with_moving: BTreeSet<Namespace>,
    begun: BTreeMap<Namespace, usize>,
    total: usize,
}

/// Why a rollout cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Too many rollouts are being acknowledged.
    Moving,
    /// Its namespace has begun too many.
    Namespace,
    /// All namespaces together have begun too many.
    Mesh,
}

impl Slots {
    /// Adds a begun rollout of a namespace; `is_moving`: whether proxies are about to acknowledge
    /// it.
    pub fn add(&mut self, namespace: &Namespace, is_moving: bool) {
        if is_moving {
            self.moving += 1;
            self.with_moving.insert(namespace.clone());
        }
        self.total += 1;
        *self.begun.entry(namespace.clone()).or_default() += 1;
    }

    /// Number of begun rollouts of a namespace.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> usize {
        self.begun.get(namespace).copied().unwrap_or_default()
    }

    /// Takes a slot for a rollout of a namespace.
    ///
    /// # Errors
    /// If there is none for it.
    pub fn take(&mut self, namespace: &Namespace) -> Result<(), Full> {
        let own = self.of(namespace);
        let max = if own == 0 {
            MAX_BEGUN_WITH_FIRSTS
        } else {
            MAX_BEGUN
        };
        let max_moving = if self.with_moving.contains(namespace) {
            MAX_MOVING
        } else {
            MAX_MOVING_WITH_FIRSTS
        };

        if own >= MAX_OF_NAMESPACE {
            return Err(Full::Namespace);
        }
        if self.total >= max {
            return Err(Full::Mesh);
        }
        if self.moving >= max_moving {
            return Err(Full::Moving);
        }

        self.add(namespace, true);
        Ok(())
    }

    /// Decides which of the waiting rollouts begin, given their namespaces, the oldest first: the
    /// namespace with the fewest begun ones is served first, and of equal ones that with the oldest
    /// rollout.
    pub fn assign<T>(&mut self, waiting: Vec<(Namespace, T)>) -> Vec<(T, Result<(), Full>)> {
        let mut queues: BTreeMap<Namespace, VecDeque<(usize, T)>> = BTreeMap::new();
        for (place, (namespace, rollout)) in waiting.into_iter().enumerate() {
            let queue = queues.entry(namespace).or_default();
            queue.push_back((place, rollout));
        }

        let mut assigned = Vec::new();
        while let Some(namespace) = queues
            .iter()
            .min_by_key(|(namespace, queue)| {
                let oldest = queue.front().map(|(place, _)| *place);
                (self.of(namespace), oldest)
            })
            .map(|(namespace, _)| namespace.clone())
        {
            let Some(queue) = queues.get_mut(&namespace) else {
                break;
            };
            if let Some((_, rollout)) = queue.pop_front() {
                let taken = self.take(&namespace);
                assigned.push((rollout, taken));
                // What the others of the namespace wait for is the same.
                if let Err(full) = taken {
                    assigned.extend(queue.drain(..).map(|(_, rollout)| (rollout, Err(full))));
                }
            }

            if queue.is_empty() {
                queues.remove(&namespace);
            }
        }
        assigned
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moving => write!(
                f,
                "waits for other rollouts: proxies are about to acknowledge {MAX_MOVING}"
            ),
            Self::Namespace => write!(
                f,
                "waits for other rollouts of its namespace: {MAX_OF_NAMESPACE} are in progress"
            ),
            Self::Mesh => write!(f, "waits for other rollouts: {MAX_BEGUN} are in progress"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(namespaces: &[(&str, usize)]) -> Vec<(Namespace, String)> {
        let one = |(name, count): &(&str, usize)| {
            let name = (*name).to_owned();
            (0..*count).map(move |number| (Namespace::new(&name), format!("{name}/{number}")))
        };
        namespaces.iter().flat_map(one).collect()
    }

    fn begun(assigned: &[(String, Result<(), Full>)]) -> Vec<&str> {
        assigned
            .iter()
            .filter(|(_, taken)| taken.is_ok())
            .map(|(name, _)| name.as_str())
            .collect()
    }

    #[test]
    fn a_namespace_with_many_rollouts_stops_no_other() {
        let mut slots = Slots::default();
        let assigned = slots.assign(waiting(&[("evil", 40), ("shop", 1)]));
        let begun = begun(&assigned);
        assert!(begun.contains(&"shop/0"), "{begun:?}");
        assert_eq!(begun.len(), MAX_OF_NAMESPACE + 1);
        assert!(assigned.contains(&("evil/39".to_owned(), Err(Full::Namespace))));
    }

    #[test]
    fn resting_rollouts_are_passed() {
        let mut slots = Slots::default();
        for number in 0..MAX_BEGUN {
            slots.add(&Namespace::new(format!("n{}", number % 8)), false);
        }
        let assigned = slots.assign(waiting(&[("shop", 2), ("n0", 1)]));
        assert_eq!(begun(&assigned), ["shop/0"], "the first of each namespace");
        assert!(assigned.contains(&("shop/1".to_owned(), Err(Full::Mesh))));

        let mut slots = Slots::default();
        for number in 0..MAX_MOVING_WITH_FIRSTS {
            slots.add(&Namespace::new(format!("n{number}")), true);
        }
        assert_eq!(
            slots.take(&Namespace::new("shop")),
            Err(Full::Moving),
            "for as long as proxies answer"
        );
    }

    #[test]
    fn namespaces_whose_proxies_answer_nothing_leave_room_for_the_first_of_others() {
        let mut slots = Slots::default();
        for number in 0..MAX_MOVING {
            slots.add(&Namespace::new(format!("evil{}", number % 2)), true);
        }
        let assigned = slots.assign(waiting(&[("evil2", 2), ("shop", 2)]));
        assert_eq!(begun(&assigned), ["evil2/0", "shop/0"]);
        assert!(assigned.contains(&("shop/1".to_owned(), Err(Full::Moving))));
    }

    #[test]
    fn of_namespaces_without_rollouts_the_one_that_has_waited_longest_is_next() {
        let mut slots = Slots::default();
        for number in 0..MAX_MOVING_WITH_FIRSTS - 1 {
            slots.add(&Namespace::new(format!("n{number}")), true);
        }
        let assigned = slots.assign(waiting(&[("shop", 1), ("evil", 1)]));
        assert_eq!(begun(&assigned), ["shop/0"], "whatever their names are");
    }

    #[test]
    fn namespaces_take_turns() {
        let mut slots = Slots::default();
        let assigned = slots.assign(waiting(&[("a", 20), ("b", 20), ("c", 20)]));
        let begun = begun(&assigned);
        assert_eq!(begun.len(), MAX_MOVING);
        for namespace in ["a/", "b/", "c/"] {
            let count = begun
                .iter()
                .filter(|name| name.starts_with(namespace))
                .count();
            assert!((5..=6).contains(&count), "{namespace}: {begun:?}");
        }
    }
}
