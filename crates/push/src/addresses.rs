//! Indexes from addresses to objects, and the names of workloads and services: of the cluster that
//! configures the mesh and, if the networks of an ambient mesh are joined, of remote clusters.
//!
//! Outside ambient mode they are empty until a proxy requests the peer at an address; from then on
//! they contain pods and WorkloadEntries of all clusters. In ambient mode remote clusters are added
//! by such a request, unless their networks are joined.
//!
//! A remote cluster in the same network adds services and workloads, one in another network only
//! services: ztunnel gets one workload for all endpoints of a service there. Each part is updated
//! from the changed objects. There may be more names than resources: names without a resource are
//! skipped when resources are built.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;

use super::fact::{FactKey, RemoteFact};
use super::name_list::NameList;
use navarch_api::names::{ClusterId, NetworkId, ResourceName};
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_registry::address_index::{
    AddressChange, AddressIndex, AddressKey, Coverage, IndexScope,
};
use navarch_registry::directory::Directory;
use navarch_registry::model::ServiceKey;
use navarch_registry::remote_gateway::KnownGateways;
use navarch_registry::remote_network_names::{NameChange, RemoteNetworkNames};
use navarch_registry::{ClusterChanges, ClusterObjects, NETWORK_LABEL};
use navarch_store::Objects;

/// Indexes and names of all clusters.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    /// The index of the cluster that configures the mesh.
    own: AddressIndex,
    remotes: OrdMap<ClusterId, AddressIndex>,
    /// Which objects of each remote cluster its index contains.
    coverage: BTreeMap<ClusterId, Coverage>,
    /// The names of the workloads that represent other networks.
    far: RemoteNetworkNames,
    names: NameList,
}

/// The mesh state before and after a batch of changes.
#[derive(Clone, Copy)]
pub(super) struct StateChange<'a> {
    pub(super) settings: &'a Settings,
    pub(super) before: ClusterObjects<'a>,
    pub(super) now: ClusterObjects<'a>,
    /// Changed objects; may contain unchanged ones.
    pub(super) changed: &'a ClusterChanges,
    pub(super) directory: &'a Directory,
    /// Services whose endpoints changed.
    pub(super) endpoints: &'a BTreeSet<ServiceKey>,
    /// Whether a proxy has requested a peer by address.
    pub(super) finds_peers: bool,
}

/// The changes of names and indexes.
#[derive(Default)]
struct IndexChange {
    names: NameChange,
    facts: Vec<FactKey>,
}

impl Addresses {
    /// The index of the cluster that configures the mesh.
    pub(super) fn own(&self) -> &AddressIndex {
        &self.own
    }

    pub(super) fn remotes(&self) -> &OrdMap<ClusterId, AddressIndex> {
        &self.remotes
    }

    /// The names of all possible workloads and services.
    pub(super) fn names(&self) -> &NameList {
        &self.names
    }

    /// Applies a change and returns the changed facts.
    pub(super) fn apply(&mut self, step: &StateChange<'_>) -> Vec<FactKey> {
        let mut changes = IndexChange::default();
        let is_ambient = step.settings.ambient;
        let coverage = if is_ambient {
            Coverage::Own
        } else {
            Coverage::Peers
        };

        let own = scope(&step.settings.cluster_id, coverage, step);
        let change = self
            .own
            .apply(step.before.own, step.now.own, &step.changed.own, &own);
        let keys = changes.take(change, |name| {
            self.remotes.values().any(|index| index.has_name(name))
        });
        changes.facts.extend(keys.into_iter().map(FactKey::Found));

        if is_ambient && step.settings.gateway_api.east_west {
            let own = network(step.now.own, step.settings);
            let entries = step.settings.clusters.remote_workload_entries;
            let coverage = |objects: &Objects| match network(objects, step.settings) == own {
                true => Coverage::Workloads { entries },
                false => Coverage::Services,
            };
            self.apply_remotes(step, coverage, &mut changes);
            self.apply_remote_networks(step, &mut changes);
        } else if step.finds_peers {
            self.apply_remotes(step, |_| Coverage::Peers, &mut changes);
        }

        let NameChange { added, removed } = changes.names;
        if !(added.is_empty() && removed.is_empty()) {
            self.names.update(&added, &removed);
            changes.facts.push(FactKey::AddressNames);
        }

        changes.facts
    }

    /// Updates the indexes of remote clusters, each with the objects that `coverage` selects.
    fn apply_remotes(
        &mut self,
        step: &StateChange<'_>,
        coverage: impl Fn(&Objects) -> Coverage,
        changes: &mut IndexChange,
    ) {
        let clusters: BTreeSet<&ClusterId> = step
            .before
            .remotes
            .keys()
            .chain(step.now.remotes.keys())
            .collect();

        let nothing = Objects::default();

        for cluster in clusters {
            let before = step.before.remotes.get(cluster);
            let now = step.now.remotes.get(cluster);
            let wanted = now.map(&coverage);
            let known = self.coverage.get(cluster).copied();
            if known == wanted {
                let changed = step.changed.remotes.get(cluster);
                if let (Some(changed), Some(coverage)) = (changed, known) {
                    self.apply_remote(
                        before.unwrap_or(&nothing),
                        now.unwrap_or(&nothing),
                        changed,
                        &scope(cluster, coverage, step),
                        changes,
                    );
                }
                continue;
            }

            if let (Some(before), Some(coverage)) = (before, known) {
                self.apply_remote(
                    before,
                    &nothing,
                    &names(before),
                    &scope(cluster, coverage, step),
                    changes,
                );
            }

            self.remotes.remove(cluster);
            self.coverage.remove(cluster);

            if let (Some(now), Some(coverage)) = (now, wanted) {
                self.apply_remote(
                    &nothing,
                    now,
                    &names(now),
                    &scope(cluster, coverage, step),
                    changes,
                );
                self.coverage.insert(cluster.clone(), coverage);
            }
        }
    }

    /// Updates the index of a remote cluster.
    fn apply_remote(
        &mut self,
        before: &Objects,
        now: &Objects,
        changed: &BTreeSet<ObjectRef>,
        scope: &IndexScope<'_>,
        changes: &mut IndexChange,
    ) {
        // The copy shares its content with the index of the current snapshot.
        let mut index = self.remotes.get(scope.cluster).cloned().unwrap_or_default();
        let change = index.apply(before, now, changed, scope);

        let others = self
            .remotes
            .iter()
            .filter(|(cluster, _)| *cluster != scope.cluster)
            .map(|(_, index)| index);
        let others: Vec<&AddressIndex> = others.chain([&self.own]).collect();

        let keys = changes.take(change, |name| {
            others.iter().any(|index| index.has_name(name))
        });

        self.remotes.insert(scope.cluster.clone(), index);
        let found = |key| FactKey::remote(scope.cluster, RemoteFact::Found(key));
        changes.facts.extend(keys.into_iter().map(found));
    }

    /// Updates the names of the workloads that represent other networks.
    fn apply_remote_networks(&mut self, step: &StateChange<'_>, changes: &mut IndexChange) {
        let may_move = |objects: &BTreeSet<ObjectRef>| {
            objects
                .iter()
                .any(|object| matches!(object.kind, Kind::KubernetesGateway | Kind::Namespace))
        };
        let came_or_went = || !step.before.remotes.keys().eq(step.now.remotes.keys());
        let network = |objects: &Objects| network(objects, step.settings);
        let clusters = || {
            step.now
                .remotes
                .iter()
                .map(|(cluster, objects)| (cluster.clone(), network(objects)))
                .collect()
        };

        let moved = (may_move(&step.changed.own)
            || step.changed.remotes.values().any(may_move)
            || came_or_went())
            && self
                .far
                .set_networks(network(step.now.own), clusters(), gateways(step));

        if moved {
            let known: BTreeSet<ServiceKey> = self
                .far
                .services()
                .chain(step.directory.endpoints.keys())
                .cloned()
                .collect();
            known
                .iter()
                .for_each(|key| self.far.update(key, step.directory, &mut changes.names));
        } else {
            step.endpoints
                .iter()
                .for_each(|key| self.far.update(key, step.directory, &mut changes.names));
        }
    }
}

impl IndexChange {
    /// Applies the changes of one index and returns the keys. Names that another index also
    /// contains are neither added nor removed.
    fn take(
        &mut self,
        change: AddressChange,
        is_elsewhere: impl Fn(&ResourceName) -> bool,
    ) -> BTreeSet<AddressKey> {
        change
            .removed
            .into_iter()
            .filter(|name| !is_elsewhere(name))
            .for_each(|name| self.names.remove(name));
        change
            .added
            .into_iter()
            .filter(|name| !is_elsewhere(name))
            .for_each(|name| self.names.add(name));
        change.keys
    }
}

/// Which objects of a cluster its index contains.
fn scope<'a>(cluster: &'a ClusterId, coverage: Coverage, step: &StateChange<'a>) -> IndexScope<'a> {
    IndexScope {
        cluster,
        domain_suffix: &step.settings.domain_suffix,
        coverage,
    }
}

/// The names of all objects that the index of a remote cluster, or an index for peers, can contain.
pub(super) fn names(objects: &Objects) -> BTreeSet<ObjectRef> {
    let kinds = [
        Kind::Pod,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::WorkloadEntry,
    ];
    kinds
        .into_iter()
        .flat_map(|kind| objects.all_of(kind))
        .collect()
}

/// The network of a cluster, from the label of the control plane's namespace there.
fn network(objects: &Objects, settings: &Settings) -> NetworkId {
    let system = NamespacedName::new("", settings.system_namespace.as_str());
    let label = objects
        .namespaces
        .get(&system)
        .and_then(|namespace| namespace.meta.labels.get(NETWORK_LABEL));
    label.map(NetworkId::new).unwrap_or_default()
}

/// The gateways into all networks.
fn gateways(step: &StateChange<'_>) -> KnownGateways {
    let mut known = KnownGateways::default();
    step.now
        .own
        .kubernetes_gateways
        .iter()
        .for_each(|gateway| known.add_own(&step.settings.cluster_id, gateway));
    for (cluster, objects) in step.now.remotes {
        objects
            .kubernetes_gateways
            .iter()
            .for_each(|gateway| known.add_remote(cluster, gateway));
    }
    known
}
