//! The room for learned scopes: what each namespace may still store.
//!
//! A namespace may have as much as is left for all others: one alone gets half of the total, two get a
//! third each, and some is always left for a new one (dynamic thresholds, as in
//! `navarch_net::budget`). What is stored already is never taken for others.

use std::collections::BTreeMap;

use super::{KeptScope, MAX_STORED, MAX_STORED_HOSTS, UnreadableMaps, is_unreadable};
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload};
use navarch_api::names::Namespace;

/// What is stored, and what is left.
pub(super) struct Room<'a> {
    by_namespace: BTreeMap<&'a Namespace, Amount>,
    free: Amount,
}

/// Numbers of workloads, which is that of their ConfigMaps, and of their hosts.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    workloads: usize,
    hosts: usize,
}

impl<'a> Room<'a> {
    /// The room beside what is stored, and beside ConfigMaps that were not read, of which some are
    /// stored scopes as they were before.
    pub(super) fn beside(
        stored: &'a BTreeMap<LearnedWorkload, KeptScope>,
        unreadable: &UnreadableMaps,
    ) -> Self {
        let mut by_namespace: BTreeMap<&Namespace, Amount> = BTreeMap::new();
        for (workload, kept) in stored {
            let own = by_namespace.entry(&workload.namespace).or_default();
            own.workloads += 1;
            own.hosts += kept.hosts.len();
        }

        let hosts: usize = by_namespace.values().map(|own| own.hosts).sum();
        let both = stored
            .keys()
            .filter(|workload| is_unreadable(workload, unreadable));
        let maps = stored.len() + unreadable.len() - both.count();
        Self {
            by_namespace,
            free: Amount {
                workloads: MAX_STORED.saturating_sub(maps),
                hosts: MAX_STORED_HOSTS.saturating_sub(hosts),
            },
        }
    }

    /// Takes room for new hosts of a workload, and for its ConfigMap if that `is_created`. Returns the
    /// hosts for which there is room.
    pub(super) fn take(
        &mut self,
        namespace: &'a Namespace,
        is_created: bool,
        new: LearnedHosts,
    ) -> LearnedHosts {
        let own = self.by_namespace.entry(namespace).or_default();
        if is_created && addable(own.workloads, self.free.workloads) == 0 {
            return LearnedHosts::new();
        }

        let room = addable(own.hosts, self.free.hosts);
        let taken: LearnedHosts = new.into_iter().take(room).collect();
        let created = usize::from(is_created && !taken.is_empty());
        own.hosts += taken.len();
        own.workloads += created;
        self.free.hosts -= taken.len();
        self.free.workloads -= created;
        taken
    }
}

/// How much can be added to what a namespace has while as much stays `free`.
fn addable(own: usize, free: usize) -> usize {
    free.saturating_sub(own) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_stays_free_as_one_namespace_has() {
        for total in [0, 1, 2, 999, MAX_STORED] {
            let taken = addable(0, total);
            assert!(taken <= total - taken, "{total}");
            assert!(addable(taken, total - taken) <= 1, "{total}: all at once");
        }
        assert_eq!(addable(7, 5), 0);
    }
}
