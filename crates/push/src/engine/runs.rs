//! Sorted names cut into runs, so that a change of one resource rechecks its run and not all
//! resources.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use navarch_api::hash::keyed_hash;
use navarch_api::names::ResourceName;

/// Mean number of names in a run: a change rechecks the names of one run, and all runs of the list.
const MEAN_RUN_LENGTH: u64 = 32;
/// Maximum number of names in a run.
const MAX_RUN: usize = 128;

/// Consecutive names of a list. As a key its cost is independent of the number of names.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Hash of the names.
    hash: u64,
    names: Arc<[ResourceName]>,
}

/// A sorted list of names in runs.
pub(crate) type Runs = Vec<Run>;

impl Run {
    fn new(names: Vec<ResourceName>) -> Self {
        let names: Arc<[ResourceName]> = names.into();
        Self {
            hash: keyed_hash(&names),
            names,
        }
    }

    pub(super) fn names(&self) -> &[ResourceName] {
        &self.names
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && (Arc::ptr_eq(&self.names, &other.names) || self.names == other.names)
    }
}

impl Eq for Run {}

impl Hash for Run {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Cuts sorted names. The hash of a name decides whether a run ends there, independently of its
/// position: added and removed names change the runs that contain them, and leave the others
/// unchanged.
pub(super) fn cut<'a>(names: impl IntoIterator<Item = &'a ResourceName>) -> Runs {
    let mut runs = Vec::new();
    let mut run = Vec::new();
    for name in names {
        take(name, &mut run, &mut runs);
    }
    if !run.is_empty() {
        runs.push(Run::new(run));
    }
    runs
}

/// Updates the runs of a list after names were added and removed: the result is the same as [`cut`]
/// of all names. The cost is proportional to the number of runs, and the names of changed runs.
pub(crate) fn update(
    runs: &Runs,
    added: &BTreeSet<ResourceName>,
    removed: &BTreeSet<ResourceName>,
) -> Runs {
    let mut added = added.iter().peekable();
    let mut removed = removed.iter().peekable();
    let mut new = Runs::with_capacity(runs.len());

    // Names of old runs that are in no new run yet. While it is empty, an untouched run is kept as
    // it is.
    let mut rest: Vec<ResourceName> = Vec::new();

    for run in runs {
        let Some(last) = run.names.last() else {
            continue;
        };

        // The last run may be incomplete: names after it belong to it.
        let is_open = !is_last(last) && run.names.len() < MAX_RUN;
        let is_touched = added.peek().is_some_and(|name| is_open || *name <= last)
            || removed.peek().is_some_and(|name| *name <= last);
        if rest.is_empty() && !is_touched {
            new.push(run.clone());
            continue;
        }

        for name in &*run.names {
            while let Some(before) = added.next_if(|other| *other < name) {
                take(before, &mut rest, &mut new);
            }
            // It is in the list already.
            added.next_if(|other| *other == name);
            while removed.next_if(|other| *other < name).is_some() {}
            if removed.next_if(|other| *other == name).is_none() {
                take(name, &mut rest, &mut new);
            }
        }
    }

    for name in added {
        take(name, &mut rest, &mut new);
    }

    if !rest.is_empty() {
        new.push(Run::new(rest));
    }

    new
}

/// Appends the next name of a list to the current run, and ends the run if needed.
fn take(name: &ResourceName, run: &mut Vec<ResourceName>, runs: &mut Runs) {
    run.push(name.clone());
    if is_last(name) || run.len() >= MAX_RUN {
        runs.push(Run::new(std::mem::take(run)));
    }
}

/// Sorts names, removes duplicates, and cuts them.
pub(super) fn sort_and_cut<'a>(names: impl IntoIterator<Item = &'a ResourceName>) -> Runs {
    let mut names: Vec<&ResourceName> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    cut(names)
}

/// Whether a name ends a run.
fn is_last(name: &ResourceName) -> bool {
    keyed_hash(name).is_multiple_of(MEAN_RUN_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<ResourceName> {
        numbers
            .into_iter()
            .map(|n| ResourceName::new(format!("outbound|80||svc{n:05}.shop")))
            .collect()
    }

    #[test]
    fn runs_are_the_list() {
        for count in [0, 1, 31, 5000] {
            let all = names(0..count);
            let runs = cut(&all);
            let joined: Vec<ResourceName> = runs
                .iter()
                .flat_map(|run| run.names().iter().cloned())
                .collect();
            assert_eq!(joined, all);
            assert!(
                runs.iter()
                    .all(|run| (1..=MAX_RUN).contains(&run.names().len()))
            );
        }
        let runs = cut(&names(0..5000)).len();
        assert!((80..320).contains(&runs), "{runs}");
    }

    #[test]
    fn runs_of_a_changed_list_equal_those_of_a_new_list() {
        let all = names(0..3000);
        let mut present: BTreeSet<ResourceName> = all.iter().step_by(2).cloned().collect();
        let mut runs = update(&Runs::new(), &present, &BTreeSet::new());
        assert_eq!(runs, cut(&present));

        for step in 0..60_usize {
            // Names in a row, scattered ones, the first and the last.
            let chosen = |from: usize, by: usize| {
                all.iter()
                    .skip(from)
                    .step_by(by)
                    .take(1 + step * 7)
                    .cloned()
            };

            let added: BTreeSet<ResourceName> = chosen(step * 41 % 3000, 1 + step % 5).collect();
            let removed: BTreeSet<ResourceName> = chosen(step * 53 % 3000, 1 + step % 3)
                .filter(|name| !added.contains(name))
                .collect();
            present.extend(added.iter().cloned());
            present.retain(|name| !removed.contains(name));
            runs = update(&runs, &added, &removed);
            assert_eq!(runs, cut(&present), "step {step}");
        }

        assert_eq!(update(&runs, &BTreeSet::new(), &present), Runs::new());
    }

    #[test]
    fn names_after_the_last_one_join_its_run() {
        let all = names(0..500);
        let mut runs = Runs::new();
        for count in 1..=all.len() {
            runs = update(
                &runs,
                &BTreeSet::from([all[count - 1].clone()]),
                &BTreeSet::new(),
            );
            assert_eq!(runs, cut(&all[..count]), "{count} names");
        }
    }

    #[test]
    fn an_added_name_changes_few_runs() {
        let all = names(0..5000);
        let before = cut(&all);
        for gone in [0, 1234, 4999] {
            let fewer: Vec<&ResourceName> = all.iter().filter(|name| **name != all[gone]).collect();
            let new = cut(fewer.iter().copied())
                .iter()
                .filter(|run| !before.contains(run))
                .count();
            assert!(new <= 4, "{new}");
        }
        assert_eq!(sort_and_cut(all.iter().rev().chain(&all)), before);
    }
}
