//! What workloads with a learned scope have used: the hosts that their sidecars start with.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use navarch_api::learned_scope::{LearnedHosts, LearnedWorkload, MAX_HOSTS};
use navarch_api::names::{Hostname, ServiceAccount};

/// Maximum number of workloads of a namespace for which hosts are kept. Their clients are pods with
/// an identity of the namespace: who may create pods there could otherwise make many.
const MAX_WORKLOADS_OF_NAMESPACE: usize = 1_000;

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

/// Applies a change; returns whether the workload's hosts differ. One host more than
/// [`MAX_HOSTS`] is kept, which tells that there are too many; no further ones are.
pub(crate) fn apply(
    table: &mut LearnedTable,
    workload: &LearnedWorkload,
    change: &LearnedChange,
) -> bool {
    let known = table.get(workload);
    let mut hosts = known.map(|hosts| (**hosts).clone()).unwrap_or_default();
    let before = hosts.len();

    match change {
        LearnedChange::Add(added) => {
            if known.is_none() && is_full(table, workload) {
                return false;
            }
            let new: Vec<Hostname> = added.difference(&hosts).cloned().collect();
            let room = (MAX_HOSTS + 1).saturating_sub(before);
            hosts.extend(new.into_iter().take(room));
        }
        LearnedChange::Forget(gone) => hosts.retain(|host| !gone.contains(host)),
    }

    if hosts.len() == before {
        return false;
    }
    if hosts.is_empty() {
        table.remove(workload);
    } else {
        table.insert(workload.clone(), Arc::new(hosts));
    }
    true
}

/// Whether a workload has used more hosts than its proxies start with.
#[must_use]
pub fn has_too_many(hosts: &BTreeSet<Hostname>) -> bool {
    hosts.len() > MAX_HOSTS
}

/// Whether no further workload of the namespace is kept.
fn is_full(table: &LearnedTable, workload: &LearnedWorkload) -> bool {
    let first = LearnedWorkload {
        namespace: workload.namespace.clone(),
        account: ServiceAccount::new(""),
        name: Arc::from(""),
    };
    let of_namespace = table
        .range(first..)
        .take_while(|(other, _)| other.namespace == workload.namespace);
    of_namespace.take(MAX_WORKLOADS_OF_NAMESPACE).count() == MAX_WORKLOADS_OF_NAMESPACE
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
        assert_eq!(state.apply([learned(add([1]))]), [fact.clone()]);
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
}
