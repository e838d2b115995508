//! When debounced changes were queued.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::mesh_state::Change;
use navarch_api::object::ObjectRef;

/// Maximum number of objects with a stored time. More objects change at once only at the start.
const MAX_OBJECTS: usize = 256;

/// When the changes that wait for a push were queued.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    first: Option<Instant>,
    /// The time of the first change of each object, for some objects.
    objects: BTreeMap<ObjectRef, Instant>,
}

impl Arrivals {
    /// Adds changes that were queued at this time.
    pub(super) fn add(&mut self, received_at: Instant, changes: &[Change]) {
        self.first.get_or_insert(received_at);
        for name in changes.iter().filter_map(object_of) {
            if self.objects.len() >= MAX_OBJECTS {
                return;
            }
            self.objects.entry(name).or_insert(received_at);
        }
    }

    /// When the first change was queued.
    pub(super) fn first(&self) -> Option<Instant> {
        self.first
    }

    /// When the first change of an object was queued; if not stored, when the first of all changes
    /// was.
    pub(super) fn of(&self, name: &ObjectRef) -> Option<Instant> {
        self.objects.get(name).copied().or(self.first)
    }
}

fn object_of(change: &Change) -> Option<ObjectRef> {
    if let Change::Put(object) = change {
        Some(object.object_ref())
    } else if let Change::Removed(name)
    | Change::Quarantine(name, _)
    | Change::RestoreQuarantine(name, _)
    | Change::ReleaseQuarantine(name)
    | Change::Rollout(name, _) = change
    {
        Some(name.clone())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use navarch_api::object::{Kind, NamespacedName};

    fn removed(name: &str) -> (ObjectRef, Change) {
        let name = ObjectRef {
            kind: Kind::Service,
            name: NamespacedName::new("shop", name),
        };
        (name.clone(), Change::Removed(name))
    }

    #[test]
    fn an_object_came_with_its_first_change_and_others_with_the_first_of_all() {
        let mut arrivals = Arrivals::default();
        let (a, of_a) = removed("a");
        let (b, of_b) = removed("b");
        let (other, _) = removed("c");
        assert_eq!((arrivals.first(), arrivals.of(&a)), (None, None));
        let first = Instant::now();
        let later = |seconds| first + Duration::from_secs(seconds);
        arrivals.add(first, &[Change::Stages, of_a.clone()]);
        arrivals.add(later(1), &[of_b]);
        arrivals.add(later(2), &[of_a]);
        assert_eq!(
            [&a, &b, &other].map(|name| arrivals.of(name)),
            [Some(first), Some(later(1)), Some(first)]
        );
    }

    #[test]
    fn a_bounded_number_of_objects_is_remembered() {
        let mut arrivals = Arrivals::default();
        for number in 0..2 * MAX_OBJECTS {
            arrivals.add(Instant::now(), &[removed(&number.to_string()).1]);
        }
        assert_eq!(arrivals.objects.len(), MAX_OBJECTS);
    }
}
