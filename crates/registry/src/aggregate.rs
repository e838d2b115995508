//! The services, endpoints and workloads of all clusters merged (Istio's
//! `serviceregistry/aggregate`).
//!
//! ```text
//! objects of the cluster that configures the mesh ─▶ its Registry ─┐
//! objects of each remote cluster ───────────────────▶ its Registry ─┴─▶ merged by host ─▶ Directory + DirectoryChange
//! ```
//!
//! Services of one namespace and name are one service, whose endpoints are those of all clusters.
//! While there is one cluster only, its registry's directory is used as it is, and merging costs
//! nothing.

mod merge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::directory::{Directory, DirectoryChange};
use super::live::{Registry, RegistryChange, RemoteRegistries};
use super::model::{Service, Workload};
use navarch_api::cluster_settings::McsMode;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::{ClusterId, Hostname};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_store::Objects;

/// The registries of all clusters, and the merged directory.
///
/// After any sequence of changes the directory equals that of a fresh aggregate on the same
/// objects.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The configuration cluster. ServiceEntries of other clusters are not read.
    own: Registry,
    /// The remote clusters.
    remotes: RemoteRegistries,
    /// Whether ServiceImports declare services.
    imports: bool,
    directory: Directory,
}

/// Objects that may have been added, changed or removed, by cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterChanges {
    /// Changes in the configuration cluster.
    pub own: BTreeSet<ObjectRef>,
    /// Changes in the other clusters; those without changes may be absent.
    pub remotes: BTreeMap<ClusterId, BTreeSet<ObjectRef>>,
}

impl ClusterChanges {
    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.remotes.values().all(BTreeSet::is_empty)
    }

    /// The names of all objects of a kind, whatever their cluster.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &NamespacedName> {
        let all = std::iter::once(&self.own)
            .chain(self.remotes.values())
            .flatten();
        all.filter(move |object| object.kind == kind)
            .map(|object| &object.name)
    }
}

/// The objects of all clusters as they are now.
#[derive(Clone, Copy, Debug)]
pub struct ClusterObjects<'a> {
    /// Objects of the configuration cluster.
    pub own: &'a Objects,
    /// Objects of each remote cluster. A cluster that is absent is removed from the directory.
    pub remotes: &'a OrdMap<ClusterId, Objects>,
}

impl Aggregate {
    /// An aggregate without objects and remote clusters, with default mesh config.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let imports = settings.clusters.mcs >= McsMode::Hosts;
        let own = Registry::new(settings);
        Self {
            own,
            remotes: RemoteRegistries::new(),
            imports,
            directory: Directory::default(),
        }
    }

    /// All services, endpoints and workloads.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Number of endpoints in EndpointSlices of all clusters that are omitted because their pods
    /// are missing.
    #[must_use]
    pub fn pending_pods(&self) -> usize {
        std::iter::once(&self.own)
            .chain(self.remotes.values())
            .map(Registry::pending_pods)
            .sum()
    }

    /// Sets mesh config and networks. Rebuilds the directory if they affect services or endpoints.
    pub fn set_mesh(
        &mut self,
        mesh: &MeshConfig,
        networks: &MeshNetworks,
        objects: ClusterObjects<'_>,
    ) -> DirectoryChange {
        let own = self
            .own
            .set_mesh(mesh, networks, objects.own, &self.remotes);
        let mut outcomes = RegistryChanges::of_own(own);
        for (cluster, registry) in &mut self.remotes {
            if let Some(objects) = objects.remotes.get(cluster) {
                outcomes.add(cluster, registry.follow(&self.own, objects));
            }
        }
        let touched = std::mem::take(&mut outcomes.touched);
        let again = self
            .own
            .apply(objects.own, &BTreeSet::new(), &self.remotes, &touched);
        outcomes.own(again);
        self.conclude(outcomes, BTreeSet::new(), objects)
    }

    /// Applies changes of objects, and added or removed clusters.
    pub fn apply(
        &mut self,
        objects: ClusterObjects<'_>,
        changed: &ClusterChanges,
    ) -> DirectoryChange {
        let mut outcomes = RegistryChanges::default();
        let mut imports: BTreeSet<NamespacedName> = BTreeSet::new();
        if self.imports {
            imports.extend(changed.of_kind(Kind::ServiceImport).cloned());
        }

        let gone = self
            .remotes
            .keys()
            .filter(|cluster| !objects.remotes.contains_key(*cluster));
        for cluster in gone.cloned().collect::<Vec<_>>() {
            if let Some(registry) = self.remotes.remove(&cluster) {
                outcomes.whole(
                    &cluster,
                    &registry,
                    registry.directory().change_to(&Directory::default()),
                );
            }
        }

        for (cluster, objects) in objects.remotes {
            if let Some(registry) = self.remotes.get_mut(cluster) {
                if let Some(changed) = changed.remotes.get(cluster) {
                    outcomes.add(
                        cluster,
                        registry.apply(objects, changed, &RemoteRegistries::new(), &[]),
                    );
                }
                continue;
            }

            let registry = self.own.of_remote(cluster, objects);
            outcomes.whole(
                cluster,
                &registry,
                Directory::default().change_to(registry.directory()),
            );

            if self.imports {
                imports.extend(
                    objects
                        .service_imports
                        .iter()
                        .map(|import| import.meta.key()),
                );
            }

            self.remotes.insert(cluster.clone(), registry);
        }

        let touched = std::mem::take(&mut outcomes.touched);
        outcomes.own(
            self.own
                .apply(objects.own, &changed.own, &self.remotes, &touched),
        );

        self.conclude(outcomes, imports, objects)
    }

    /// Merges the changes, and updates the services of imports: of `imports` and of those whose
    /// Services changed.
    fn conclude(
        &mut self,
        outcomes: RegistryChanges,
        mut imports: BTreeSet<NamespacedName>,
        objects: ClusterObjects<'_>,
    ) -> DirectoryChange {
        let before = self.directory.clone();
        let is_alone = self.remotes.is_empty() && !outcomes.clusters;
        let mut change = self.merge(outcomes);

        if !self.imports {
            if !is_alone {
                change.drop_unchanged(&before, &self.directory);
            }
            return change;
        }

        for key in &change.services {
            // Names of Services have no dots.
            let name = key.hostname.as_str().split('.').next().unwrap_or_default();
            imports.insert(NamespacedName::new(key.namespace.as_str(), name));
        }

        let directory = self.directory.clone();
        let domain = self.own.domain_suffix().to_owned();
        let real = |name: &NamespacedName| -> Option<Arc<Service>> {
            merge::real_service(&directory, name, &domain)
        };
        let mut outcomes = RegistryChanges::of_own(DirectoryChange::default());

        for (cluster, registry) in &mut self.remotes {
            if let Some(objects) = objects.remotes.get(cluster) {
                outcomes.add(
                    cluster,
                    registry.update_imports(objects, &imports, real, &RemoteRegistries::new()),
                );
            }
        }

        outcomes.own(
            self.own
                .update_imports(objects.own, &imports, real, &self.remotes),
        );
        change.extend(self.merge(outcomes));
        change.drop_unchanged(&before, &self.directory);

        change
    }
}

/// The outcomes of a change in all clusters.
#[derive(Debug, Default)]
struct RegistryChanges {
    own: DirectoryChange,
    remotes: BTreeMap<ClusterId, DirectoryChange>,
    /// Added, changed or removed workloads of remote clusters.
    touched: Vec<Arc<Workload>>,
    /// Hosts with changed aliases.
    aliased: BTreeSet<Hostname>,
    /// Whether clusters were added or removed.
    clusters: bool,
}

impl RegistryChanges {
    /// The outcome in the configuration cluster.
    fn of_own(change: DirectoryChange) -> Self {
        Self {
            own: change,
            ..Self::default()
        }
    }

    /// Adds the outcome of the configuration cluster.
    fn own(&mut self, outcome: RegistryChange) {
        self.own.extend(outcome.change);
        self.aliased.extend(outcome.aliased);
    }

    /// Adds the outcome of a remote cluster.
    fn add(&mut self, cluster: &ClusterId, outcome: RegistryChange) {
        self.remotes
            .entry(cluster.clone())
            .or_default()
            .extend(outcome.change);
        self.touched.extend(outcome.touched);
        self.aliased.extend(outcome.aliased);
    }

    /// Adds the outcome of an added or removed cluster.
    fn whole(&mut self, cluster: &ClusterId, registry: &Registry, change: DirectoryChange) {
        self.remotes.insert(cluster.clone(), change);
        self.touched.extend(registry.workloads().cloned());
        self.aliased.extend(registry.aliased().cloned());
        self.clusters = true;
    }
}
