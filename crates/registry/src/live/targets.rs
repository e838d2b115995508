//! Finds the service ports of workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::work::Work;
use super::{Registry, ServiceState};
use crate::directory::{DirectoryChange, EntryTargets, ListedTargets, TargetsAt};
use crate::model::{Endpoint, ServiceTarget, Workload};
use crate::pod_workload::PodState;
use crate::targets::{target_order, targets_of_entry, targets_of_pod};
use navarch_api::named_table::HasName;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;

impl Registry {
    /// Finds the targets of pods and at addresses.
    pub(super) fn update_targets(&mut self, work: &mut Work, change: &mut DirectoryChange) {
        // Consecutive pods mostly belong to the same Service and have equal targets.
        let mut last: Arc<[ServiceTarget]> = Arc::default();
        let mut changed = Vec::new();

        for name in work.pod_targets.take() {
            let new = self
                .pods
                .named(&name)
                .map(|pod| self.pod_targets(&name, pod))
                .unwrap_or_default();
            let old = self.directory.pod_targets.get(&name);
            if old.map_or(&[][..], |old| &**old) == new.as_slice() {
                continue;
            }

            if new.is_empty() {
                self.directory.pod_targets.remove(&name);
            } else {
                if *last != *new {
                    last = Arc::from(new);
                }
                self.directory
                    .pod_targets
                    .insert(name.clone(), last.clone());
            }

            changed.push(name);
        }

        // A set is built faster from all of its values than one by one.
        change
            .pod_targets
            .append(&mut changed.into_iter().collect());

        for (address, new) in self.changed_addresses(&work.addresses) {
            match new {
                Some(new) => self.directory.targets.insert(address, new),
                None => self.directory.targets.remove(&address),
            };
            change.targets.insert(address);
        }
    }

    /// The new targets of those addresses whose targets differ from the directory; `None` if there
    /// are none.
    fn changed_addresses(
        &self,
        addresses: &BTreeSet<IpAddr>,
    ) -> Vec<(IpAddr, Option<Arc<TargetsAt>>)> {
        let mut listed = ListedEndpoints::default();
        let mut changed = Vec::new();
        for address in addresses {
            let new = self.targets_at(*address, &mut listed);
            let new = (new != TargetsAt::default()).then_some(new);
            let old = self.directory.targets.get(address).map(|old| &**old);
            if old != new.as_ref() {
                changed.push((*address, new.map(Arc::new)));
            }
        }
        changed
    }

    /// The targets of a pod by Kubernetes Services: those that select it; if there are none, those
    /// whose slices list its address.
    fn pod_targets(&self, name: &NamespacedName, pod: &PodState) -> Vec<ServiceTarget> {
        let selecting = self.services_selecting(&name.namespace, pod.labels().into());
        let mut targets: Vec<ServiceTarget> = if selecting.is_empty() {
            pod.ip()
                .map(|ip| self.listed_targets(name, ip))
                .unwrap_or_default()
        } else {
            let states = selecting.into_iter();
            states
                .flat_map(|state| self.targets_of_service(state, pod))
                .collect()
        };
        targets.sort_by(target_order);
        targets
    }

    /// The targets of a pod by a Service that selects it, also under its host in
    /// `clusterset.local`.
    fn targets_of_service(&self, state: &ServiceState, pod: &PodState) -> Vec<ServiceTarget> {
        let services = std::iter::once(&state.service).chain(self.imports.get(state.name()));
        services
            .flat_map(|service| targets_of_pod(service, &state.object.spec, pod))
            .collect()
    }

    /// The targets of a pod by slices of its namespace that list its address.
    fn listed_targets(&self, pod: &NamespacedName, ip: IpAddr) -> Vec<ServiceTarget> {
        let text = ip.to_string();
        let mut targets: Vec<ServiceTarget> = Vec::new();
        let mut seen = BTreeSet::new();
        let slices = self.slices.at(ip).into_iter();
        for slice in slices.filter(|slice| slice.name().namespace == pod.namespace) {
            let Some(state) = self.services.get(&slice.service()) else {
                continue;
            };

            let endpoints = slice
                .endpoints
                .iter()
                .filter(|endpoint| endpoint.addresses.first().is_some_and(|a| **a == *text));
            let by_name = state.service.ports_by_name();

            for endpoint in endpoints {
                let Some(port) = by_name.get(endpoint.port_name.as_str()).copied() else {
                    continue;
                };
                if seen.insert((slice.service(), port.name.clone(), endpoint.port)) {
                    let service = state.service.clone();
                    targets.push(ServiceTarget {
                        service,
                        port: port.clone(),
                        target_port: endpoint.port,
                    });
                }
            }
        }

        targets
    }

    /// The targets of WorkloadEntries and endpoints of ServiceEntries at an address.
    fn targets_at<'a>(&'a self, address: IpAddr, listed: &mut ListedEndpoints<'a>) -> TargetsAt {
        let mut entries = Vec::new();
        let allowed = self.mesh_inputs.settings.services_select_workload_entries;
        for entry in self.entries.at(address).into_iter().filter(|_| allowed) {
            let states = self
                .services_selecting(&entry.name.namespace, entry.workload.labels())
                .into_iter();
            let mut targets: Vec<ServiceTarget> = states
                .flat_map(|state| targets_of_entry(&state.service, &state.object.spec, entry))
                .collect();
            targets.sort_by(target_order);
            entries.push(EntryTargets {
                entry: entry.name.clone(),
                targets,
            });
        }

        let (by_service_entry, workloads) = self.targets_by_service_entry(address, listed);
        let finds = self.mesh_inputs.settings.find_pods_by_address;
        let ready = self
            .pods
            .at(address)
            .into_iter()
            .filter(|pod| finds && pod.is_ready());
        let pods = ready.map(|pod| pod.name().clone()).collect();

        TargetsAt {
            entries,
            by_service_entry,
            workloads,
            pods,
        }
    }

    /// The targets of endpoints of ServiceEntries at an address, and their workload as seen by each
    /// namespace.
    fn targets_by_service_entry<'a>(
        &'a self,
        address: IpAddr,
        listed: &mut ListedEndpoints<'a>,
    ) -> (Vec<ListedTargets>, BTreeMap<Namespace, Arc<Workload>>) {
        let text = address.to_string();
        let mut targets = Vec::new();
        let mut workloads = BTreeMap::new();
        for state in self
            .service_entries
            .by_name(self.entry_addresses.get(&address), |_| true)
        {
            let by_address = listed
                .entry(state.name())
                .or_insert_with(|| by_address(state.endpoints.listed()));
            let Some(endpoints) = by_address.get(text.as_str()) else {
                continue;
            };
            let found = ListedTargets {
                services: state.services.all().clone(),
                endpoints: endpoints.clone(),
            };
            if let Some(first) = found.first() {
                let namespace = state.object.meta.key.namespace.clone();
                workloads
                    .entry(namespace)
                    .or_insert_with(|| first.workload.clone());
                targets.push(found);
            }
        }

        (targets, workloads)
    }
}

/// The endpoints of ServiceEntries by their main addresses, by the name of the ServiceEntry,
/// because many addresses of one ServiceEntry are looked up together.
type ListedEndpoints<'a> = BTreeMap<&'a NamespacedName, BTreeMap<&'a str, Arc<[Arc<Endpoint>]>>>;

/// Endpoints by their main addresses, in their order.
fn by_address(endpoints: &[Arc<Endpoint>]) -> BTreeMap<&str, Arc<[Arc<Endpoint>]>> {
    let mut found: BTreeMap<&str, Vec<Arc<Endpoint>>> = BTreeMap::new();
    for endpoint in endpoints {
        if let Some(address) = endpoint.addresses.first() {
            found.entry(address).or_default().push(endpoint.clone());
        }
    }
    found
        .into_iter()
        .map(|(address, endpoints)| (address, endpoints.into()))
        .collect()
}
