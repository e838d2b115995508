//! The objects that declare each host, and aliases of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::work::Work;
use super::{Registry, ServiceEntryState, ServiceState};
use crate::aliases::resolve_aliases;
use crate::auto_allocation::{AllocatedIps, allocate};
use crate::directory::DirectoryChange;
use crate::model::{Resolution, Service, ServiceKey};
use navarch_api::names::{Hostname, Namespace};
use navarch_tables::hash_index::HashIndex;

/// The objects that declare each host, with aliases and allocated addresses of hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// The Kubernetes Services that declare a service of each key.
    pub(super) services: HashIndex,
    /// The ServiceEntries that declare a service of each key.
    pub(super) entries: HashIndex,
    /// Aliases by host.
    aliases: BTreeMap<Hostname, Vec<ServiceKey>>,
    /// Addresses that the registry allocates, if no controller does.
    allocated: BTreeMap<ServiceKey, AllocatedIps>,
}

impl Names {
    /// The aliases of a host, sorted.
    pub(super) fn aliases_of(&self, host: &Hostname) -> &[ServiceKey] {
        self.aliases.get(host).map_or(&[], |aliases| aliases)
    }

    pub(super) fn hosts_with_alias(&self, alias: &ServiceKey) -> impl Iterator<Item = &Hostname> {
        self.aliases
            .iter()
            .filter(|(_, aliases)| aliases.contains(alias))
            .map(|(host, _)| host)
    }

    /// The hosts with aliases.
    pub(super) fn aliased(&self) -> impl Iterator<Item = &Hostname> {
        self.aliases.keys()
    }
}

impl Registry {
    /// The Kubernetes Services that declare a service of this key, by name.
    pub(super) fn services_of(&self, key: &ServiceKey) -> Vec<&ServiceState> {
        self.services
            .by_name(self.names.services.get(key), |state| {
                state.service.key == *key
            })
    }

    /// The ServiceEntries that declare a service of this key, by name.
    pub(super) fn entries_of(&self, key: &ServiceKey) -> Vec<&ServiceEntryState> {
        let declares = |state: &ServiceEntryState| {
            state.object.meta.key.namespace == key.namespace
                && state.services.of(&key.hostname).next().is_some()
        };
        self.service_entries
            .by_name(self.names.entries.get(key), declares)
    }

    /// Fills the slots of the directory.
    pub(super) fn update_slots(&mut self, work: &mut Work, change: &mut DirectoryChange) {
        if work.aliases {
            self.update_aliases(work);
        }

        if work.allocation && !self.mesh_inputs.settings.ip_autoallocate {
            self.update_allocation(work);
        }

        for key in std::mem::take(&mut work.keys) {
            let slot = self.slot(&key);
            let old = self.directory.services.get(&key);
            if old.map_or(&[][..], |old| &**old) == slot.as_slice() {
                continue;
            }

            if old.is_none() || slot.is_empty() {
                self.show_host(&key, !slot.is_empty());
            }

            if slot.is_empty() {
                self.directory.services.remove(&key);
            } else {
                self.directory.services.insert(key.clone(), Arc::from(slot));
            }

            change.services.insert(key);
        }
    }

    /// All services of a key: Kubernetes Services first, then by age and in the order of their
    /// objects.
    fn slot(&self, key: &ServiceKey) -> Vec<Arc<Service>> {
        let mut services: Vec<&Arc<Service>> = self
            .services_of(key)
            .into_iter()
            .map(|state| &state.service)
            .collect();
        services.extend(self.imported(key));
        services.extend(
            self.entries_of(key)
                .into_iter()
                .flat_map(|state| state.services.of(&key.hostname)),
        );
        services.sort_by_key(|service| (service.registry, service.created));
        services
            .into_iter()
            .map(|service| self.with_addresses(service))
            .collect()
    }

    /// A service with its aliases and its allocated address.
    fn with_addresses(&self, service: &Arc<Service>) -> Arc<Service> {
        let aliases = self.names.aliases.get(&service.key.hostname);
        let allocated = self
            .names
            .allocated
            .get(&service.key)
            .filter(|_| service.needs_address());
        if aliases.is_none() && allocated.is_none() {
            return service.clone();
        }

        let mut dressed = Service::clone(service);
        if let Some(aliases) = aliases {
            dressed.aliases.clone_from(aliases);
        }

        if let Some(allocated) = allocated {
            dressed.auto_ipv4 = Some(allocated.ipv4);
            dressed.auto_ipv6 = Some(allocated.ipv6);
        }

        Arc::new(dressed)
    }

    /// Adds or removes a namespace that declares a host.
    fn show_host(&mut self, key: &ServiceKey, declared: bool) {
        let hosts = &mut self.directory.namespaces_of_host;
        let others = hosts
            .get(&key.hostname)
            .into_iter()
            .flat_map(|namespaces| namespaces.iter());
        let others = others.filter(|namespace| **namespace != key.namespace);
        let mut namespaces: Vec<Namespace> = others
            .chain(declared.then_some(&key.namespace))
            .cloned()
            .collect();
        namespaces.sort_unstable();
        if namespaces.is_empty() {
            hosts.remove(&key.hostname);
        } else {
            hosts.insert(key.hostname.clone(), namespaces.into());
        }
    }

    /// Recomputes aliases; hosts with changed aliases are queued.
    fn update_aliases(&mut self, work: &mut Work) {
        let services = self.services.iter().map(|state| &state.service);
        let aliases = services.filter(|service| service.resolution == Resolution::Alias);
        let new = resolve_aliases(aliases.map(|service| {
            (
                service.key.clone(),
                Hostname::new(&service.kubernetes.external_name),
            )
        }));

        let old = std::mem::replace(&mut self.names.aliases, new);
        let hosts: BTreeSet<&Hostname> = old.keys().chain(self.names.aliases.keys()).collect();
        for host in hosts {
            if old.get(host) != self.names.aliases.get(host) {
                let namespaces = self
                    .directory
                    .namespaces_of_host
                    .get(host)
                    .into_iter()
                    .flat_map(|set| set.iter());
                let key = |namespace: &Namespace| ServiceKey {
                    namespace: namespace.clone(),
                    hostname: host.clone(),
                };
                work.keys.extend(namespaces.map(key));
                work.aliased.insert(host.clone());
            }
        }
    }

    /// Recomputes allocated addresses; services with changed addresses are queued.
    fn update_allocation(&mut self, work: &mut Work) {
        let services = self
            .service_entries
            .iter()
            .flat_map(|state| state.services.all().iter());
        let keys: BTreeSet<&ServiceKey> = services
            .filter(|service| service.needs_address())
            .map(|service| &service.key)
            .collect();
        let new = allocate(keys);
        let old = std::mem::replace(&mut self.names.allocated, new);
        for key in old.keys().chain(self.names.allocated.keys()) {
            if old.get(key) != self.names.allocated.get(key) {
                work.keys.insert(key.clone());
            }
        }
    }
}
