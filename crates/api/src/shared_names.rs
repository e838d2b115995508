//! One copy of the names of pods, which EndpointSlices repeat.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::hash::{KeyedMap, keyed_hash};
use super::object::NamespacedName;

/// Names that are in use. Clones have the same: the readers of pods and of EndpointSlices of one cluster.
#[derive(Clone, Default)]
pub struct SharedNames(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// By half of their hash. Of two names with one hash the first is kept.
    names: KeyedMap<u32, NamespacedName>,
    /// How many may be kept until those that nothing uses are dropped.
    limit: usize,
}

/// How many names are kept before those that nothing uses are dropped for the first time.
const FIRST_LIMIT: usize = 1024;

impl SharedNames {
    /// Puts the known copy of a name in its place; what is not known is from now on.
    pub(super) fn share(&self, name: &mut NamespacedName) {
        #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
        let hash = keyed_hash(name) as u32;
        let mut known = self.0.lock();
        if let Some(same) = known.names.get(&hash) {
            if same == name {
                *name = same.clone();
            }
            return;
        }
        if known.names.len() >= known.limit {
            known.names.retain(|_, name| name.is_shared());
            known.limit = FIRST_LIMIT.max(known.names.len() * 3 / 2);
            let limit = known.limit;
            known.names.shrink_to(limit);
        }
        known.names.insert(hash, name.clone());
    }
}

impl fmt::Debug for SharedNames {
    /// Which names are known says nothing of their owners.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedNames")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_use_are_one_and_others_are_forgotten() {
        let names = SharedNames::default();
        let share = |name: &str| {
            let mut name = NamespacedName::new("shop", name);
            names.share(&mut name);
            name
        };
        let first = share("web");
        for number in 0..10 * FIRST_LIMIT {
            assert_eq!(*share(&number.to_string()).name, *number.to_string());
        }
        assert!(names.0.lock().names.len() <= FIRST_LIMIT);
        let (before, again) = (std::ptr::from_ref(&*first), share("web"));
        assert_eq!(before, std::ptr::from_ref(&*again));
    }
}
