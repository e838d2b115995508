//! The services, endpoints and workloads of all clusters as one picture (Istio's `serviceregistry/aggregate`).
//!
//! ```text
//! objects of the cluster that configures the mesh ─▶ its Registry ─┐
//! objects of each remote cluster ───────────────────▶ its Registry ─┴─▶ merged by host ─▶ Directory + DirectoryChange
//! ```
//!
//! Services of one namespace and name are one service, whose endpoints are those of all clusters. While there is one cluster
//! only, its registry's directory is the picture, and merging costs nothing.

mod merge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::directory::{Directory, DirectoryChange};
use super::live::{Others, Outcome, Registry};
use super::model::{Service, Workload};
use navarch_api::cluster_settings::McsMode;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::{ClusterId, Hostname};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_store::Objects;

/// The registries of all clusters, and what they make together.
///
/// After any sequence of changes the directory equals that of a fresh aggregate on the same objects.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The cluster that configures the mesh: ServiceEntries are its own.
    own: Registry,
    /// The other clusters.
    remotes: Others,
    /// Whether ServiceImports make services.
    imports: bool,
    directory: Directory,
}

/// Names of objects that were added, changed or removed, by cluster. It may name more.
#[derive(Clone, Debug, Default)]
pub struct ClusterChanges {
    /// In the cluster that configures the mesh.
    pub own: BTreeSet<ObjectRef>,
    /// In the others.
    pub remotes: BTreeMap<ClusterId, BTreeSet<ObjectRef>>,
}

impl ClusterChanges {
    /// Whether nothing is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.remotes.values().all(BTreeSet::is_empty)
    }

    /// The names of all objects of a kind, whatever their cluster.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &NamespacedName> {
        let all = std::iter::once(&self.own).chain(self.remotes.values()).flatten();
        all.filter(move |object| object.kind == kind).map(|object| &object.name)
    }
}

/// The objects of all clusters as they are now.
#[derive(Clone, Copy, Debug)]
pub struct ClusterObjects<'a> {
    /// Of the cluster that configures the mesh.
    pub own: &'a Objects,
    /// Of the others: those that are there.
    pub remotes: &'a OrdMap<ClusterId, Objects>,
}

impl Aggregate {
    /// Without objects and remote clusters, mesh config as it comes.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let imports = settings.clusters.mcs >= McsMode::Hosts;
        let own = Registry::new(settings);
        Self { own, remotes: Others::new(), imports, directory: Directory::default() }
    }

    /// All services, endpoints and workloads.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// How many endpoints of slices are left out since their pods are not known, in all clusters.
    #[must_use]
    pub fn pending_pods(&self) -> usize {
        std::iter::once(&self.own).chain(self.remotes.values()).map(Registry::pending_pods).sum()
    }

    /// Takes new mesh config and networks. Costs a fresh build where they reach services or endpoints, else nothing.
    pub fn set_mesh(
        &mut self,
        mesh: &MeshConfig,
        networks: &MeshNetworks,
        objects: ClusterObjects<'_>,
    ) -> DirectoryChange {
        let own = self.own.set_mesh(mesh, networks, objects.own, &self.remotes);
        let mut outcomes = Outcomes::of_own(own);
        for (cluster, registry) in &mut self.remotes {
            if let Some(objects) = objects.remotes.get(cluster) {
                outcomes.add(cluster, registry.follow(&self.own, objects));
            }
        }
        let touched = std::mem::take(&mut outcomes.touched);
        let again = self.own.apply(objects.own, &BTreeSet::new(), &self.remotes, &touched);
        outcomes.own(again);
        self.conclude(outcomes, BTreeSet::new(), objects)
    }

    /// Takes changes of objects, several at once, and clusters that come and go.
    pub fn apply(&mut self, objects: ClusterObjects<'_>, changed: &ClusterChanges) -> DirectoryChange {
        let mut outcomes = Outcomes::default();
        let mut imports: BTreeSet<NamespacedName> = BTreeSet::new();
        if self.imports {
            imports.extend(changed.of_kind(Kind::ServiceImport).cloned());
        }
        let gone = self.remotes.keys().filter(|cluster| !objects.remotes.contains_key(*cluster));
        for cluster in gone.cloned().collect::<Vec<_>>() {
            if let Some(registry) = self.remotes.remove(&cluster) {
                outcomes.whole(&cluster, &registry, registry.directory().change_to(&Directory::default()));
            }
        }
        for (cluster, objects) in objects.remotes {
            if let Some(registry) = self.remotes.get_mut(cluster) {
                if let Some(changed) = changed.remotes.get(cluster) {
                    outcomes.add(cluster, registry.apply(objects, changed, &Others::new(), &[]));
                }
                continue;
            }
            let registry = self.own.of_remote(cluster, objects);
            outcomes.whole(cluster, &registry, Directory::default().change_to(registry.directory()));
            if self.imports {
                imports.extend(objects.service_imports.iter().map(|import| import.meta.key()));
            }
            self.remotes.insert(cluster.clone(), registry);
        }
        let touched = std::mem::take(&mut outcomes.touched);
        outcomes.own(self.own.apply(objects.own, &changed.own, &self.remotes, &touched));
        self.conclude(outcomes, imports, objects)
    }

    /// Merges what changed, and makes the services of imports: of `imports` and of those whose Services changed.
    fn conclude(
        &mut self,
        outcomes: Outcomes,
        mut imports: BTreeSet<NamespacedName>,
        objects: ClusterObjects<'_>,
    ) -> DirectoryChange {
        let before = self.directory.clone();
        let is_alone = self.remotes.is_empty() && !outcomes.clusters;
        let mut change = self.merge(outcomes);
        if !self.imports {
            if !is_alone {
                change.settle(&before, &self.directory);
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
        let real = |name: &NamespacedName| -> Option<Arc<Service>> { merge::real_service(&directory, name, &domain) };
        let mut outcomes = Outcomes::of_own(DirectoryChange::default());
        for (cluster, registry) in &mut self.remotes {
            if let Some(objects) = objects.remotes.get(cluster) {
                outcomes.add(cluster, registry.update_imports(objects, &imports, real, &Others::new()));
            }
        }
        outcomes.own(self.own.update_imports(objects.own, &imports, real, &self.remotes));
        change.extend(self.merge(outcomes));
        change.settle(&before, &self.directory);
        change
    }
}

/// What came of a change in all clusters.
#[derive(Debug, Default)]
struct Outcomes {
    own: DirectoryChange,
    remotes: BTreeMap<ClusterId, DirectoryChange>,
    /// Workloads of remote clusters that came, changed or went.
    touched: Vec<Arc<Workload>>,
    /// Hosts of which other services are names than before.
    aliased: BTreeSet<Hostname>,
    /// Whether clusters came or went.
    clusters: bool,
}

impl Outcomes {
    /// What came of it in the cluster that configures the mesh.
    fn of_own(change: DirectoryChange) -> Self {
        Self { own: change, ..Self::default() }
    }

    /// Takes in what came of it in the cluster that configures the mesh.
    fn own(&mut self, outcome: Outcome) {
        self.own.extend(outcome.change);
        self.aliased.extend(outcome.aliased);
    }

    /// Takes in what came of it in a remote cluster.
    fn add(&mut self, cluster: &ClusterId, outcome: Outcome) {
        self.remotes.entry(cluster.clone()).or_default().extend(outcome.change);
        self.touched.extend(outcome.touched);
        self.aliased.extend(outcome.aliased);
    }

    /// Takes in that a cluster came or went.
    fn whole(&mut self, cluster: &ClusterId, registry: &Registry, change: DirectoryChange) {
        self.remotes.insert(cluster.clone(), change);
        self.touched.extend(registry.workloads().cloned());
        self.aliased.extend(registry.aliased().cloned());
        self.clusters = true;
    }
}
