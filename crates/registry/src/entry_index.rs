//! Index of WorkloadEntries by name, address and labels.

use std::net::IpAddr;
use std::sync::Arc;

use super::instance::Instance;
use super::model::Labels;
use super::selector_index::{LabelIndex, selects};
use navarch_api::named_table::{HasName, NamedTable};
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_tables::hash_index::HashIndex;

/// All healthy WorkloadEntries.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryIndex {
    /// By name.
    entries: NamedTable<Arc<Instance>>,
    /// By main address.
    by_address: HashIndex,
    /// By label of the workload.
    by_label: LabelIndex,
}

impl Instance {
    /// Its main address, if it is an IP address.
    #[must_use]
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.addresses
            .first()
            .and_then(|address| address.parse().ok())
    }
}

impl HasName for Instance {
    fn name(&self) -> &NamespacedName {
        &self.name
    }
}

impl EntryIndex {
    /// Sets or removes a WorkloadEntry. Returns the previous one.
    pub(super) fn put(
        &mut self,
        name: &NamespacedName,
        entry: Option<Arc<Instance>>,
    ) -> Option<Arc<Instance>> {
        let old = self.entries.remove(name);
        if let Some((number, old)) = &old {
            if let Some(ip) = old.ip() {
                self.by_address.remove(&ip, *number);
            }
            self.by_label
                .remove(&name.namespace, old.workload.labels(), *number);
        }
        if let Some(entry) = entry {
            let (number, _) = self.entries.put(entry.clone());
            if let Some(ip) = entry.ip() {
                self.by_address.insert(&ip, number);
            }
            self.by_label
                .insert(&name.namespace, entry.workload.labels(), number);
        }
        old.map(|(_, old)| old)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Instance>> {
        self.entries.iter()
    }

    /// The WorkloadEntry of this name.
    #[must_use]
    pub(super) fn named(&self, name: &NamespacedName) -> Option<&Arc<Instance>> {
        self.entries.get(name)
    }

    /// The WorkloadEntries at an address, by name.
    pub(super) fn at(&self, address: IpAddr) -> Vec<&Arc<Instance>> {
        self.entries
            .by_name(self.by_address.get(&address), |entry| {
                entry.ip() == Some(address)
            })
    }

    /// The WorkloadEntries of a namespace that match a selector, by name.
    pub(super) fn selected(&self, namespace: &Namespace, selector: &Labels) -> Vec<&Arc<Instance>> {
        let wanted = |entry: &Arc<Instance>| {
            entry.name.namespace == *namespace && selects(selector, entry.workload.labels())
        };
        self.entries
            .by_name(self.by_label.candidates(namespace, selector), wanted)
    }
}
