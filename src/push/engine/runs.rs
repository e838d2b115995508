//! Sorted names cut into runs, so that a change of one resource looks at its run and not at all the others.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::api::hash::keyed_hash;
use crate::api::names::ResourceName;

/// How many names a run has on average: a change looks at as many names as there are in a run, and at as many runs as there
/// are in the list.
const SIZE: u64 = 32;
/// The longest run.
const LONGEST: usize = 128;

/// Names that follow each other in a list. As a key it costs the same however many they are.
#[derive(Clone, Debug)]
pub(in crate::push) struct Run {
    /// Hash of the names.
    hash: u64,
    /// The names.
    names: Arc<[ResourceName]>,
}

/// A sorted list.
pub(in crate::push) type Runs = Vec<Run>;

impl Run {
    /// Of these names.
    fn new(names: Vec<ResourceName>) -> Self {
        let names: Arc<[ResourceName]> = names.into();
        Self { hash: keyed_hash(&names), names }
    }

    /// The names.
    pub(super) fn names(&self) -> &[ResourceName] {
        &self.names
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.names, &other.names) || self.names == other.names)
    }
}

impl Eq for Run {}

impl Hash for Run {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Cuts sorted names. A run ends where a name says so, wherever it stands: names that come and go change the runs that they
/// are in, and leave the others alone.
pub(super) fn cut<'a>(names: impl IntoIterator<Item = &'a ResourceName>) -> Runs {
    let mut runs = Vec::new();
    let mut run = Vec::new();
    for name in names {
        run.push(name.clone());
        if is_last(name) || run.len() >= LONGEST {
            runs.push(Run::new(std::mem::take(&mut run)));
        }
    }
    if !run.is_empty() {
        runs.push(Run::new(run));
    }
    runs
}

/// Sorts names, takes each once, and cuts them.
pub(super) fn sort_and_cut<'a>(names: impl IntoIterator<Item = &'a ResourceName>) -> Runs {
    let mut names: Vec<&ResourceName> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    cut(names)
}

/// Whether a name ends a run.
fn is_last(name: &ResourceName) -> bool {
    keyed_hash(name).is_multiple_of(SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<ResourceName> {
        numbers.into_iter().map(|n| ResourceName::new(format!("outbound|80||svc{n:05}.shop"))).collect()
    }

    #[test]
    fn runs_are_the_list() {
        for count in [0, 1, 31, 5000] {
            let all = names(0..count);
            let runs = cut(&all);
            let joined: Vec<ResourceName> = runs.iter().flat_map(|run| run.names().iter().cloned()).collect();
            assert_eq!(joined, all);
            assert!(runs.iter().all(|run| (1..=LONGEST).contains(&run.names().len())));
        }
        let runs = cut(&names(0..5000)).len();
        assert!((80..320).contains(&runs), "{runs}");
    }

    #[test]
    fn a_name_more_leaves_most_runs_alone() {
        let all = names(0..5000);
        let before = cut(&all);
        for gone in [0, 1234, 4999] {
            let fewer: Vec<&ResourceName> = all.iter().filter(|name| **name != all[gone]).collect();
            let new = cut(fewer.iter().copied()).iter().filter(|run| !before.contains(run)).count();
            assert!(new <= 4, "{new}");
        }
        assert_eq!(sort_and_cut(all.iter().rev().chain(&all)), before);
    }
}
