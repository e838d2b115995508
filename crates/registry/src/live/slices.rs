//! Builds the endpoints of EndpointSlices and ServiceEntries.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use super::work::Work;
use super::{Registry, RemoteRegistries, ServiceEntryState};
use crate::instance::Instance;
use crate::service_entry_endpoints::{EntryEndpoints, declared_endpoints, selected_endpoints};
use crate::slice_endpoints::endpoints_of_slice;
use crate::slice_index::{SliceState, service_of_slice};
use navarch_api::named_table::HasName;
use navarch_store::Objects;

impl EntryEndpoints {
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        let first = self
            .listed()
            .iter()
            .filter_map(|endpoint| endpoint.addresses.first());
        first.filter_map(|address| address.parse().ok()).collect()
    }
}

impl Registry {
    /// Rebuilds the endpoints of queued EndpointSlices.
    pub(super) fn update_slices(&mut self, objects: &Objects, work: &mut Work) {
        for name in work.slices.take() {
            let slice = objects.endpoint_slices.get(&name);
            let new = slice.and_then(|slice| {
                let service = service_of_slice(slice)?;
                let rules = self.services.get(&service).map(|state| state.rules);
                let seen = self.discoverability(objects, &service);
                let found = endpoints_of_slice(slice, rules, seen, &self.pods, &self.mesh_inputs);
                Some(SliceState::new(slice.clone(), found))
            });

            let old = self.slices.put(&name, new);
            let new = self.slices.get(&name);
            let pending = new.map_or(0, |state| state.pending);
            self.pending_pods += pending;
            self.pending_pods -= old.as_ref().map_or(0, |state| state.pending);
            let same_service =
                old.as_ref().map(SliceState::service) == new.map(SliceState::service);
            if same_service
                && old.as_ref().map(|state| &state.endpoints) == new.map(|state| &state.endpoints)
            {
                continue;
            }

            // An unchanged slice lists the same addresses, for the same Service.
            let old = old.filter(|old| !new.is_some_and(|new| new.is_same_slice(old)));

            for state in old.iter().chain(new) {
                work.endpoints.insert(self.key_of(&state.service()));
                work.endpoints
                    .extend(self.mesh_inputs.cluster_set_key(&state.service()));
                for address in state.addresses() {
                    work.pod_targets.extend(
                        self.pods
                            .at(address)
                            .into_iter()
                            .map(|pod| pod.name().clone()),
                    );
                }
            }
        }
    }

    /// Rebuilds the endpoints of queued ServiceEntries.
    pub(super) fn update_entry_endpoints(&mut self, work: &mut Work, others: &RemoteRegistries) {
        for name in std::mem::take(&mut work.entry_endpoints) {
            let Some(number) = self.service_entries.number(&name) else {
                continue;
            };

            let Some(state) = self.service_entries.at(number) else {
                continue;
            };

            let (new, left_out) = self.endpoints_of_entry(state, others);
            if left_out > 0 && state.left_out == 0 {
                tracing::warn!(
                    %name, left_out,
                    "ServiceEntry selects more workloads than its ports and hosts allow; the rest is ignored"
                );
            }

            let is_same = state.endpoints == new;
            if is_same && state.left_out == left_out {
                continue;
            }

            if is_same {
                if let Some(state) = self.service_entries.get_mut(&name) {
                    state.left_out = left_out;
                }
                continue;
            }

            let before = state.endpoints.addresses();
            let after = new.addresses();
            for address in before.difference(&after) {
                self.entry_addresses.remove(address, number);
            }

            for address in after.difference(&before) {
                self.entry_addresses.insert(address, number);
            }

            work.addresses.extend(before.into_iter().chain(after));
            work.endpoints.extend(
                state
                    .services
                    .all()
                    .iter()
                    .map(|service| service.key.clone()),
            );

            if let Some(state) = self.service_entries.get_mut(&name) {
                state.endpoints = new;
                state.left_out = left_out;
                state.gathered = OnceLock::new();
            }
        }
    }

    /// The endpoints that a ServiceEntry lists or selects, and the number of selected workloads
    /// beyond the limit.
    fn endpoints_of_entry(
        &self,
        state: &ServiceEntryState,
        others: &RemoteRegistries,
    ) -> (EntryEndpoints, usize) {
        let object = &state.object;
        let Some(selector) = &state.selector else {
            return (declared_endpoints(object, &self.mesh_inputs), 0);
        };

        let namespace = &object.meta.key.namespace;
        let mut instances: Vec<Arc<Instance>> = Vec::new();

        for registry in std::iter::once(self).chain(others.values()) {
            if self.mesh_inputs.settings.service_entries_select_pods {
                let pods = registry
                    .pods
                    .selected_by_workload(namespace, selector)
                    .into_iter();
                instances.extend(
                    pods.filter_map(|pod| pod.instance(&registry.mesh_inputs))
                        .map(Arc::new),
                );
            }

            instances.extend(
                registry
                    .entries
                    .selected(namespace, selector)
                    .into_iter()
                    .cloned(),
            );
        }

        selected_endpoints(&object.spec, instances)
    }
}
