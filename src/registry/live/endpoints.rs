//! The endpoints of services are gathered.

use std::sync::Arc;

use super::work::Work;
use super::{Registry, ServiceState};
use crate::api::named_table::HasName;
use crate::registry::directory::DirectoryChange;
use crate::registry::model::{Endpoint, Resolution, Service, ServiceEndpoints, ServiceKey};
use crate::registry::service_entry_endpoints::{EntryEndpoints, merge_endpoints};
use crate::registry::targets::port_on_entry;

impl Registry {
    /// Gathers endpoints.
    pub(super) fn update_endpoints(&mut self, work: &Work, change: &mut DirectoryChange) {
        for key in &work.endpoints {
            let new = self.gather(key);
            let old = self.directory.endpoints.get(key);
            if old.map(|old| &**old) == new.as_ref() {
                continue;
            }
            match new {
                Some(new) => self.directory.endpoints.insert(key.clone(), Arc::new(new)),
                None => self.directory.endpoints.remove(key),
            };
            change.endpoints.insert(key.clone());
        }
    }

    /// The endpoints of a service; `None` for none.
    fn gather(&self, key: &ServiceKey) -> Option<ServiceEndpoints> {
        let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
        let mut entries: Vec<(&Service, &EntryEndpoints)> = Vec::new();
        for state in self.services_of(key) {
            endpoints.extend(self.slices.endpoints(state.name()));
            endpoints.extend(self.selected_entries(state));
        }
        for state in self.entries_of(key) {
            let services = state.services.iter().map(|service| (&**service, &state.endpoints));
            entries.extend(services.filter(|(service, _)| service.key == *key));
        }
        entries.sort_by_key(|(service, _)| service.created);
        endpoints.extend(merge_endpoints(entries));
        if endpoints.is_empty() {
            return None;
        }
        endpoints.sort_by(|a, b| (&a.addresses, &a.port_name, a.port).cmp(&(&b.addresses, &b.port_name, b.port)));
        let accounts = endpoints.iter().map(|endpoint| &endpoint.workload.identity);
        let mut service_accounts: Vec<Arc<str>> = accounts.filter(|account| !account.is_empty()).cloned().collect();
        service_accounts.sort_unstable();
        service_accounts.dedup();
        // They stay for long, and grew by doubling.
        endpoints.shrink_to_fit();
        service_accounts.shrink_to_fit();
        Some(ServiceEndpoints { endpoints, service_accounts })
    }

    /// The WorkloadEntries that a Kubernetes Service selects, as its endpoints.
    fn selected_entries(&self, state: &ServiceState) -> Vec<Arc<Endpoint>> {
        let service = &state.service;
        let allowed = self.world.settings.services_select_workload_entries;
        if !allowed || service.selector.is_empty() || service.resolution != Resolution::ClientSideLb {
            return Vec::new();
        }
        let selected = self.entries.selected(&service.key.namespace, &service.selector).into_iter();
        let mut endpoints = Vec::new();
        for entry in selected.filter(|entry| !entry.only_by_dns) {
            for port in &service.ports {
                if let Some(number) = port_on_entry(port, &state.object.spec, entry) {
                    endpoints.push(Arc::new(entry.endpoint(&port.name, 0, number)));
                }
            }
        }
        endpoints
    }
}
