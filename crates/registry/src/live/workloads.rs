//! The first steps: queue what depends on namespaces and nodes, and process changed pods and
//! WorkloadEntries.

use std::net::IpAddr;
use std::sync::Arc;

use super::Registry;
use super::work::Work;
use crate::directory::DirectoryChange;
use crate::mesh_inputs::Role;
use crate::pod_workload::PodState;
use crate::workload_entry::{counts, instance_of_entry};
use navarch_api::named_table::HasName;
use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use navarch_store::Objects;

impl Registry {
    /// Queues the services of changed namespaces, and the pods and node-port gateways of changed
    /// nodes.
    pub(super) fn spread(&self, objects: &Objects, work: &mut Work) {
        for name in &work.namespaces {
            let namespace = Namespace::new(&name.name);
            work.services.extend(
                objects
                    .services
                    .in_namespace(&namespace)
                    .map(|object| object.meta.key()),
            );
            work.service_entries.extend(
                objects
                    .service_entries
                    .in_namespace(&namespace)
                    .map(|object| object.meta.key()),
            );
        }

        for node in &work.nodes {
            work.pods.extend(
                self.pods
                    .on_node(&node.name)
                    .into_iter()
                    .map(|pod| pod.name().clone()),
            );
        }

        if !work.nodes.is_empty() {
            work.gateways.extend(self.gateways.keys().cloned());
        }
    }

    /// Processes changed pods.
    pub(super) fn update_pods(&mut self, objects: &Objects, work: &mut Work) {
        for name in work.pods.take() {
            let new = objects.pods.get(&name).and_then(|object| {
                let node = object.spec.node.as_ref();
                let node = node.and_then(|node| {
                    let name = NamespacedName::of(Namespace::default(), node.clone());
                    objects.nodes.get(&name)
                });
                PodState::new(
                    object,
                    node.map(|node| &**node),
                    &self.mesh_inputs,
                    &mut self.texts,
                )
            });

            let same = match (self.pods.named(&name), &new) {
                (Some(old), Some(new)) => old.same(new),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };

            if same {
                new.into_iter()
                    .for_each(|new| self.pods.refresh(new.object));
                continue;
            }

            let old = self.pods.put(&name, new);
            let states: Vec<&PodState> = old.iter().chain(self.pods.named(&name)).collect();
            let addresses: Vec<IpAddr> = states.iter().filter_map(|state| state.ip()).collect();
            if self.mesh_inputs.settings.find_pods_by_address {
                work.addresses.extend(&addresses);
            }

            work.slices
                .extend(self.slices.candidates(&name, addresses).cloned());

            for state in states.into_iter().filter(|state| state.is_ready()) {
                if self.mesh_inputs.role == Role::Remote {
                    work.touched.push(state.workload.clone());
                }
                let labels = state.workload.labels();
                let entries = self.entries_selecting(&name.namespace, labels);
                work.entry_endpoints
                    .extend(entries.into_iter().map(|entry| entry.name().clone()));
            }

            work.pod_targets.insert(name.clone());
            work.workloads.insert(name);
        }
    }

    /// Processes changed WorkloadEntries.
    pub(super) fn update_entries(&mut self, objects: &Objects, work: &mut Work) {
        for name in std::mem::take(&mut work.entries) {
            let read = self.mesh_inputs.role == Role::Config
                || self.mesh_inputs.settings.clusters.remote_workload_entries;
            let object = objects.workload_entries.get(&name).filter(|_| read);
            let object = object.filter(|object| counts(object, &self.mesh_inputs.settings));
            let new = object.map(|object| Arc::new(instance_of_entry(object, &self.mesh_inputs)));
            if self.entries.named(&name) == new.as_ref() {
                continue;
            }

            let old = self.entries.put(&name, new.clone());
            for entry in old.iter().chain(&new) {
                if self.mesh_inputs.role == Role::Remote {
                    work.touched.push(entry.workload.clone());
                }

                let labels = entry.workload.labels();
                let entries = self.entries_selecting(&name.namespace, labels);
                work.entry_endpoints
                    .extend(entries.into_iter().map(|entry| entry.name().clone()));
                let services = self.services_selecting(&name.namespace, labels);
                for state in services {
                    work.endpoints.insert(state.service.key.clone());
                    work.endpoints
                        .extend(self.mesh_inputs.cluster_set_key(state.name()));
                }

                work.addresses.extend(entry.ip());
            }
        }
    }

    /// Updates the workloads of pods in the directory. A proxy without a pod is identified by its
    /// address and metadata, even if there is a WorkloadEntry of its name.
    pub(super) fn update_workloads(&mut self, work: &mut Work, change: &mut DirectoryChange) {
        let mut changed = Vec::new();

        for name in work.workloads.take() {
            let new = self.pods.named(&name).map(|pod| &pod.workload);
            let old = self.directory.workloads.get(&name);
            if old == new {
                continue;
            }
            match new.cloned() {
                Some(workload) => self.directory.workloads.insert(name.clone(), workload),
                None => self.directory.workloads.remove(&name),
            };
            changed.push(name);
        }

        change.workloads.append(&mut changed.into_iter().collect());
    }
}
