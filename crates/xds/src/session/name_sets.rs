//! Sets of names that a client decides how often to add to: few, and no name in more than a few.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::session::diff::Names;
use navarch_api::names::ResourceName;

/// Maximum number of sets; further ones are merged with all others.
const MAX_SETS: usize = 8;

/// The union of some sets. They are kept apart as long as they are few: streams share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSets(Vec<Names>);

impl NameSets {
    /// Adds the names of a set.
    pub(crate) fn add(&mut self, names: &Names) {
        let is_known = |known: &Names| Arc::ptr_eq(known, names) || names.is_subset(known);
        if self.0.iter().any(is_known) {
            return;
        }

        self.0.retain(|known| !known.is_subset(names));
        self.0.push(names.clone());
        if self.0.len() > MAX_SETS {
            let all = self.0.iter().flat_map(|names| names.iter().cloned());
            self.0 = vec![Arc::new(all.collect())];
        }
    }

    /// Adds the names of others.
    pub(crate) fn extend(&mut self, others: Self) {
        for names in others.0 {
            self.add(&names);
        }
    }

    /// Takes names away.
    pub(crate) fn remove(&mut self, left: &BTreeSet<ResourceName>) {
        for names in &mut self.0 {
            if !names.is_disjoint(left) {
                *names = Arc::new(&**names - left);
            }
        }
        self.0.retain(|names| !names.is_empty());
    }

    /// Forgets the sets for which this is not so.
    pub(crate) fn retain(&mut self, stays: impl Fn(&BTreeSet<ResourceName>) -> bool) {
        self.0.retain(|names| stays(names));
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is no set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sets. A name may be in several.
    pub(crate) fn as_slice(&self) -> &[Names] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: impl IntoIterator<Item = usize>) -> Names {
        let all = names.into_iter();
        Arc::new(
            all.map(|name| ResourceName::new(format!("{name:06}")))
                .collect(),
        )
    }

    fn count(sets: &NameSets) -> usize {
        let all = sets.as_slice().iter().flat_map(|names| names.iter());
        all.collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn what_is_added_often_is_kept_once() {
        let mut sets = NameSets::default();
        for _ in 0..1000 {
            sets.add(&names([1]));
            sets.add(&names([1, 2]));
            sets.add(&names([2]));
        }
        assert_eq!(sets.as_slice(), [names([1, 2])]);

        for name in 0..1000 {
            sets.add(&names([name]));
        }
        assert!(sets.as_slice().len() <= MAX_SETS);
        assert_eq!(count(&sets), 1000);

        sets.remove(&names(0..999));
        assert_eq!(count(&sets), 1);
        sets.remove(&names([999]));
        assert!(sets.is_empty());
    }
}
