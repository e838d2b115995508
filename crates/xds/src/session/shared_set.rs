//! Sets of names that debug pages and controllers look at while they change.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use navarch_api::names::ResourceName;

/// What an empty set refers to.
static NO_NAMES: BTreeSet<ResourceName> = BTreeSet::new();

/// A set of names whose copies share memory. A change copies the names only while there is another
/// copy. An empty set takes no memory, and those of most streams are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedSet(Option<Arc<BTreeSet<ResourceName>>>);

impl SharedSet {
    /// A copy of the set as it is now; `None` if it is empty.
    pub(crate) fn shared(&self) -> Option<Arc<BTreeSet<ResourceName>>> {
        self.0.clone()
    }

    pub(crate) fn insert(&mut self, name: ResourceName) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(name);
    }

    /// Removes a name; returns whether it was in the set.
    pub(crate) fn remove(&mut self, name: &ResourceName) -> bool {
        let Some(names) = self.0.as_mut().filter(|names| names.contains(name)) else {
            return false;
        };

        let names = Arc::make_mut(names);
        names.remove(name);
        if names.is_empty() {
            self.0 = None;
        }
        true
    }

    pub(crate) fn extend(&mut self, names: impl IntoIterator<Item = ResourceName>) {
        let mut names = names.into_iter().peekable();
        if names.peek().is_some() {
            Arc::make_mut(self.0.get_or_insert_default()).extend(names);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    pub(crate) fn into_set(self) -> BTreeSet<ResourceName> {
        self.0.map(Arc::unwrap_or_clone).unwrap_or_default()
    }
}

impl Deref for SharedSet {
    type Target = BTreeSet<ResourceName>;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or(&NO_NAMES)
    }
}

impl From<BTreeSet<ResourceName>> for SharedSet {
    fn from(names: BTreeSet<ResourceName>) -> Self {
        Self((!names.is_empty()).then(|| Arc::new(names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<ResourceName> {
        all.iter().map(ResourceName::new).collect()
    }

    #[test]
    fn a_copy_stays_as_it_was_and_shares_the_memory_until_a_change() {
        let mut set = SharedSet::from(names(&["a", "b"]));
        let copy = set.shared().unwrap();
        assert!(!set.remove(&ResourceName::new("c")));
        set.extend([]);
        assert!(Arc::ptr_eq(&copy, &set.shared().unwrap()));

        assert!(set.remove(&ResourceName::new("a")));
        set.insert(ResourceName::new("d"));
        assert_eq!(*copy, names(&["a", "b"]));
        assert_eq!(*set, names(&["b", "d"]));
    }

    #[test]
    fn an_empty_set_takes_no_memory() {
        let mut set = SharedSet::from(names(&[]));
        assert_eq!(set.shared(), None);
        set.insert(ResourceName::new("a"));
        assert!(set.remove(&ResourceName::new("a")));
        assert_eq!(set.shared(), None);
        assert!(set.is_empty() && set.into_set().is_empty());
    }
}
