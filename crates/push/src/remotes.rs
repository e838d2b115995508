//! The objects of remote clusters, updated change by change.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;

use super::context::remote_object_facts;
use super::fact::FactKey;
use navarch_api::any_object::AnyObject;
use navarch_api::mesh::LabelSelector;
use navarch_api::names::ClusterId;
use navarch_api::object::{Kind, ObjectRef};
use navarch_store::{Discovery, DiscoveryScope, Objects};

/// The objects of all remote clusters, and the changes since the last call of `take_changes`.
#[derive(Clone, Debug, Default)]
pub(super) struct Remotes {
    /// All objects by cluster, and the discovered namespaces.
    clusters: BTreeMap<ClusterId, Discovery>,
    /// Whether translators read the workload objects of remote clusters.
    reads_workloads: bool,
    /// The discovery selectors.
    selectors: Vec<LabelSelector>,
    /// The objects of discovered namespaces at the last call of `take_changes`.
    seen: OrdMap<ClusterId, Objects>,
    /// Objects that may have changed since.
    changed: BTreeMap<ClusterId, BTreeSet<ObjectRef>>,
}

/// The changes of remote clusters.
#[derive(Debug, Default)]
pub(super) struct RemoteChanges {
    /// Objects that were added, changed or removed.
    pub(super) objects: BTreeMap<ClusterId, BTreeSet<ObjectRef>>,
    /// Whether there are changes, added or removed clusters included.
    pub(super) differ: bool,
    /// Whether translators read workloads.
    reads_workloads: bool,
}

impl RemoteChanges {
    /// The facts that changed objects affect.
    pub(super) fn facts(&self) -> impl Iterator<Item = FactKey> {
        let of = |(cluster, objects): (&ClusterId, &BTreeSet<ObjectRef>)| -> Vec<FactKey> {
            let read = objects
                .iter()
                .filter(|object| is_read_by_translators(object.kind, self.reads_workloads));
            read.flat_map(|object| remote_object_facts(cluster, object))
                .collect()
        };
        self.objects.iter().flat_map(of)
    }
}

/// Whether objects of a kind are read in remote clusters, as by istiod. Mesh configuration comes
/// from the configuration cluster only.
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

/// Whether translators read objects of a kind in remote clusters: workload kinds only if ztunnel
/// gets them.
fn is_read_by_translators(kind: Kind, workloads: bool) -> bool {
    matches!(
        kind,
        Kind::Secret | Kind::Service | Kind::Namespace | Kind::KubernetesGateway
    ) || workloads
        && matches!(
            kind,
            Kind::Pod | Kind::Node | Kind::EndpointSlice | Kind::WorkloadEntry
        )
}

impl Remotes {
    /// No remote clusters.
    pub(super) fn new(reads_workloads: bool) -> Self {
        Self {
            reads_workloads,
            ..Self::default()
        }
    }

    /// The objects of discovered namespaces by cluster, at the last call of `take_changes`.
    pub(super) fn seen(&self) -> &OrdMap<ClusterId, Objects> {
        &self.seen
    }

    /// Adds or replaces an object.
    pub(super) fn put(&mut self, cluster: ClusterId, object: AnyObject) {
        if counts_in_remotes(object.kind()) {
            let changed = self.changed.entry(cluster.clone()).or_default();
            of(&mut self.clusters, cluster, &self.selectors).put(object, changed);
        }
    }

    pub(super) fn remove(&mut self, cluster: &ClusterId, name: &ObjectRef) {
        let changed = self.changed.entry(cluster.clone()).or_default();
        if let Some(objects) = self.clusters.get_mut(cluster) {
            objects.remove(name, changed);
        }
    }

    /// Replaces all objects of a cluster.
    pub(super) fn reset(&mut self, cluster: ClusterId, objects: Vec<AnyObject>) {
        let changed = self.changed.entry(cluster.clone()).or_default();
        if let Some(before) = self.clusters.remove(&cluster) {
            changed.extend(
                before
                    .seen()
                    .all_names()
                    .filter(|name| counts_in_remotes(name.kind)),
            );
        }
        let discovery = of(&mut self.clusters, cluster, &self.selectors);
        for object in objects
            .into_iter()
            .filter(|object| counts_in_remotes(object.kind()))
        {
            discovery.put(object, changed);
        }
    }

    /// Removes a cluster with all of its objects.
    pub(super) fn forget(&mut self, cluster: &ClusterId) {
        self.clusters.remove(cluster);
        self.changed.entry(cluster.clone()).or_default();
    }

    /// Sets the discovery selectors.
    pub(super) fn select(&mut self, selectors: &[LabelSelector]) {
        self.selectors = selectors.to_vec();
        for (cluster, objects) in &mut self.clusters {
            objects.select(selectors, self.changed.entry(cluster.clone()).or_default());
        }
    }

    /// The changes since the last call. An object that is removed and added again unchanged is not
    /// a change.
    pub(super) fn take_changes(&mut self) -> RemoteChanges {
        let mut changes = RemoteChanges {
            reads_workloads: self.reads_workloads,
            ..RemoteChanges::default()
        };
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

/// The objects of a cluster, which is added if it is new.
fn of<'a>(
    clusters: &'a mut BTreeMap<ClusterId, Discovery>,
    cluster: ClusterId,
    selectors: &[LabelSelector],
) -> &'a mut Discovery {
    clusters.entry(cluster).or_insert_with(|| {
        // In remote clusters all kinds come from the API server and are selected by namespace.
        let mut objects = Discovery::new(DiscoveryScope::Everything);
        objects.select(selectors, &mut BTreeSet::new());
        objects
    })
}
