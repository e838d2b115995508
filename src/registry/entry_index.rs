//! All WorkloadEntries, found by name, address and labels.

use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::instance::Instance;
use super::model::Labels;
use super::multimap::Multimap;
use super::selector_index::{LabelIndex, selects};
use crate::api::names::Namespace;
use crate::api::object::NamespacedName;

/// All WorkloadEntries that are healthy.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryIndex {
    /// By name.
    entries: FxHashMap<NamespacedName, Arc<Instance>>,
    /// Names by main address.
    by_address: Multimap<IpAddr, NamespacedName>,
    /// Names by label of the workload.
    by_label: LabelIndex<NamespacedName>,
}

impl Instance {
    /// Its main address, if it is one.
    #[must_use]
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.addresses.first().and_then(|address| address.parse().ok())
    }
}

impl EntryIndex {
    /// Puts a WorkloadEntry, or takes it away. Gives the former one.
    pub(super) fn put(&mut self, name: &NamespacedName, entry: Option<Arc<Instance>>) -> Option<Arc<Instance>> {
        let old = self.entries.remove(name);
        if let Some(old) = &old {
            if let Some(ip) = old.ip() {
                self.by_address.remove(&ip, name);
            }
            self.by_label.remove(&name.namespace, &old.workload.labels, name);
        }
        if let Some(entry) = entry {
            if let Some(ip) = entry.ip() {
                self.by_address.insert(ip, name.clone());
            }
            self.by_label.insert(&name.namespace, &entry.workload.labels, name);
            self.entries.insert(name.clone(), entry);
        }
        old
    }

    /// The WorkloadEntry of this name.
    #[must_use]
    pub(super) fn named(&self, name: &NamespacedName) -> Option<&Arc<Instance>> {
        self.entries.get(name)
    }

    /// The WorkloadEntries at an address, by name.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &Arc<Instance>> {
        self.by_address.get(&address).filter_map(|name| self.entries.get(name))
    }

    /// The WorkloadEntries of a namespace that have the labels that a selector asks for.
    pub(super) fn selected<'a>(
        &'a self,
        namespace: &Namespace,
        selector: &'a Labels,
    ) -> impl Iterator<Item = &'a Arc<Instance>> {
        let candidates = self.by_label.candidates(namespace, selector).filter_map(|name| self.entries.get(name));
        candidates.filter(|entry| selects(selector, &entry.workload.labels))
    }
}
