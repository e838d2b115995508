//! The mesh state: all inputs, updated change by change, and immutable snapshots of it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use imbl::OrdMap;

use super::addresses::{self, Addresses, StateChange};
use super::context::{Mesh, PushContext, directory_facts, facts_of_objects};
use super::fact::{FactKey, RemoteFact};
use super::learned::{self, LearnedChange, LearnedTable};
use super::name_parts::NameParts;
use super::quarantine::Quarantine;
use super::quarantined::Before;
use super::remotes::{RemoteChanges, Remotes};
use super::rollouts::{CurrentObjects, Rollouts};
use navarch_api::key_source::KeySource;
use navarch_api::mesh::{MeshConfig, MeshNetworks};
use navarch_api::names::{ClusterId, Hostname};
use navarch_api::object::{NamespacedName, ObjectRef};
use navarch_api::settings::Settings;
use navarch_registry::directory::DirectoryChange;
use navarch_registry::model::ServiceKey;
use navarch_registry::{Aggregate, ClusterChanges, ClusterObjects};
use navarch_store::{Discovery, DiscoveryScope, Objects};

pub use super::change::{Change, RemoteChange};

/// Store, registry and mesh-wide configuration. The push thread owns it.
#[derive(Clone, Debug)]
pub struct MeshState {
    /// All objects, and the discovered namespaces.
    objects: Discovery,
    /// The names of objects of kinds with many objects, in parts.
    name_parts: NameParts,
    /// The objects of remote clusters.
    remotes: Remotes,
    /// Services and endpoints of all clusters.
    registry: Aggregate,
    /// Mesh config and settings.
    mesh: Arc<Mesh>,
    networks: Arc<MeshNetworks>,
    /// Which service accounts may read secrets.
    secret_readers: OrdMap<NamespacedName, bool>,
    /// The same in remote clusters.
    remote_secret_readers: OrdMap<(ClusterId, NamespacedName), bool>,
    /// JWKS by source.
    keys: OrdMap<KeySource, Arc<str>>,
    /// The roots of trust of the mesh.
    trust_bundle: Arc<[Arc<str>]>,
    /// What workloads with a learned scope have used.
    learned: LearnedTable,
    /// Resolved addresses of network gateways with host names.
    gateway_hosts: OrdMap<Arc<str>, Arc<[IpAddr]>>,
    /// Index of objects by address, and the names of workloads and services. Without ambient mode
    /// it is empty until a proxy requests a peer.
    addresses: Addresses,
    /// Whether a proxy has requested a peer by address.
    finds_peers: bool,
    /// Objects whose previous version is served.
    quarantine: Quarantine,
    /// Changes that apply to some proxies only.
    rollouts: Rollouts,
}

impl MeshState {
    /// An empty mesh state with default mesh config.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mesh = Arc::new(Mesh {
            config: MeshConfig::istio_defaults(),
            settings: settings.clone(),
        });
        let networks = Arc::new(MeshNetworks::default());
        let scope = match settings.discover_configuration {
            true => DiscoveryScope::Everything,
            false => DiscoveryScope::Workloads,
        };

        let remotes = Remotes::new(settings.ambient && settings.gateway_api.east_west);
        let mut registry = Aggregate::new(settings);
        let none = ClusterObjects {
            own: &Objects::default(),
            remotes: remotes.seen(),
        };
        registry.set_mesh(&mesh.config, &networks, none);
        Self {
            objects: Discovery::new(scope),
            name_parts: NameParts::default(),
            remotes,
            registry,
            mesh,
            networks,
            secret_readers: OrdMap::new(),
            remote_secret_readers: OrdMap::new(),
            keys: OrdMap::new(),
            trust_bundle: Arc::default(),
            learned: LearnedTable::new(),
            gateway_hosts: OrdMap::new(),
            addresses: Addresses::default(),
            finds_peers: false,
            quarantine: Quarantine::default(),
            rollouts: Rollouts::default(),
        }
    }

    /// An independent mesh state with the state of a snapshot, for dry runs. It has no objects of
    /// undiscovered namespaces, since snapshots do not contain them. The cost is proportional to
    /// the number of objects.
    #[must_use]
    pub fn fork(context: &PushContext) -> Self {
        let mut mesh_state = Self::new(context.mesh.settings.clone());
        let mesh = [
            Change::Mesh(Arc::new(context.mesh.config.clone())),
            Change::Networks(context.networks.clone()),
            Change::TrustBundle(context.trust_bundle.clone()),
        ];
        let readers = context
            .secret_readers
            .iter()
            .map(|(name, may)| Change::SecretReader(name.clone(), Some(*may)));

        let keys = context
            .keys
            .iter()
            .map(|(source, keys)| Change::Keys(source.clone(), Some(keys.clone())));
        let hosts = context.gateway_hosts.iter();
        let hosts = hosts
            .map(|(host, addresses)| Change::GatewayHost(host.clone(), Some(addresses.clone())));
        let objects = context.objects.all().map(Change::Put);
        let remotes = context.remotes.iter().map(|(cluster, objects)| {
            Change::Remote(
                cluster.clone(),
                RemoteChange::Reset(objects.all().collect()),
            )
        });

        let remote_readers =
            context
                .remote_secret_readers
                .iter()
                .map(|((cluster, account), may)| {
                    Change::Remote(
                        cluster.clone(),
                        RemoteChange::SecretReader(account.clone(), Some(*may)),
                    )
                });

        let peers = context.finds_peers.then_some(Change::FindPeers);
        let learned = context.learned.iter().map(|(workload, hosts)| {
            let added = LearnedChange::Add((**hosts).clone());
            Change::Learned(workload.clone(), added)
        });
        let remotes = remotes.chain(remote_readers).chain(peers).chain(learned);
        mesh_state.apply(
            mesh.into_iter()
                .chain(readers)
                .chain(keys)
                .chain(hosts)
                .chain(objects)
                .chain(remotes),
        );

        mesh_state.rollouts = Rollouts::of(&context.rollouts, &context.new_versions);
        mesh_state
    }

    /// An independent copy of this mesh state, for dry runs: its further changes are not staged.
    /// Objects are shared; the cost is proportional to the registry's indexes.
    #[must_use]
    pub fn copy(&self) -> Self {
        let rollouts = Rollouts::of(self.rollouts.all(), self.rollouts.new_versions());
        Self {
            rollouts,
            ..self.clone()
        }
    }

    /// Number of slice endpoints that are left out since their pods are not known.
    #[must_use]
    pub fn pending_pods(&self) -> usize {
        self.registry.pending_pods()
    }

    /// An immutable snapshot. Costs a few reference counts.
    #[must_use]
    pub fn context(&self) -> Arc<PushContext> {
        Arc::new(PushContext {
            mesh: self.mesh.clone(),
            networks: self.networks.clone(),
            directory: self.registry.directory().clone(),
            objects: self.objects.seen().clone(),
            name_parts: self.name_parts.clone(),
            secret_readers: self.secret_readers.clone(),
            keys: self.keys.clone(),
            trust_bundle: self.trust_bundle.clone(),
            learned: self.learned.clone(),
            gateway_hosts: self.gateway_hosts.clone(),
            addresses: self.addresses.own().clone(),
            finds_peers: self.finds_peers,
            remote_addresses: self.addresses.remotes().clone(),
            address_names: self.addresses.names().clone(),
            remotes: self.remotes.seen().clone(),
            remote_secret_readers: self.remote_secret_readers.clone(),
            quarantined: self.quarantine.quarantined().clone(),
            rollouts: self.rollouts.all().clone(),
            new_versions: self.rollouts.new_versions().clone(),
        })
    }

    /// The previous versions of recently changed objects, the latest last. They are served if
    /// proxies reject the new versions.
    #[must_use]
    pub fn before(&self) -> Before {
        self.quarantine.before().clone()
    }

    /// Applies a batch of changes and returns the changed facts, sorted. The order within a batch
    /// matters only for changes of the same object.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Vec<FactKey> {
        let before = self.objects.seen().clone();
        let before_remotes = self.remotes.seen().clone();
        let mut objects: BTreeSet<ObjectRef> = BTreeSet::new();
        let mut facts: BTreeSet<FactKey> = BTreeSet::new();
        let mut mesh = None;
        let mut networks = None;
        let mut finds_peers = false;

        for change in changes {
            let Some(change) = self.admit(change, &mut objects) else {
                continue;
            };

            match change {
                Change::Put(object) => self.objects.put(object, &mut objects),
                Change::Removed(name) => self.objects.remove(&name, &mut objects),
                Change::Remote(cluster, change) => {
                    facts.extend(self.take_in_remote(cluster, change))
                }
                Change::Mesh(config) => mesh = Some(config),
                Change::Networks(config) => networks = Some(config),
                Change::SecretReader(account, allowed) => {
                    let differs = set(&mut self.secret_readers, &account, allowed);
                    facts.extend(differs.then_some(FactKey::SecretReader(account)));
                }
                Change::Keys(source, keys) => {
                    let differs = set(&mut self.keys, &source, keys);
                    facts.extend(differs.then_some(FactKey::Keys(source)));
                }
                // `admit` has replaced these by changes of objects.
                Change::Quarantine(..)
                | Change::RestoreQuarantine(..)
                | Change::ReleaseQuarantine(_)
                | Change::Stages
                | Change::Rollout(..) => {}
                Change::GatewayHost(host, addresses) => {
                    let differs = set(&mut self.gateway_hosts, &host, addresses);
                    facts.extend(differs.then_some(FactKey::Networks));
                }
                Change::FindPeers => finds_peers = true,
                Change::Learned(workload, change) => {
                    let directory = self.registry.directory();
                    let exists = |host: &Hostname| directory.namespaces_of_host.contains_key(host);
                    let differs = learned::apply(&mut self.learned, &workload, &change, exists);
                    facts.extend(differs.then(|| FactKey::Learned(Box::new(workload))));
                }
                Change::TrustBundle(roots) => {
                    let before = std::mem::replace(&mut self.trust_bundle, roots);
                    facts.extend((before != self.trust_bundle).then_some(FactKey::TrustBundle));
                }
            }
        }

        if let Some(config) = &mesh {
            self.objects
                .select(&config.discovery_selectors, &mut objects);
            self.remotes.select(&config.discovery_selectors);
        }

        facts.extend(self.rollouts.end_batch(&mut CurrentObjects {
            objects: &mut self.objects,
            changed: &mut objects,
        }));

        // An object that is removed and added again, as when a source relists, has not changed.
        objects.retain(|object| self.objects.seen().differs(&before, object));
        let remotes = self.remotes.take_changes();
        let mut endpoints = BTreeSet::new();

        if mesh.is_some() || networks.is_some() {
            let changed = self.set_mesh(mesh, networks, &mut facts);
            facts.extend(directory_facts(&changed));
            endpoints.extend(changed.endpoints);
        }

        let before = ClusterObjects {
            own: &before,
            remotes: &before_remotes,
        };
        // A vector from here on: many objects change at the start, and to sort their facts once
        // costs less than to insert them one by one.
        let mut facts: Vec<FactKey> = facts.into_iter().collect();
        facts.extend(self.follow(before, objects, remotes, endpoints));
        if finds_peers && !self.finds_peers {
            facts.extend(self.find_peers());
        }

        facts.sort();
        facts.dedup();
        facts
    }

    /// Enables the search for peers by address: adds all missing objects to the index.
    fn find_peers(&mut self) -> Vec<FactKey> {
        self.finds_peers = true;
        let settings = &self.mesh.settings;
        if settings.ambient && settings.gateway_api.east_west {
            return Vec::new();
        }

        let nothing = Objects::default();
        let nowhere = OrdMap::new();
        let own = if settings.ambient {
            BTreeSet::new()
        } else {
            addresses::names(self.objects.seen())
        };

        // Remote clusters without an index are added as a whole.
        let changed = ClusterChanges {
            own,
            ..ClusterChanges::default()
        };
        let step = StateChange {
            settings,
            before: ClusterObjects {
                own: &nothing,
                remotes: &nowhere,
            },
            now: ClusterObjects {
                own: self.objects.seen(),
                remotes: self.remotes.seen(),
            },
            changed: &changed,
            directory: self.registry.directory(),
            endpoints: &BTreeSet::new(),
            finds_peers: true,
        };

        self.addresses.apply(&step)
    }

    /// Updates everything derived from objects, given the changed ones, and returns the changed
    /// facts. `endpoints` are services whose endpoints have already changed.
    fn follow(
        &mut self,
        before: ClusterObjects<'_>,
        objects: BTreeSet<ObjectRef>,
        remotes: RemoteChanges,
        mut endpoints: BTreeSet<ServiceKey>,
    ) -> Vec<FactKey> {
        let objects_differ = remotes.differ || !objects.is_empty();
        let mut facts: Vec<FactKey> = remotes.facts().collect();
        let changed = ClusterChanges {
            own: objects,
            remotes: remotes.objects,
        };
        let now = ClusterObjects {
            own: self.objects.seen(),
            remotes: self.remotes.seen(),
        };

        if objects_differ {
            let changed = self.registry.apply(now, &changed);
            facts.extend(directory_facts(&changed));
            endpoints.extend(changed.endpoints);
        }

        if self.mesh.settings.ambient || self.finds_peers {
            let step = StateChange {
                settings: &self.mesh.settings,
                before,
                now,
                changed: &changed,
                directory: self.registry.directory(),
                endpoints: &endpoints,
                finds_peers: self.finds_peers,
            };
            facts.extend(self.addresses.apply(&step));
        }

        facts.extend(facts_of_objects(&changed.own));
        facts.extend(self.find_names(before.own, &changed.own));
        facts
    }

    /// The change to apply to all proxies instead of an incoming one, if any.
    fn admit(&mut self, change: Change, changed: &mut BTreeSet<ObjectRef>) -> Option<Change> {
        if self.quarantine.contains(&change) {
            return None;
        }

        let name = if let Change::Put(object) = &change {
            Some(object.object_ref())
        } else {
            None
        };

        let mut in_force = CurrentObjects {
            objects: &mut self.objects,
            changed,
        };
        let Some(change) = self
            .rollouts
            .admit(change, &mut in_force, &self.mesh.settings.rollouts)
        else {
            name.inspect(|name| self.quarantine.release(name));
            return None;
        };

        self.quarantine.admit(change, self.objects.seen())
    }

    /// Applies a change of a remote cluster and returns the changed fact if the change is not of an
    /// object.
    fn take_in_remote(&mut self, cluster: ClusterId, change: RemoteChange) -> Option<FactKey> {
        match change {
            RemoteChange::Put(object) => self.remotes.put(cluster, object),
            RemoteChange::Removed(name) => self.remotes.remove(&cluster, &name),
            RemoteChange::Reset(objects) => self.remotes.reset(cluster, objects),
            RemoteChange::Gone => self.remotes.forget(&cluster),
            RemoteChange::SecretReader(account, allowed) => {
                let key = (cluster.clone(), account.clone());
                let differs = set(&mut self.remote_secret_readers, &key, allowed);
                return differs
                    .then_some(FactKey::remote(&cluster, RemoteFact::SecretReader(account)));
            }
        }
        None
    }

    /// Updates the names of objects and returns the changed facts.
    fn find_names(&mut self, before: &Objects, changed: &BTreeSet<ObjectRef>) -> Vec<FactKey> {
        let mut facts = Vec::new();
        let mut last = None;

        for object in changed {
            // The names of most kinds are one fact, and it is among those that have changed.
            if last == Some(object.kind) && !NameParts::has(object.kind) {
                continue;
            }

            let is_there = self.objects.seen().contains(object);
            if before.contains(object) == is_there {
                continue;
            }

            let part = self.name_parts.set(object, is_there);
            facts.extend(part.map(|part| FactKey::NamesIn(object.kind, part)));

            // Objects come kind by kind.
            if last != Some(object.kind) {
                last = Some(object.kind);
                facts.push(FactKey::Names(object.kind));
            }
        }

        facts
    }

    /// Applies mesh-wide configuration and collects the changed facts.
    fn set_mesh(
        &mut self,
        mesh: Option<Arc<MeshConfig>>,
        networks: Option<Arc<MeshNetworks>>,
        facts: &mut BTreeSet<FactKey>,
    ) -> DirectoryChange {
        if let Some(config) = mesh.filter(|config| **config != self.mesh.config) {
            self.mesh = Arc::new(Mesh {
                config: (*config).clone(),
                settings: self.mesh.settings.clone(),
            });
            facts.insert(FactKey::Mesh);
        }

        if let Some(networks) = networks.filter(|networks| *networks != self.networks) {
            self.networks = networks;
            facts.insert(FactKey::Networks);
        }

        if !(facts.contains(&FactKey::Mesh) || facts.contains(&FactKey::Networks)) {
            return DirectoryChange::default();
        }

        let objects = ClusterObjects {
            own: self.objects.seen(),
            remotes: self.remotes.seen(),
        };

        self.registry
            .set_mesh(&self.mesh.config, &self.networks, objects)
    }
}

/// Sets or removes the value of a key. Returns whether it changed; if not, copies of the map stay
/// shared.
fn set<K: Ord + Clone, V: PartialEq + Clone>(
    map: &mut OrdMap<K, V>,
    key: &K,
    value: Option<V>,
) -> bool {
    if map.get(key) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
    true
}
