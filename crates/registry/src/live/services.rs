//! Processes changed Kubernetes Services and ServiceEntries.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use super::work::Work;
use super::{Registry, ServiceEntryState, ServiceState};
use crate::entry_services::EntryServices;
use crate::kubernetes_service::convert_service;
use crate::model::{Resolution, ServiceKey};
use crate::service_entry::convert_service_entry;
use crate::service_entry_endpoints::EntryEndpoints;
use crate::slice_endpoints::SliceRules;
use crate::slice_index::SliceState;
use navarch_api::istio::ServiceEntry;
use navarch_api::kubernetes::Service as Declared;
use navarch_api::named_table::HasName;
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{NamespacedName, Object, ObjectMeta};
use navarch_store::Objects;

/// The metadata of a namespace.
fn namespace_meta<'a>(objects: &'a Objects, namespace: &Namespace) -> Option<&'a ObjectMeta> {
    let name = NamespacedName::new("", namespace.as_str());
    objects.namespaces.get(&name).map(|object| &object.meta)
}

impl Registry {
    /// Processes changed Kubernetes Services.
    pub(super) fn update_services(&mut self, objects: &Objects, work: &mut Work) {
        for name in std::mem::take(&mut work.services) {
            let new = objects
                .services
                .get(&name)
                .map(|object| self.service_state(object, objects));
            let old = self.services.get(&name);
            let same_service =
                old.map(|state| &state.service) == new.as_ref().map(|state| &state.service);
            let same_object = match (old, &new) {
                (Some(old), Some(new)) => {
                    let old = &old.object;
                    let new = &new.object;
                    old.spec == new.spec && old.meta.annotations == new.meta.annotations
                }
                (old, new) => old.is_none() && new.is_none(),
            };

            if old.map(|state| state.rules) != new.as_ref().map(|state| state.rules) {
                work.slices.extend(
                    self.slices
                        .of_service(&name)
                        .into_iter()
                        .map(|slice| slice.name().clone()),
                );
            }

            let Some(key) = new.as_ref().or(old).map(|state| state.service.key.clone()) else {
                continue;
            };

            if same_service && same_object {
                if let (Some(state), Some(new)) = (self.services.get_mut(&name), new) {
                    state.object = new.object;
                }
                continue;
            }

            let (number, old) = match new {
                Some(new) => self.services.put(new),
                None => match self.services.remove(&name) {
                    Some((number, old)) => (number, Some(old)),
                    None => continue,
                },
            };

            self.update_selector(&name, number, old.as_ref(), work);
            let new = self.services.at(number);
            work.aliases |= old
                .iter()
                .chain(new)
                .any(|state| state.service.resolution == Resolution::Alias);

            match new {
                Some(_) => self.names.services.insert(&key, number),
                None => self.names.services.remove(&key, number),
            }

            work.endpoints.insert(key.clone());
            work.endpoints
                .extend(self.mesh_inputs.cluster_set_key(&name));
            work.keys.insert(key);
            work.gateways.insert(name);
        }
    }

    /// Builds the state of a Kubernetes Service.
    fn service_state(&self, object: &Arc<Object<Declared>>, objects: &Objects) -> ServiceState {
        let namespace = namespace_meta(objects, &object.meta.key.namespace);
        let service = convert_service(object, namespace, &self.mesh_inputs);
        let rules = SliceRules::new(&service, &object.spec, &self.mesh_inputs);
        ServiceState {
            object: object.clone(),
            service: Arc::new(service),
            rules,
        }
    }

    /// Updates the selector of a Kubernetes Service, and queues the workloads that it selected
    /// before or selects now.
    fn update_selector(
        &mut self,
        name: &NamespacedName,
        number: u32,
        old: Option<&ServiceState>,
        work: &mut Work,
    ) {
        let was = old.and_then(ServiceState::selector);
        let is = self.services.at(number).and_then(ServiceState::selector);
        if was != is {
            if let Some(was) = was {
                self.service_selectors.remove(&name.namespace, was, number);
            }
            if let Some(is) = is {
                self.service_selectors.insert(&name.namespace, is, number);
            }
        }

        for selector in was.into_iter().chain(is.filter(|is| was != Some(is))) {
            let pods = self.pods.selected(&name.namespace, selector);
            work.pod_targets
                .extend(pods.into_iter().map(|pod| pod.name().clone()));
            let entries = self.entries.selected(&name.namespace, selector);
            work.addresses
                .extend(entries.into_iter().filter_map(|entry| entry.ip()));
        }

        // A pod that no Service selects belongs to Services whose slices list its address.
        let slices = self.slices.of_service(name);
        let addresses: BTreeSet<IpAddr> =
            slices.into_iter().flat_map(SliceState::addresses).collect();
        for address in addresses {
            work.pod_targets.extend(
                self.pods
                    .at(address)
                    .into_iter()
                    .map(|pod| pod.name().clone()),
            );
        }
    }

    /// Processes changed ServiceEntries.
    pub(super) fn update_service_entries(&mut self, objects: &Objects, work: &mut Work) {
        for name in std::mem::take(&mut work.service_entries) {
            let new = objects
                .service_entries
                .get(&name)
                .map(|object| self.service_entry_state(object, objects));
            let old = self.service_entries.get(&name);
            let same = match (old, &new) {
                (Some(old), Some(new)) => {
                    old.object.spec == new.object.spec && old.services == new.services
                }
                (old, new) => old.is_none() && new.is_none(),
            };

            if same {
                if let (Some(state), Some(new)) = (self.service_entries.get_mut(&name), new) {
                    state.object = new.object;
                }
                continue;
            }

            let none = EntryServices::new(Vec::new());
            let before = old.map_or(&none, |old| &old.services);
            let after = new.as_ref().map_or(&none, |new| &new.services);
            let changed = after.changed_hosts(before);
            let wants = |services: &EntryServices, host: &Hostname| {
                services.of(host).any(|found| found.needs_address())
            };
            work.allocation |= changed
                .iter()
                .any(|host| wants(before, host) != wants(after, host));

            let kept: Vec<bool> = changed
                .iter()
                .map(|host| after.of(host).next().is_some())
                .collect();
            let number = match new {
                Some(new) => Some(self.put_service_entry(&name, new, work)),
                None => self.remove_service_entry(&name, work),
            };
            let Some(number) = number else { continue };

            for (hostname, kept) in changed.into_iter().zip(kept) {
                let key = ServiceKey {
                    namespace: name.namespace.clone(),
                    hostname,
                };
                match kept {
                    true => self.names.entries.insert(&key, number),
                    false => self.names.entries.remove(&key, number),
                }
                work.keys.insert(key.clone());
                work.endpoints.insert(key);
            }

            work.entry_endpoints.insert(name);
        }
    }

    /// Adds or replaces a ServiceEntry; returns its number.
    fn put_service_entry(
        &mut self,
        name: &NamespacedName,
        mut new: ServiceEntryState,
        work: &mut Work,
    ) -> u32 {
        if let Some(old) = self.service_entries.get(name) {
            // Rebuilt in a later step.
            new.endpoints = old.endpoints.clone();
            new.left_out = old.left_out;
            new.services.share(&old.services);
            if new.object.spec.resolution == old.object.spec.resolution {
                new.gathered = old.gathered.clone();
            }
        }

        work.addresses.extend(new.endpoints.addresses());
        let selector = new.selector.clone();
        let (number, old) = self.service_entries.put(new);
        if let Some(was) = old.and_then(|old| old.selector) {
            self.entry_selectors.remove(&name.namespace, &was, number);
        }

        if let Some(is) = selector {
            self.entry_selectors.insert(&name.namespace, &is, number);
        }

        number
    }

    /// Removes a ServiceEntry; returns its former number.
    fn remove_service_entry(&mut self, name: &NamespacedName, work: &mut Work) -> Option<u32> {
        let (number, old) = self.service_entries.remove(name)?;
        if let Some(was) = &old.selector {
            self.entry_selectors.remove(&name.namespace, was, number);
        }
        for address in old.endpoints.addresses() {
            self.entry_addresses.remove(&address, number);
            work.addresses.insert(address);
        }
        Some(number)
    }

    /// Builds the state of a ServiceEntry, except for its endpoints.
    fn service_entry_state(
        &self,
        object: &Arc<Object<ServiceEntry>>,
        objects: &Objects,
    ) -> ServiceEntryState {
        let namespace = namespace_meta(objects, &object.meta.key.namespace);
        let services = convert_service_entry(object, namespace, &self.mesh_inputs);
        let selector = object.spec.workload_selector.as_ref().map(|selector| {
            let labels = selector.labels.iter();
            labels
                .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
                .collect()
        });
        ServiceEntryState {
            object: object.clone(),
            selector,
            services: EntryServices::new(services),
            endpoints: EntryEndpoints::Listed(Vec::new()),
            left_out: 0,
            gathered: OnceLock::new(),
        }
    }
}
