//! The registry at work: what it keeps between changes, and the order in which a change walks through it.
//!
//! ```text
//! changed objects ─▶ pods, WorkloadEntries ─▶ services ─▶ slices, ServiceEntries' endpoints
//!                                                 └─▶ slots, endpoints by service ─▶ targets, gateways ─▶ Directory
//! ```
//!
//! Each step takes the work that earlier ones left, makes values anew, compares them with what was there, and leaves
//! work for later steps only where they differ. So a pod costs its slices and its services' endpoints, nothing else.

mod endpoints;
mod gateways;
mod names;
mod services;
mod slices;
mod targets;
mod work;
mod workloads;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use self::names::Names;
use self::work::Work;
use super::directory::{Directory, DirectoryChange, NetworkGateway};
use super::entry_index::EntryIndex;
use super::entry_services::EntryServices;
use super::model::{Labels, Service, ServiceEndpoints, ServiceKey};
use super::pod_index::PodIndex;
use super::selector_index::{SelectorIndex, selects};
use super::service_entry_endpoints::EntryEndpoints;
use super::slice_endpoints::SliceRules;
use super::slice_index::SliceIndex;
use super::world::World;
use navarch_api::hash::KeyedMap;
use navarch_api::hash_index::HashIndex;
use navarch_api::istio::ServiceEntry;
use navarch_api::kubernetes::Service as Declared;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::named_table::{HasName, NamedTable};
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, NamespacedName, Object, ObjectRef};
use navarch_api::settings::Settings;
use navarch_api::shared_texts::SharedTexts;
use navarch_store::Objects;

/// Services, endpoints and workloads, kept up to date with the objects.
///
/// After any sequence of changes the directory equals that of a fresh registry on the same objects.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Settings, mesh config and networks.
    world: World,
    /// What is shown.
    directory: Directory,
    /// Pods.
    pods: PodIndex,
    /// WorkloadEntries.
    entries: EntryIndex,
    /// EndpointSlices.
    slices: SliceIndex,
    /// Kubernetes Services.
    services: NamedTable<ServiceState>,
    service_selectors: SelectorIndex,
    /// ServiceEntries.
    service_entries: NamedTable<ServiceEntryState>,
    entry_selectors: SelectorIndex,
    /// ServiceEntries by the addresses of their endpoints.
    entry_addresses: HashIndex,
    /// Who declares which host.
    names: Names,
    /// Gateways between networks, by the Kubernetes Service that they are.
    gateways: KeyedMap<NamespacedName, BTreeSet<NetworkGateway>>,
    /// Texts that workloads repeat.
    texts: SharedTexts,
}

/// A Kubernetes Service and what was made of it.
#[derive(Clone, Debug)]
struct ServiceState {
    object: Arc<Object<Declared>>,
    /// The service, without what other objects add to it.
    service: Arc<Service>,
    /// How its slices are read.
    rules: SliceRules,
}

/// A ServiceEntry and what was made of it.
#[derive(Clone, Debug)]
struct ServiceEntryState {
    object: Arc<Object<ServiceEntry>>,
    /// What selects its workloads, if something does.
    selector: Option<Labels>,
    /// One for each host and address.
    services: EntryServices,
    endpoints: EntryEndpoints,
    /// How many workloads that it selects have no endpoints, as they are too many.
    left_out: usize,
    /// The endpoints of one host, gathered, which all hosts share; with how many services of a host they are for.
    gathered: OnceLock<(usize, Option<Arc<ServiceEndpoints>>)>,
}

impl Registry {
    /// An empty registry: no objects, mesh config as it comes.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let objects = Objects::default();
        Self::of_world(World::new(settings, &MeshConfig::default(), &MeshNetworks::default(), &objects))
    }

    /// An empty registry in this world.
    fn of_world(world: World) -> Self {
        Self {
            world,
            directory: Directory::default(),
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
            texts: SharedTexts::default(),
        }
    }

    /// All services, endpoints and workloads.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Takes new mesh config and networks. Costs a fresh build where they reach services or endpoints, else nothing.
    pub fn set_mesh(&mut self, mesh: &MeshConfig, networks: &MeshNetworks, objects: &Objects) -> DirectoryChange {
        let world = World::new(self.world.settings.clone(), mesh, networks, objects);
        if world == self.world { DirectoryChange::default() } else { self.rebuild(world, objects) }
    }

    /// Takes changes of objects, several at once. `objects` hold the new state, `changed` names what was added, changed
    /// or removed; it may name more.
    pub fn apply(&mut self, objects: &Objects, changed: &BTreeSet<ObjectRef>) -> DirectoryChange {
        // The network label of the system namespace reaches every endpoint.
        let system = &self.world.settings.system_namespace;
        if changed.iter().any(|object| object.kind == Kind::Namespace && *object.name.name == *system.as_str()) {
            let world = self.world.moved_to(objects);
            if world != self.world {
                return self.rebuild(world, objects);
            }
        }
        self.run(objects, Work::sort(changed))
    }

    /// Walks through all steps.
    fn run(&mut self, objects: &Objects, mut work: Work) -> DirectoryChange {
        let mut change = DirectoryChange::default();
        self.spread(objects, &mut work);
        self.update_pods(objects, &mut work);
        self.update_entries(objects, &mut work);
        self.update_services(objects, &mut work);
        self.update_service_entries(objects, &mut work);
        self.update_slices(objects, &mut work);
        self.update_entry_endpoints(&mut work);
        self.update_slots(&mut work, &mut change);
        self.update_endpoints(&work, &mut change);
        self.update_targets(&work, &mut change);
        self.update_workloads(&work, &mut change);
        self.update_gateways(objects, &work, &mut change);
        change
    }

    /// Starts afresh in another world, and tells what that changed.
    fn rebuild(&mut self, world: World, objects: &Objects) -> DirectoryChange {
        let mut fresh = Self::of_world(world);
        fresh.run(objects, Work::everything(objects));
        let change = self.directory.change_to(&fresh.directory);
        *self = fresh;
        change
    }

    /// The key of a Kubernetes Service, be it there or not.
    fn key_of(&self, service: &NamespacedName) -> ServiceKey {
        let known = self.services.get(service).map(|state| state.service.key.clone());
        let namespace = service.namespace.clone();
        known.unwrap_or_else(|| ServiceKey { namespace, hostname: self.world.host_of(service) })
    }

    /// The Kubernetes Services of a namespace that select these labels, by name.
    fn services_selecting(&self, namespace: &Namespace, labels: &Labels) -> Vec<&ServiceState> {
        self.services.by_name(&self.service_selectors.candidates(namespace, labels), |state| {
            let is_here = state.object.meta.key.namespace == *namespace;
            is_here && state.selector().is_some_and(|selector| selects(selector, labels))
        })
    }

    /// The ServiceEntries of a namespace that select these labels, by name.
    fn entries_selecting(&self, namespace: &Namespace, labels: &Labels) -> Vec<&ServiceEntryState> {
        self.service_entries.by_name(&self.entry_selectors.candidates(namespace, labels), |state| {
            let is_here = state.object.meta.key.namespace == *namespace;
            is_here && state.selector.as_ref().is_some_and(|selector| selects(selector, labels))
        })
    }
}

impl ServiceState {
    /// What selects its pods. An empty selector selects nobody.
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
