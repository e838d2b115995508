//! Collects the endpoints of services.

use std::sync::Arc;

use super::work::Work;
use super::{Registry, ServiceEntryState, ServiceState};
use crate::directory::DirectoryChange;
use crate::model::{Endpoint, ExportTo, Resolution, Service, ServiceEndpoints, ServiceKey};
use crate::service_entry_endpoints::{EntryEndpoints, merge_endpoints};
use crate::targets::port_on_entry;
use navarch_api::named_table::HasName;
use navarch_api::names::{ClusterId, PortName};
use navarch_store::Objects;

/// Endpoints of a service, if it has any.
type Shared = Option<Arc<ServiceEndpoints>>;

/// Whether both are the same allocation, or both are `None`.
fn is_same_allocation(
    a: Option<&Arc<ServiceEndpoints>>,
    b: Option<&Arc<ServiceEndpoints>>,
) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl Registry {
    /// Updates the endpoints of queued services.
    pub(super) fn update_endpoints(
        &mut self,
        objects: &Objects,
        work: &mut Work,
        change: &mut DirectoryChange,
    ) {
        // The hosts of a ServiceEntry share their endpoints, before and after: they are compared
        // once.
        let mut equal: Option<(Shared, Shared, bool)> = None;

        for key in work.endpoints.take() {
            let new = self.collect_endpoints(objects, &key);
            let old = self.directory.endpoints.get(&key);
            let same = match &equal {
                Some((of_old, of_new, same))
                    if is_same_allocation(of_old.as_ref(), old)
                        && is_same_allocation(of_new.as_ref(), new.as_ref()) =>
                {
                    *same
                }
                Some(_) | None => old == new.as_ref(),
            };

            equal = Some((old.cloned(), new.clone(), same));
            if same {
                continue;
            }

            match new {
                Some(new) => self.directory.endpoints.insert(key.clone(), new),
                None => self.directory.endpoints.remove(&key),
            };

            change.endpoints.insert(key);
        }
    }

    /// The endpoints of a service; `None` for none.
    fn collect_endpoints(&self, objects: &Objects, key: &ServiceKey) -> Shared {
        let services = self.services_of(key);
        let entries = self.entries_of(key);
        if let ([], [state]) = (&*services, &*entries)
            && matches!(state.endpoints, EntryEndpoints::Listed(_))
        {
            let count = state.services.of(&key.hostname).count();
            let (of_count, shared) = state
                .gathered
                .get_or_init(|| (count, self.merge(key, Vec::new(), &services, &entries)));
            if *of_count == count {
                return shared.clone();
            }
        }

        self.merge(
            key,
            self.cluster_set_endpoints(objects, key),
            &services,
            &entries,
        )
    }

    /// Merges the endpoints of all objects that declare a service.
    fn merge(
        &self,
        key: &ServiceKey,
        mut endpoints: Vec<Arc<Endpoint>>,
        services: &[&ServiceState],
        declared: &[&ServiceEntryState],
    ) -> Shared {
        let mut entries: Vec<(&Service, &EntryEndpoints)> = Vec::new();

        for state in services {
            // As in istiod: a VirtualService of the same namespace may refer to a Service that is
            // not exported, but finds no pods there.
            if state.service.export_to != ExportTo::Nobody {
                endpoints.extend(self.slices.endpoints(state.name()));
            }
            endpoints.extend(self.selected_entries(state));
        }

        for state in declared {
            entries.extend(
                state
                    .services
                    .of(&key.hostname)
                    .map(|service| (&**service, &state.endpoints)),
            );
        }

        entries.sort_by_key(|(service, _)| service.created);
        endpoints.extend(merge_endpoints(entries));
        ServiceEndpoints::gathered(endpoints).map(Arc::new)
    }

    /// The WorkloadEntries that a Kubernetes Service selects, as its endpoints.
    pub(super) fn selected_entries(&self, state: &ServiceState) -> Vec<Arc<Endpoint>> {
        let service = &state.service;
        let allowed = self.mesh_inputs.settings.services_select_workload_entries;
        if !allowed || service.selector.is_empty() || service.resolution != Resolution::ClientSideLb
        {
            return Vec::new();
        }
        let selected = self
            .entries
            .selected(&service.key.namespace, &service.selector)
            .into_iter();

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

impl ServiceEndpoints {
    /// The endpoints of one service in their order, with the identities behind them; `None` for
    /// none.
    pub(crate) fn gathered(mut endpoints: Vec<Arc<Endpoint>>) -> Option<Self> {
        if endpoints.is_empty() {
            return None;
        }

        endpoints.sort_by(|a, b| a.order().cmp(&b.order()));
        let accounts = endpoints.iter().map(|endpoint| &endpoint.workload.identity);
        let mut service_accounts: Vec<Arc<str>> = accounts
            .filter(|account| !account.is_empty())
            .cloned()
            .collect();
        service_accounts.sort_unstable();
        service_accounts.dedup();

        // The vectors are long-lived, and may have grown by doubling.
        endpoints.shrink_to_fit();
        service_accounts.shrink_to_fit();
        Some(Self {
            endpoints,
            service_accounts,
        })
    }
}

impl Endpoint {
    /// The sort key within a service: clusters may use the same addresses.
    fn order(&self) -> (&[Arc<str>], &PortName, u16, &ClusterId) {
        (
            &self.addresses,
            &self.port_name,
            self.port,
            &self.workload.location.cluster,
        )
    }
}
