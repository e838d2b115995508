//! The objects of remote clusters, brought from change to change.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;

use super::context::remote_object_facts;
use super::fact::FactKey;
use navarch_api::any_object::AnyObject;
use navarch_api::mesh::LabelSelector;
use navarch_api::names::ClusterId;
use navarch_api::object::{Kind, ObjectRef};
use navarch_store::{Discovery, DiscoveryScope, Objects};

/// The objects of all remote clusters, and what of them changed since it was last settled.
#[derive(Clone, Debug, Default)]
pub(super) struct Remotes {
    /// All objects by cluster, and which of their namespaces are discovered.
    clusters: BTreeMap<ClusterId, Discovery>,
    /// Whether translators read the workloads of remote clusters as they are.
    reads_workloads: bool,
    /// What selects namespaces.
    selectors: Vec<LabelSelector>,
    /// The objects that count, as they were last settled.
    seen: OrdMap<ClusterId, Objects>,
    /// What may have changed since.
    changed: BTreeMap<ClusterId, BTreeSet<ObjectRef>>,
}

/// What of remote clusters changed.
#[derive(Debug, Default)]
pub(super) struct RemoteChanges {
    /// Objects that were added, changed or removed.
    pub(super) objects: BTreeMap<ClusterId, BTreeSet<ObjectRef>>,
    /// Whether anything did, or clusters came or went.
    pub(super) differ: bool,
    /// Whether translators read workloads.
    reads_workloads: bool,
}

impl RemoteChanges {
    /// The facts that changed objects stand for.
    pub(super) fn facts(&self) -> impl Iterator<Item = FactKey> {
        let of = |(cluster, objects): (&ClusterId, &BTreeSet<ObjectRef>)| -> Vec<FactKey> {
            let read = objects.iter().filter(|object| is_read_by_translators(object.kind, self.reads_workloads));
            read.flat_map(|object| remote_object_facts(cluster, object)).collect()
        };
        self.objects.iter().flat_map(of)
    }
}

/// Whether objects of a kind count in remote clusters: those that istiod reads there. What configures the mesh comes from its own
/// cluster alone.
#[must_use]
pub fn counts_in_remotes(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Namespace
            | Kind::Node
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Pod
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::WorkloadEntry
            | Kind::KubernetesGateway
            | Kind::ServiceExport
            | Kind::ServiceImport
    )
}

/// Whether translators read objects of a kind in remote clusters: those that workloads are made of only where ztunnel gets them.
fn is_read_by_translators(kind: Kind, workloads: bool) -> bool {
    matches!(kind, Kind::Secret | Kind::Service | Kind::Namespace | Kind::KubernetesGateway)
        || workloads && matches!(kind, Kind::Pod | Kind::Node | Kind::EndpointSlice | Kind::WorkloadEntry)
}

impl Remotes {
    /// None yet.
    pub(super) fn new(reads_workloads: bool) -> Self {
        Self { reads_workloads, ..Self::default() }
    }

    /// The objects that count by cluster, as they were last settled.
    pub(super) fn seen(&self) -> &OrdMap<ClusterId, Objects> {
        &self.seen
    }

    /// Puts an object in place of the one of its name.
    pub(super) fn put(&mut self, cluster: ClusterId, object: AnyObject) {
        if counts_in_remotes(object.kind()) {
            let changed = self.changed.entry(cluster.clone()).or_default();
            of(&mut self.clusters, cluster, &self.selectors).put(object, changed);
        }
    }

    /// Takes an object away.
    pub(super) fn remove(&mut self, cluster: &ClusterId, name: &ObjectRef) {
        let changed = self.changed.entry(cluster.clone()).or_default();
        if let Some(objects) = self.clusters.get_mut(cluster) {
            objects.remove(name, changed);
        }
    }

    /// Puts objects in place of all that a cluster had.
    pub(super) fn reset(&mut self, cluster: ClusterId, objects: Vec<AnyObject>) {
        let changed = self.changed.entry(cluster.clone()).or_default();
        if let Some(before) = self.clusters.remove(&cluster) {
            changed.extend(before.seen().all_names().filter(|name| counts_in_remotes(name.kind)));
        }
        let discovery = of(&mut self.clusters, cluster, &self.selectors);
        for object in objects.into_iter().filter(|object| counts_in_remotes(object.kind())) {
            discovery.put(object, changed);
        }
    }

    /// Takes a cluster away with all that it has.
    pub(super) fn forget(&mut self, cluster: &ClusterId) {
        self.clusters.remove(cluster);
        self.changed.entry(cluster.clone()).or_default();
    }

    /// Takes other selectors of namespaces.
    pub(super) fn select(&mut self, selectors: &[LabelSelector]) {
        self.selectors = selectors.to_vec();
        for (cluster, objects) in &mut self.clusters {
            objects.select(selectors, self.changed.entry(cluster.clone()).or_default());
        }
    }

    /// Says what changed since it was last asked. What goes and comes back is no change.
    pub(super) fn settle(&mut self) -> RemoteChanges {
        let mut changes = RemoteChanges { reads_workloads: self.reads_workloads, ..RemoteChanges::default() };
        for (cluster, mut changed) in std::mem::take(&mut self.changed) {
            let Some(objects) = self.clusters.get(&cluster) else {
                let before = self.seen.remove(&cluster);
                changes.differ |= before.is_some();
                let gone = before
                    .iter()
                    .flat_map(Objects::all_names)
                    .filter(|name| is_read_by_translators(name.kind, self.reads_workloads));
                changes.objects.insert(cluster, gone.collect());
                continue;
            };
            let now = objects.seen().clone();
            match self.seen.get(&cluster) {
                Some(before) => changed.retain(|object| now.differs(before, object)),
                None => changes.differ = true,
            }
            changes.differ |= !changed.is_empty();
            self.seen.insert(cluster.clone(), now);
            changes.objects.insert(cluster, changed);
        }
        changes
    }
}

/// The objects of a cluster, be it new.
fn of<'a>(
    clusters: &'a mut BTreeMap<ClusterId, Discovery>,
    cluster: ClusterId,
    selectors: &[LabelSelector],
) -> &'a mut Discovery {
    clusters.entry(cluster).or_insert_with(|| {
        // In remote clusters all kinds are read of the API server, and selected alike.
        let mut objects = Discovery::new(DiscoveryScope::Everything);
        objects.select(selectors, &mut BTreeSet::new());
        objects
    })
}
