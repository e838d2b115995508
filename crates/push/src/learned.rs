//! What workloads with a learned scope have used: the hosts that their sidecars start with.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload, MAX_HOSTS};
use navarch_api::names::{Hostname, ServiceAccount};

/// Maximum number of workloads of a namespace for which hosts are kept. Their clients are pods with
/// an identity of the namespace: who may create pods there could otherwise make many.
const MAX_WORKLOADS_OF_NAMESPACE: usize = 1_000;
/// Maximum number of hosts that are kept for all workloads of a namespace, each as often as there are
/// workloads that use it. Who may create pods and services in a namespace could otherwise fill the
/// memory of the control plane, and the API server's database, where they are stored: with the longest
/// names these are 12 MiB.
const MAX_HOSTS_OF_NAMESPACE: usize = 50_000;

/// The hosts by workload; copies of a snapshot share it.
pub type LearnedTable = OrdMap<LearnedWorkload, Arc<LearnedHosts>>;

/// A change of what a workload has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LearnedChange {
    /// It uses these hosts.
    Add(LearnedHosts),
    /// An operator has deleted these hosts.
    Forget(LearnedHosts),
}

/// How many clusters a sidecar with a learned scope has, by the reason for which it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopedClusters {
    /// All that it would have without a learned scope.
    pub all: usize,
    /// Those that are never lazy.
    pub fixed: usize,
    /// Others, of hosts that its workload has used.
    pub used: usize,
    /// Others, which its Envoy has requested by name or has from an earlier stream.
    pub requested: usize,
}

/// What is kept for all workloads of a namespace.
#[derive(Default)]
struct KeptOfNamespace {
    workloads: usize,
    hosts: usize,
}

/// Applies a change; returns whether the workload's hosts differ.
pub(crate) fn apply(
    table: &mut LearnedTable,
    workload: &LearnedWorkload,
    change: &LearnedChange,
    exists: impl Fn(&Hostname) -> bool,
) -> bool {
    let before = table.get(workload).cloned().unwrap_or_default();
    let mut hosts = (*before).clone();

    match change {
        LearnedChange::Add(added) => {
            let kept = KeptOfNamespace::in_table(table, workload);
            if before.is_empty() && kept.workloads >= MAX_WORKLOADS_OF_NAMESPACE {
                return false;
            }
            let others = kept.hosts - before.len();
            let room = MAX_HOSTS_OF_NAMESPACE.saturating_sub(others);
            add(&mut hosts, added, room, exists);
        }
        LearnedChange::Forget(gone) => hosts.retain(|host| !gone.contains(host)),
    }

    if hosts == *before {
        return false;
    }
    if hosts.is_empty() {
        table.remove(workload);
    } else {
        table.insert(workload.clone(), Arc::new(hosts));
    }
    true
}

/// Adds hosts to those of a workload, up to `room`, and up to one more than [`MAX_HOSTS`], which tells
/// that there are too many. Hosts that no service has any more make room for others. They do not count
/// as too many themselves, also if they are added, as they are stored for longer than they are kept.
fn add(
    hosts: &mut LearnedHosts,
    added: &LearnedHosts,
    room: usize,
    exists: impl Fn(&Hostname) -> bool,
) {
    let new = added.difference(hosts).cloned();
    let (found, gone): (Vec<Hostname>, Vec<Hostname>) = new.partition(&exists);
    if hosts.len() + found.len() > MAX_HOSTS {
        hosts.retain(exists);
    }

    for (new, limit) in [(found, MAX_HOSTS + 1), (gone, MAX_HOSTS)] {
        let room = room.min(limit).saturating_sub(hosts.len());
        hosts.extend(new.into_iter().take(room));
    }
}

/// Whether a workload has used more hosts than its proxies start with.
#[must_use]
pub fn has_too_many(hosts: &BTreeSet<Hostname>) -> bool {
    hosts.len() > MAX_HOSTS
}

impl KeptOfNamespace {
    /// What a table has for the namespace of a workload.
    fn in_table(table: &LearnedTable, workload: &LearnedWorkload) -> Self {
        let first = LearnedWorkload {
            namespace: workload.namespace.clone(),
            account: ServiceAccount::new(""),
            name: Arc::from(""),
        };

        let mut kept = Self::default();
        let workloads = table.range(first..);
        for (_, hosts) in workloads.take_while(|(other, _)| other.namespace == workload.namespace) {
            kept.workloads += 1;
            kept.hosts += hosts.len();
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use navarch_api::names::Namespace;
    use navarch_api::settings::Settings;

    use super::*;
    use crate::fact::FactKey;
    use crate::mesh_state::{Change, MeshState};

    fn workload(namespace: &str, name: &str) -> LearnedWorkload {
        LearnedWorkload {
            namespace: Namespace::new(namespace),
            account: ServiceAccount::new("default"),
            name: Arc::from(name),
        }
    }

    fn hosts(names: impl IntoIterator<Item = usize>) -> LearnedHosts {
        names
            .into_iter()
            .map(|name| Hostname::new(format!("h{name:05}.example")))
            .collect()
    }

    fn add(names: impl IntoIterator<Item = usize>) -> LearnedChange {
        LearnedChange::Add(hosts(names))
    }

    /// Applies a change while all hosts have services.
    fn apply(table: &mut LearnedTable, workload: &LearnedWorkload, change: &LearnedChange) -> bool {
        super::apply(table, workload, change, |_| true)
    }

    #[test]
    fn hosts_are_added_and_forgotten() {
        let mut table = LearnedTable::new();
        let web = workload("shop", "web");
        assert!(apply(&mut table, &web, &add([1, 2])));
        assert!(!apply(&mut table, &web, &add([2])), "it is known");
        assert!(apply(&mut table, &web, &add([3])));
        assert_eq!(*table[&web], hosts([1, 2, 3]));

        assert!(apply(
            &mut table,
            &web,
            &LearnedChange::Forget(hosts([2, 9]))
        ));
        assert_eq!(*table[&web], hosts([1, 3]));
        assert!(!apply(&mut table, &web, &LearnedChange::Forget(hosts([2]))));
        assert!(apply(
            &mut table,
            &web,
            &LearnedChange::Forget(hosts([1, 3]))
        ));
        assert!(table.is_empty());
    }

    #[test]
    fn the_mesh_state_keeps_what_was_learned_and_a_fork_has_it() {
        let web = workload("shop", "web");
        let learned = |change| Change::Learned(workload("shop", "web"), change);
        let fact = FactKey::Learned(Box::new(web.clone()));

        let mut state = MeshState::new(Settings::default());
        let changed = state.apply([learned(add([1]))]);
        assert_eq!(changed, std::slice::from_ref(&fact));
        assert_eq!(state.apply([learned(add([1]))]), []);
        let fork = MeshState::fork(&state.context());
        assert_eq!(*fork.context().learned[&web], hosts([1]));
        let forget = learned(LearnedChange::Forget(hosts([1])));
        assert_eq!(state.apply([forget]), [fact]);
        assert!(state.context().learned.is_empty());
    }

    #[test]
    fn the_hosts_of_a_workload_are_bounded_and_too_many_are_recognized() {
        let mut table = LearnedTable::new();
        let web = workload("shop", "web");
        assert!(apply(&mut table, &web, &add(0..MAX_HOSTS)));
        assert!(!has_too_many(&table[&web]));
        assert!(apply(&mut table, &web, &add(0..2 * MAX_HOSTS)));
        assert!(has_too_many(&table[&web]));
        assert_eq!(table[&web].len(), MAX_HOSTS + 1);
        assert!(!apply(&mut table, &web, &add([99_999])));
    }

    #[test]
    fn the_workloads_of_a_namespace_are_bounded_and_take_no_room_of_others() {
        let mut table = LearnedTable::new();
        for number in 0..MAX_WORKLOADS_OF_NAMESPACE {
            assert!(apply(
                &mut table,
                &workload("shop", &number.to_string()),
                &add([1])
            ));
        }
        assert!(!apply(&mut table, &workload("shop", "more"), &add([1])));
        assert!(apply(&mut table, &workload("shop", "7"), &add([2])));
        assert!(apply(&mut table, &workload("bank", "web"), &add([1])));
        assert!(apply(&mut table, &workload("zoo", "web"), &add([1])));
    }

    #[test]
    fn the_hosts_of_a_namespace_are_bounded_and_take_no_room_of_others() {
        let mut table = LearnedTable::new();
        let full = MAX_HOSTS_OF_NAMESPACE / MAX_HOSTS;
        for number in 0..full {
            let web = workload("shop", &number.to_string());
            assert!(apply(&mut table, &web, &add(0..MAX_HOSTS)));
        }

        assert!(!apply(&mut table, &workload("shop", "more"), &add([1])));
        assert!(!apply(&mut table, &workload("shop", "7"), &add([9_999])));
        assert!(apply(&mut table, &workload("bank", "web"), &add([1])));

        let forget = LearnedChange::Forget(hosts([3]));
        assert!(apply(&mut table, &workload("shop", "7"), &forget));
        assert!(apply(&mut table, &workload("shop", "more"), &add([1, 2])));
        assert_eq!(*table[&workload("shop", "more")], hosts([1]));
    }

    #[test]
    fn stored_hosts_without_services_are_not_too_many() {
        let mut table = LearnedTable::new();
        let web = workload("shop", "web");
        let is_gone = |host: &Hostname| host.as_str() < "h00500.example";
        let exists = |host: &Hostname| !is_gone(host);
        let apply = |table: &mut LearnedTable, change: &LearnedChange| {
            super::apply(table, &web, change, exists);
            table[&web].clone()
        };
        apply(&mut table, &add(0..MAX_HOSTS - 10));
        let learned = apply(&mut table, &add(MAX_HOSTS..MAX_HOSTS + 50));
        assert!(!learned.iter().any(is_gone));

        // The store has all of them until it is written again.
        let restored = apply(&mut table, &add(0..MAX_HOSTS - 10));
        assert!(!has_too_many(&restored), "{}", restored.len());
        assert!(learned.is_subset(&restored));
        let again = apply(&mut table, &add(0..MAX_HOSTS - 10));
        assert_eq!(again, restored, "they do not take turns");

        let more = apply(&mut table, &add(3_000..4_000));
        assert!(has_too_many(&more), "these exist");
    }

    #[test]
    fn hosts_without_services_make_room_for_others() {
        let mut table = LearnedTable::new();
        let web = workload("shop", "web");
        assert!(apply(&mut table, &web, &add(0..MAX_HOSTS)));

        let exists = |host: &Hostname| host.as_str() != "h00007.example";
        assert!(super::apply(&mut table, &web, &add([99_999]), exists));
        assert_eq!(table[&web].len(), MAX_HOSTS);
        assert!(!table[&web].contains("h00007.example"));

        // As long as there is room they stay: services come back.
        let few = workload("shop", "few");
        assert!(super::apply(&mut table, &few, &add([1]), |_| false));
        assert!(super::apply(&mut table, &few, &add([2]), |_| false));
        assert_eq!(*table[&few], hosts([1, 2]));
    }
}
