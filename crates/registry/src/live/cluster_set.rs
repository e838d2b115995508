//! Kubernetes' multi-cluster services: visibility of endpoints across clusters, and services in
//! `clusterset.local` (Istio's `serviceexportcache.go` and `serviceimportcache.go`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::work::Work;
use super::{Registry, RegistryChange, RemoteRegistries};
use crate::mesh_inputs::service_of_cluster_set;
use crate::model::{Discoverability, Endpoint, Service, ServiceKey};
use navarch_api::cluster_settings::McsMode;
use navarch_api::named_table::HasName;
use navarch_api::object::NamespacedName;
use navarch_base::small_map::SmallMap;
use navarch_store::Objects;

impl Registry {
    /// The clusters in which the endpoints of a Service are visible under its own host.
    pub(super) fn discoverability(
        &self,
        objects: &Objects,
        service: &NamespacedName,
    ) -> Discoverability {
        let exists = self.services.get(service).is_some();
        match self.mesh_inputs.settings.clusters.mcs {
            McsMode::Off => Discoverability::Mesh,
            McsMode::ClusterLocal => Discoverability::OwnCluster,
            McsMode::Exports | McsMode::Hosts => exported(objects, service, exists),
        }
    }

    /// Queues the Services of changed ServiceExports.
    pub(super) fn update_exports(&self, work: &mut Work) {
        if self.mesh_inputs.settings.clusters.mcs == McsMode::Off {
            return;
        }
        for name in &work.exports {
            work.slices.extend(
                self.slices
                    .of_service(name)
                    .into_iter()
                    .map(|slice| slice.name().clone()),
            );
            work.endpoints
                .extend(self.mesh_inputs.cluster_set_key(name));
        }
    }

    /// The endpoints of this cluster under a host in `clusterset.local`; none for other hosts. They
    /// are visible in other clusters only if this one has the service, imported, and exports it.
    pub(super) fn cluster_set_endpoints(
        &self,
        objects: &Objects,
        key: &ServiceKey,
    ) -> Vec<Arc<Endpoint>> {
        if self.mesh_inputs.settings.clusters.mcs < McsMode::Hosts {
            return Vec::new();
        }

        let Some(name) = service_of_cluster_set(key) else {
            return Vec::new();
        };

        let seen = exported(objects, &name, self.imports.contains_key(&name));
        let listed = self.slices.endpoints(&name).into_iter().map(|endpoint| {
            if endpoint.discoverability == seen {
                return endpoint;
            }
            Arc::new(Endpoint {
                discoverability: seen,
                ..Endpoint::clone(&endpoint)
            })
        });

        let selected = self
            .services
            .get(&name)
            .map(|state| self.selected_entries(state))
            .unwrap_or_default();

        listed.chain(selected).collect()
    }

    /// The service of this key that a ServiceImport declares.
    pub(super) fn imported(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        if self.imports.is_empty() {
            return None;
        }
        self.imports.get(&service_of_cluster_set(key)?)
    }

    /// Rebuilds the services of these imports; `real` returns the merged Service of a name.
    pub(in super::super) fn update_imports(
        &mut self,
        objects: &Objects,
        names: &BTreeSet<NamespacedName>,
        real: impl Fn(&NamespacedName) -> Option<Arc<Service>>,
        others: &RemoteRegistries,
    ) -> RegistryChange {
        let mut work = Work::default();

        for name in names {
            let new = self.import(objects, name, &real);
            if self.imports.get(name) == new.as_ref() {
                continue;
            }

            let key = self.mesh_inputs.cluster_set_key(name);
            work.keys.extend(key.clone());
            work.endpoints.extend(key);

            if let Some(selector) = self.services.get(name).and_then(|state| state.selector()) {
                let pods = self.pods.selected(&name.namespace, selector).into_iter();
                work.pod_targets.extend(pods.map(|pod| pod.name().clone()));
            }

            match new {
                Some(new) => self.imports.insert(name.clone(), new),
                None => self.imports.remove(name),
            };
        }

        if work.keys.is_empty() {
            RegistryChange::default()
        } else {
            self.run(objects, work, others)
        }
    }

    /// The service that the import of this name declares; `None` without an address or an
    /// underlying Service.
    fn import(
        &self,
        objects: &Objects,
        name: &NamespacedName,
        real: impl Fn(&NamespacedName) -> Option<Arc<Service>>,
    ) -> Option<Arc<Service>> {
        let key = self.mesh_inputs.cluster_set_key(name)?;
        let import = objects.service_imports.get(name)?;
        let addresses: Vec<Arc<str>> = import.spec.addresses().into_iter().map(Arc::from).collect();
        let default_address = addresses.first()?.clone();
        let vips: SmallMap<_, _> = [(self.mesh_inputs.settings.cluster_id.clone(), addresses)]
            .into_iter()
            .collect();
        let real = real(name)?;
        // Aliases refer to the host of the Service, not to the one in `clusterset.local`.
        let aliases = Default::default();
        Some(Arc::new(Service {
            key,
            default_address,
            cluster_vips: vips,
            aliases,
            ..Service::clone(&real)
        }))
    }
}

/// The clusters in which endpoints are visible: all, if the service exists and is exported.
fn exported(objects: &Objects, name: &NamespacedName, exists: bool) -> Discoverability {
    match exists && objects.service_exports.get(name).is_some() {
        true => Discoverability::Mesh,
        false => Discoverability::OwnCluster,
    }
}
