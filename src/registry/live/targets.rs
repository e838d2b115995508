//! What workloads serve is found.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Registry;
use super::work::Work;
use crate::api::named_table::HasName;
use crate::api::names::Namespace;
use crate::api::object::NamespacedName;
use crate::registry::directory::{DirectoryChange, EntryTargets, TargetsAt};
use crate::registry::model::{ServiceTarget, Workload};
use crate::registry::pod_workload::PodState;
use crate::registry::targets::{target_order, targets_of_entry, targets_of_pod};

impl Registry {
    /// Finds the targets of pods and at addresses.
    pub(super) fn update_targets(&mut self, work: &Work, change: &mut DirectoryChange) {
        // Pods of one Service follow each other, and mostly serve the same.
        let mut last: Arc<[ServiceTarget]> = Arc::default();
        for name in &work.pod_targets {
            let new = self.pods.named(name).map(|pod| self.pod_targets(name, pod)).unwrap_or_default();
            let old = self.directory.pod_targets.get(name);
            if old.map_or(&[][..], |old| &**old) == new.as_slice() {
                continue;
            }
            if new.is_empty() {
                self.directory.pod_targets.remove(name);
            } else {
                if *last != *new {
                    last = Arc::from(new);
                }
                self.directory.pod_targets.insert(name.clone(), last.clone());
            }
            change.pod_targets.insert(name.clone());
        }
        for address in &work.addresses {
            let new = self.targets_at(*address);
            let old = self.directory.targets.get(address).map(|old| &**old);
            if old.unwrap_or(&TargetsAt::default()) == &new {
                continue;
            }
            if new == TargetsAt::default() {
                self.directory.targets.remove(address);
            } else {
                self.directory.targets.insert(*address, Arc::new(new));
            }
            change.targets.insert(*address);
        }
    }

    /// What a pod serves by Kubernetes Services: those that select it, else those whose slices list its address.
    fn pod_targets(&self, name: &NamespacedName, pod: &PodState) -> Vec<ServiceTarget> {
        let selecting = self.services_selecting(&name.namespace, pod.labels());
        let mut targets: Vec<ServiceTarget> = if selecting.is_empty() {
            pod.ip().map(|ip| self.listed_targets(name, ip)).unwrap_or_default()
        } else {
            let states = selecting.into_iter();
            states.flat_map(|state| targets_of_pod(&state.service, &state.object.spec, pod)).collect()
        };
        targets.sort_by(target_order);
        targets
    }

    /// The service ports that slices of a pod's namespace say are served at its address.
    fn listed_targets(&self, pod: &NamespacedName, ip: IpAddr) -> Vec<ServiceTarget> {
        let text = ip.to_string();
        let mut targets: Vec<ServiceTarget> = Vec::new();
        let slices = self.slices.at(ip).into_iter();
        for slice in slices.filter(|slice| slice.name().namespace == pod.namespace) {
            let Some(state) = self.services.get(&slice.service()) else { continue };
            let endpoints =
                slice.endpoints.iter().filter(|endpoint| endpoint.addresses.first().is_some_and(|a| **a == *text));
            for endpoint in endpoints {
                let Some(port) = state.service.port_named(endpoint.port_name.as_str()) else { continue };
                let service = state.service.clone();
                let target = ServiceTarget { service, port: port.clone(), target_port: endpoint.port };
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        targets
    }

    /// What WorkloadEntries and endpoints of ServiceEntries at an address serve.
    fn targets_at(&self, address: IpAddr) -> TargetsAt {
        let mut entries = Vec::new();
        let allowed = self.world.settings.services_select_workload_entries;
        for entry in self.entries.at(address).into_iter().filter(|_| allowed) {
            let states = self.services_selecting(&entry.name.namespace, &entry.workload.labels).into_iter();
            let mut targets: Vec<ServiceTarget> =
                states.flat_map(|state| targets_of_entry(&state.service, &state.object.spec, entry)).collect();
            targets.sort_by(target_order);
            entries.push(EntryTargets { entry: entry.name.clone(), targets });
        }
        let (by_service_entry, workloads) = self.targets_by_service_entry(address);
        let finds = self.world.settings.find_pods_by_address;
        let ready = self.pods.at(address).into_iter().filter(|pod| finds && pod.is_ready());
        let pods = ready.map(|pod| pod.name().clone()).collect();
        TargetsAt { entries, by_service_entry, workloads, pods }
    }

    /// What endpoints of ServiceEntries at an address serve, and which workloads they are in the eyes of each namespace.
    fn targets_by_service_entry(&self, address: IpAddr) -> (Vec<ServiceTarget>, BTreeMap<Namespace, Arc<Workload>>) {
        let text = address.to_string();
        let mut targets = Vec::new();
        let mut workloads = BTreeMap::new();
        for state in self.service_entries.by_name(self.entry_addresses.get(&address), |_| true) {
            let here = |addresses: &[Arc<str>]| addresses.first().is_some_and(|first| **first == *text);
            let endpoints = state.endpoints.listed().iter().filter(|endpoint| here(&endpoint.addresses));
            for endpoint in endpoints {
                for service in &state.services {
                    let Some(port) = service.port(endpoint.legacy_port_key) else { continue };
                    let service = service.clone();
                    let namespace = service.key.namespace.clone();
                    workloads.entry(namespace).or_insert_with(|| endpoint.workload.clone());
                    targets.push(ServiceTarget { service, port: port.clone(), target_port: endpoint.port });
                }
            }
        }
        targets.sort_by(target_order);
        (targets, workloads)
    }
}
