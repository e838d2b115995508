//! Kubernetes Services and ServiceEntries are taken in.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::names::Declarer;
use super::work::Work;
use super::{Registry, ServiceEntryState, ServiceState};
use crate::api::istio::ServiceEntry;
use crate::api::kubernetes::Service as Declared;
use crate::api::names::Namespace;
use crate::api::object::{NamespacedName, Object, ObjectMeta};
use crate::registry::kubernetes_service::convert_service;
use crate::registry::model::{Labels, Resolution, ServiceKey};
use crate::registry::service_entry::convert_service_entry;
use crate::registry::service_entry_endpoints::EntryEndpoints;
use crate::registry::slice_endpoints::SliceRules;
use crate::store::Objects;

/// The metadata of a namespace.
fn namespace_meta<'a>(objects: &'a Objects, namespace: &Namespace) -> Option<&'a ObjectMeta> {
    let name = NamespacedName::new("", namespace.as_str());
    objects.namespaces.get(&name).map(|object| &object.meta)
}

impl Registry {
    /// Takes Kubernetes Services in.
    pub(super) fn update_services(&mut self, objects: &Objects, work: &mut Work) {
        for name in std::mem::take(&mut work.services) {
            let new = objects.services.get(&name).map(|object| self.service_state(object, objects));
            let old = self.services.get(&name);
            let same_service = old.map(|state| &state.service) == new.as_ref().map(|state| &state.service);
            let same_object = match (old, &new) {
                (Some(old), Some(new)) => {
                    let (old, new) = (&old.object, &new.object);
                    old.spec == new.spec && old.meta.annotations == new.meta.annotations
                }
                (old, new) => old.is_none() && new.is_none(),
            };
            if old.map(|state| state.rules) != new.as_ref().map(|state| state.rules) {
                work.slices.extend(self.slices.of_service(&name).map(|(slice, _)| slice.clone()));
            }
            if same_service && same_object {
                continue;
            }
            let key = self.key_of(&name);
            let old = match new {
                Some(new) => self.services.insert(name.clone(), new),
                None => self.services.remove(&name),
            };
            self.reselect_service(&name, work);
            let states = || old.iter().chain(self.services.get(&name));
            work.aliases |= states().any(|state| state.service.resolution == Resolution::Alias);
            let declared = self.services.contains_key(&name);
            self.names.declare(&key, Declarer::Service(name.clone()), declared);
            work.endpoints.insert(key.clone());
            work.keys.insert(key);
            work.gateways.insert(name);
        }
    }

    /// Makes a Kubernetes Service's state.
    fn service_state(&self, object: &Arc<Object<Declared>>, objects: &Objects) -> ServiceState {
        let namespace = namespace_meta(objects, &object.meta.namespace);
        let service = convert_service(object, namespace, &self.world);
        let rules = SliceRules::new(&service, &object.spec, &self.world);
        ServiceState { object: object.clone(), service: Arc::new(service), rules }
    }

    /// Takes a Kubernetes Service's selector in. Whoever it selected or selects now gets new targets.
    fn reselect_service(&mut self, name: &NamespacedName, work: &mut Work) {
        // An empty selector selects nobody.
        let selector = self.services.get(name).map(|state| state.object.spec.selector.clone());
        let selector = selector.filter(|selector| !selector.is_empty());
        let old = self.service_selectors.put(name, selector.clone());
        let selectors: BTreeSet<Labels> = old.into_iter().chain(selector).collect();
        for selector in &selectors {
            work.pod_targets.extend(self.pods.selected(&name.namespace, selector).cloned());
            work.addresses.extend(self.entries.selected(&name.namespace, selector).filter_map(|entry| entry.ip()));
        }
        // Pods that no service selects serve those that list their address.
        let addresses: BTreeSet<IpAddr> =
            self.slices.of_service(name).flat_map(|(_, slice)| slice.addresses.iter().copied()).collect();
        for address in addresses {
            work.pod_targets.extend(self.pods.at(address).cloned());
        }
    }

    /// Takes ServiceEntries in.
    pub(super) fn update_service_entries(&mut self, objects: &Objects, work: &mut Work) {
        for name in std::mem::take(&mut work.service_entries) {
            let new = objects.service_entries.get(&name).map(|object| self.service_entry_state(object, objects));
            let old = self.service_entries.get(&name);
            let same = match (old, &new) {
                (Some(old), Some(new)) => old.object.spec == new.object.spec && old.services == new.services,
                (old, new) => old.is_none() && new.is_none(),
            };
            if same {
                continue;
            }
            let selector = new.as_ref().and_then(|state| state.object.spec.workload_selector.as_ref());
            let selector = selector.map(|selector| {
                let labels = selector.labels.iter();
                labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect()
            });
            self.entry_selectors.put(&name, selector);
            let keys = |state: &ServiceEntryState| -> BTreeSet<ServiceKey> {
                state.services.iter().map(|service| service.key.clone()).collect()
            };
            let old_keys = old.map(keys).unwrap_or_default();
            let new_keys = new.as_ref().map(keys).unwrap_or_default();
            work.addresses.extend(old.iter().flat_map(|state| state.endpoints.addresses()));
            let old_endpoints = old.map(|state| state.endpoints.clone());
            match new {
                Some(mut new) => {
                    if let Some(endpoints) = old_endpoints {
                        // Made anew in a later step.
                        new.endpoints = endpoints;
                    }
                    work.addresses.extend(new.endpoints.addresses());
                    self.service_entries.insert(name.clone(), new);
                }
                None => {
                    self.service_entries.remove(&name);
                    for address in old_endpoints.iter().flat_map(EntryEndpoints::addresses) {
                        self.entry_addresses.remove(&address, &name);
                    }
                }
            }
            let origin = Declarer::ServiceEntry(name.clone());
            for key in old_keys.union(&new_keys) {
                self.names.declare(key, origin.clone(), new_keys.contains(key));
                work.keys.insert(key.clone());
                work.endpoints.insert(key.clone());
            }
            work.allocation = true;
            work.entry_endpoints.insert(name);
        }
    }

    /// Makes a ServiceEntry's state, endpoints aside.
    fn service_entry_state(&self, object: &Arc<Object<ServiceEntry>>, objects: &Objects) -> ServiceEntryState {
        let namespace = namespace_meta(objects, &object.meta.namespace);
        let services = convert_service_entry(object, namespace, &self.world);
        ServiceEntryState {
            object: object.clone(),
            services: services.into_iter().map(Arc::new).collect(),
            endpoints: EntryEndpoints::Listed(Vec::new()),
        }
    }
}
