//! The registry of a cluster: its state between changes, and the steps of an update.
//!
//! ```text
//! changed objects ─▶ pods, WorkloadEntries ─▶ services ─▶ slices, ServiceEntries' endpoints
//!                                                 └─▶ slots, endpoints by service ─▶ targets, gateways ─▶ Directory
//! ```
//!
//! Each step processes the work that earlier steps queued, recomputes values, compares them with
//! the previous ones, and queues work for later steps only if they differ. So a changed pod costs
//! its slices and its services' endpoints, nothing else.

mod cluster_set;
mod endpoints;
mod gateways;
mod names;
mod queue;
mod services;
mod slices;
mod targets;
mod work;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use self::names::Names;
use self::work::Work;
use super::directory::{Directory, DirectoryChange, NetworkGateway};
use super::entry_index::EntryIndex;
use super::entry_services::EntryServices;
use super::mesh_inputs::{MeshInputs, Role};
use super::model::{Labels, Resolution, Service, ServiceEndpoints, ServiceKey, Workload};
use super::pod_index::PodIndex;
use super::selector_index::{SelectorIndex, selects};
use super::service_entry_endpoints::EntryEndpoints;
use super::slice_endpoints::SliceRules;
use super::slice_index::SliceIndex;
use super::workload_labels::WorkloadLabels;
use navarch_api::istio::ServiceEntry;
use navarch_api::kubernetes::Service as Declared;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::named_table::{HasName, NamedTable};
use navarch_api::names::{ClusterId, Hostname, Namespace};
use navarch_api::object::{Kind, NamespacedName, Object, ObjectRef};
use navarch_api::settings::Settings;
use navarch_api::shared_texts::SharedTexts;
use navarch_store::Objects;
use navarch_tables::hash::KeyedMap;
use navarch_tables::hash_index::HashIndex;

/// Services, endpoints and workloads of one cluster, updated incrementally from its objects.
///
/// After any sequence of changes the directory equals that of a fresh registry on the same objects.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    /// Settings, mesh config and networks.
    mesh_inputs: MeshInputs,
    /// The resulting directory.
    directory: Directory,
    /// Number of endpoints in EndpointSlices that are omitted because their pods are missing.
    pending_pods: usize,
    pods: PodIndex,
    /// WorkloadEntries.
    entries: EntryIndex,
    /// EndpointSlices.
    slices: SliceIndex,
    /// Kubernetes Services.
    services: NamedTable<ServiceState>,
    service_selectors: SelectorIndex,
    service_entries: NamedTable<ServiceEntryState>,
    entry_selectors: SelectorIndex,
    /// ServiceEntries by the addresses of their endpoints.
    entry_addresses: HashIndex,
    /// The objects that declare each host.
    names: Names,
    /// Network gateways by Kubernetes Service.
    gateways: KeyedMap<NamespacedName, BTreeSet<NetworkGateway>>,
    /// Network gateways by Gateway of the Gateway API.
    gateway_objects: KeyedMap<NamespacedName, BTreeSet<NetworkGateway>>,
    /// Services in `clusterset.local`, by the name of their ServiceImport.
    imports: BTreeMap<NamespacedName, Arc<Service>>,
    /// Texts that workloads repeat.
    texts: SharedTexts,
}

/// The registries of remote clusters.
pub(super) type RemoteRegistries = BTreeMap<ClusterId, Registry>;

/// The outcome of a change.
#[derive(Debug, Default)]
pub(super) struct RegistryChange {
    pub(super) change: DirectoryChange,
    /// Added, changed or removed workloads of a remote cluster, in their versions before and after.
    pub(super) touched: Vec<Arc<Workload>>,
    /// Hosts with changed aliases.
    pub(super) aliased: BTreeSet<Hostname>,
}

/// A Kubernetes Service and the values derived from it.
#[derive(Clone, Debug)]
struct ServiceState {
    object: Arc<Object<Declared>>,
    /// The service, without data from other objects.
    service: Arc<Service>,
    /// How its slices are read.
    rules: SliceRules,
}

/// A ServiceEntry and the values derived from it.
#[derive(Clone, Debug)]
struct ServiceEntryState {
    object: Arc<Object<ServiceEntry>>,
    /// Its workload selector, if any.
    selector: Option<Labels>,
    /// One for each host and address.
    services: EntryServices,
    endpoints: EntryEndpoints,
    /// Number of selected workloads beyond the limit, which get no endpoints.
    left_out: usize,
    /// The collected endpoints, which all hosts share, with the number of services of a host that
    /// they are for.
    gathered: OnceLock<(usize, Option<Arc<ServiceEndpoints>>)>,
}

impl Registry {
    /// A registry without objects, with default mesh config.
    #[must_use]
    pub(super) fn new(settings: Settings) -> Self {
        let objects = Objects::default();
        Self::of_world(MeshInputs::new(
            settings,
            &MeshConfig::default(),
            &MeshNetworks::default(),
            &objects,
        ))
    }

    /// An empty registry in this world.
    fn of_world(mesh_inputs: MeshInputs) -> Self {
        Self {
            mesh_inputs,
            directory: Directory::default(),
            pending_pods: 0,
            pods: PodIndex::default(),
            entries: EntryIndex::default(),
            slices: SliceIndex::default(),
            services: NamedTable::default(),
            service_selectors: SelectorIndex::default(),
            service_entries: NamedTable::default(),
            entry_selectors: SelectorIndex::default(),
            entry_addresses: HashIndex::default(),
            names: Names::default(),
            gateways: KeyedMap::default(),
            gateway_objects: KeyedMap::default(),
            imports: BTreeMap::new(),
            texts: SharedTexts::default(),
        }
    }

    /// The registry of another cluster with these objects, where this one configures the mesh.
    #[must_use]
    pub(super) fn of_remote(&self, cluster: &ClusterId, objects: &Objects) -> Self {
        let mut remote = Self::of_world(self.mesh_inputs.of_remote(cluster, objects));
        remote.run(objects, Work::everything(objects), &RemoteRegistries::new());
        remote
    }

    /// All services, endpoints and workloads.
    #[must_use]
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Number of endpoints in EndpointSlices that are omitted because their pods are missing.
    #[must_use]
    pub(super) fn pending_pods(&self) -> usize {
        self.pending_pods
    }

    /// Sets mesh config and networks. Rebuilds everything if they affect services or endpoints.
    pub(super) fn set_mesh(
        &mut self,
        mesh: &MeshConfig,
        networks: &MeshNetworks,
        objects: &Objects,
        others: &RemoteRegistries,
    ) -> DirectoryChange {
        let mesh_inputs =
            MeshInputs::new(self.mesh_inputs.settings.clone(), mesh, networks, objects);
        if mesh_inputs == self.mesh_inputs {
            DirectoryChange::default()
        } else {
            self.rebuild(mesh_inputs, objects, others).change
        }
    }

    /// Sets the mesh-wide configuration of a remote cluster's registry to that of the configuration
    /// cluster.
    pub(super) fn follow(&mut self, config: &Self, objects: &Objects) -> RegistryChange {
        let mesh_inputs = config
            .mesh_inputs
            .of_remote(&self.mesh_inputs.settings.cluster_id, objects);
        if mesh_inputs == self.mesh_inputs {
            RegistryChange::default()
        } else {
            self.rebuild(mesh_inputs, objects, &RemoteRegistries::new())
        }
    }

    /// Applies changes of objects. `objects` is the new state, `changed` are objects that may have
    /// been added, changed or removed. `others` are the registries of remote clusters, whose
    /// workloads ServiceEntries select, and `touched` the changed ones of these workloads.
    pub(super) fn apply(
        &mut self,
        objects: &Objects,
        changed: &BTreeSet<ObjectRef>,
        others: &RemoteRegistries,
        touched: &[Arc<Workload>],
    ) -> RegistryChange {
        // The network label of the system namespace affects every endpoint, as does the trust
        // domain of a remote cluster.
        let system = &self.mesh_inputs.settings.system_namespace;
        let is_remote = self.mesh_inputs.role == Role::Remote;
        let moves = |object: &ObjectRef| {
            object.kind == Kind::Namespace && *object.name.name == *system.as_str()
                || is_remote
                    && object.kind == Kind::ConfigMap
                    && object.name == self.mesh_inputs.mesh_config_map()
        };

        if changed.iter().any(moves) {
            let mesh_inputs = self.mesh_inputs.moved_to(objects);
            if mesh_inputs != self.mesh_inputs {
                return self.rebuild(mesh_inputs, objects, others);
            }
        }

        let mut work = Work::sort(changed);

        for workload in touched {
            let entries = self.entries_selecting(&workload.namespace, workload.labels());
            work.entry_endpoints
                .extend(entries.into_iter().map(|entry| entry.name().clone()));
        }

        self.run(objects, work, others)
    }

    /// Runs all steps.
    fn run(
        &mut self,
        objects: &Objects,
        mut work: Work,
        others: &RemoteRegistries,
    ) -> RegistryChange {
        let mut change = DirectoryChange::default();
        self.spread(objects, &mut work);
        self.update_pods(objects, &mut work);
        self.update_entries(objects, &mut work);
        self.update_services(objects, &mut work);
        self.update_exports(&mut work);
        self.update_service_entries(objects, &mut work);
        self.update_slices(objects, &mut work);

        self.update_entry_endpoints(&mut work, others);
        self.update_slots(&mut work, &mut change);
        self.update_endpoints(objects, &mut work, &mut change);
        self.update_targets(&mut work, &mut change);
        self.update_workloads(&mut work, &mut change);
        self.update_gateways(objects, &work, &mut change);
        RegistryChange {
            change,
            touched: work.touched,
            aliased: work.aliased,
        }
    }

    /// Rebuilds everything with other mesh-wide configuration, and returns the changes.
    fn rebuild(
        &mut self,
        mesh_inputs: MeshInputs,
        objects: &Objects,
        others: &RemoteRegistries,
    ) -> RegistryChange {
        let mut fresh = Self::of_world(mesh_inputs);
        let ran = fresh.run(objects, Work::everything(objects), others);
        let change = self.directory.change_to(&fresh.directory);
        let mut aliased = ran.aliased;
        aliased.extend(self.names.aliased().cloned());
        *self = fresh;
        RegistryChange {
            change,
            touched: ran.touched,
            aliased,
        }
    }

    /// All workloads that ServiceEntries may select.
    pub(super) fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.pods
            .iter()
            .map(|pod| &pod.workload)
            .chain(self.entries.iter().map(|entry| &entry.workload))
    }

    /// The DNS suffix of Kubernetes services.
    pub(super) fn domain_suffix(&self) -> &str {
        &self.mesh_inputs.settings.domain_suffix
    }

    /// The aliases of a host in this cluster, sorted.
    #[must_use]
    pub(super) fn aliases_of(&self, host: &Hostname) -> &[ServiceKey] {
        self.names.aliases_of(host)
    }

    /// The hosts that have an alias in this cluster.
    pub(super) fn hosts_with_alias(&self, alias: &ServiceKey) -> impl Iterator<Item = &Hostname> {
        let slot = self.directory.services.get(alias);
        let is_alias = slot.is_some_and(|slot| {
            slot.iter()
                .any(|service| service.resolution == Resolution::Alias)
        });
        is_alias
            .then(|| self.names.hosts_with_alias(alias))
            .into_iter()
            .flatten()
    }

    /// The hosts with aliases in this cluster.
    pub(super) fn aliased(&self) -> impl Iterator<Item = &Hostname> {
        self.names.aliased()
    }

    /// The key of a Kubernetes Service, whether or not it exists.
    fn key_of(&self, service: &NamespacedName) -> ServiceKey {
        let known = self
            .services
            .get(service)
            .map(|state| state.service.key.clone());
        let namespace = service.namespace.clone();
        known.unwrap_or_else(|| ServiceKey {
            namespace,
            hostname: self.mesh_inputs.host_of(service),
        })
    }

    /// The Kubernetes Services of a namespace that select these labels, by name.
    fn services_selecting(
        &self,
        namespace: &Namespace,
        labels: WorkloadLabels<'_>,
    ) -> Vec<&ServiceState> {
        self.services.by_name(
            &self.service_selectors.candidates(namespace, labels),
            |state| {
                let is_here = state.object.meta.key.namespace == *namespace;
                is_here
                    && state
                        .selector()
                        .is_some_and(|selector| selects(selector, labels))
            },
        )
    }

    /// The ServiceEntries of a namespace that select these labels, by name.
    fn entries_selecting(
        &self,
        namespace: &Namespace,
        labels: WorkloadLabels<'_>,
    ) -> Vec<&ServiceEntryState> {
        self.service_entries.by_name(
            &self.entry_selectors.candidates(namespace, labels),
            |state| {
                let is_here = state.object.meta.key.namespace == *namespace;
                is_here
                    && state
                        .selector
                        .as_ref()
                        .is_some_and(|selector| selects(selector, labels))
            },
        )
    }
}

impl ServiceState {
    /// Its pod selector; `None` if empty, which selects no pods.
    fn selector(&self) -> Option<&Labels> {
        Some(&self.object.spec.selector).filter(|selector| !selector.is_empty())
    }
}

impl HasName for ServiceState {
    fn name(&self) -> &NamespacedName {
        &self.object.meta.key
    }
}

impl HasName for ServiceEntryState {
    fn name(&self) -> &NamespacedName {
        &self.object.meta.key
    }
}

#[cfg(test)]
mod tests;
