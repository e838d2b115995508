//! A control plane in memory: its own mesh state and engine, with simulated proxies that subscribe
//! as real ones do and accept every response.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::Client;
use super::received::{ProxyResources, names_in};
use navarch_ambient::AmbientTranslator;
use navarch_api::names::ResourceName;
use navarch_envoy::EnvoyTranslator;
use navarch_push::context::PushContext;
use navarch_push::engine::{Engine, Interest, ProxyId, PushCause, Remark, Sink};
use navarch_push::mesh_state::{Change, MeshState};
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_tables::hash::KeyedMap;

/// Maximum number of subscription rounds. One, for the names in clusters and listeners, is normally
/// enough; with a learned scope those in routes and in their clusters follow.
const MAX_ROUNDS: usize = 4;

/// A mesh state, an engine on it, and proxies.
#[derive(Debug)]
pub struct Mirror {
    state: MeshState,
    engine: Engine,
    clients: Vec<Mirrored>,
    names: Names,
}

/// A proxy on the engine.
#[derive(Debug)]
struct Mirrored {
    client: Client,
    id: ProxyId,
    /// The collections from which its subscriptions were derived.
    followed: ProxyResources,
}

/// A shared set of names.
type NameSet = Arc<BTreeSet<ResourceName>>;

/// The names that a resource refers to.
#[derive(Debug)]
struct NamedResource {
    /// Keeps the resource, so that its address is not reused.
    _kept: Arc<Resource>,
    names: Arc<[ResourceName]>,
}

/// The resource names that collections refer to, computed once for all proxies that have them.
#[derive(Debug, Default)]
struct Names {
    /// By the collection's address and the referenced type. The collections are kept, so that
    /// addresses are not reused.
    of: KeyedMap<(usize, ResourceType), (Arc<Collection>, NameSet)>,
    /// By the resource's address and the referenced type. Collections of different proxies share
    /// most of their resources, and decoding a resource is what costs.
    of_resource: KeyedMap<(usize, ResourceType), NamedResource>,
    /// Interests by the previous one and the two collections, all of which are kept.
    interests: KeyedMap<[usize; 3], (NameSet, NameSet)>,
}

/// A sink that discards: collections are read from the engine.
#[derive(Debug)]
struct NullSink;

impl Sink for NullSink {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {}
}

impl Mirror {
    /// Simulated proxies on a copy of a snapshot. The cost is proportional to all resources of the
    /// proxies, which are rebuilt.
    #[must_use]
    pub fn of(context: &PushContext, clients: Vec<Client>) -> Self {
        let state = MeshState::fork(context);
        let mut engine = Engine::new(
            state.context(),
            Arc::new(AmbientTranslator(EnvoyTranslator)),
        );
        let nowhere = Arc::new(NullSink);
        let connect = |client: Client| {
            let id = engine.connect(client.proxy.clone(), nowhere.clone());
            for (resource_type, interest) in &client.interests {
                engine.subscribe(id, *resource_type, interest.clone());
            }
            Mirrored {
                client,
                id,
                followed: ProxyResources::new(),
            }
        };

        let clients = clients.into_iter().map(connect).collect();
        let mut mirror = Self {
            state,
            engine,
            clients,
            names: Names::default(),
        };

        for at in 0..mirror.clients.len() {
            let had = mirror.had(at);
            if let Some(one) = mirror.clients.get_mut(at) {
                // A client with named subscriptions has already requested the names in its clusters
                // and listeners.
                let subscribes = |resource_type| one.client.interests.contains_key(&resource_type);
                if subscribes(ResourceType::Endpoint) || subscribes(ResourceType::Route) {
                    one.followed = had;
                    if one.client.proxy.has_learned_scope {
                        one.followed.remove(&ResourceType::Route);
                    }
                }
            }
        }

        mirror.follow();
        mirror
    }

    /// Proxies, by their ids, on copies of the mesh state and the engine that serve them: a change
    /// costs in proportion to what it affects. Other proxies, and types without an interest in
    /// `clients`, are omitted.
    #[must_use]
    pub fn copied(state: MeshState, mut engine: Engine, clients: Vec<(ProxyId, Client)>) -> Self {
        let by_id: BTreeMap<ProxyId, &Client> =
            clients.iter().map(|(id, client)| (*id, client)).collect();

        for (id, types) in engine.proxies() {
            match by_id.get(&id) {
                None => engine.disconnect(id),
                Some(client) => {
                    let unsubscribed = types
                        .into_iter()
                        .filter(|resource_type| !client.interests.contains_key(resource_type));
                    unsubscribed.for_each(|resource_type| engine.unsubscribe(id, resource_type));
                }
            }
        }

        let known = |(id, client): (ProxyId, Client)| {
            let mut followed = had(&engine, id, &client);
            if client.proxy.has_learned_scope {
                followed.remove(&ResourceType::Route);
            }
            Mirrored {
                client,
                id,
                followed,
            }
        };

        let clients = clients.into_iter().map(known).collect();
        let mut mirror = Self {
            state,
            engine,
            clients,
            names: Names::default(),
        };
        mirror.follow_learned();
        mirror
    }

    /// Has proxies with a learned scope request the clusters of all their routes: what requests to
    /// hosts do that they have not used is known only with these.
    fn follow_learned(&mut self) {
        for at in 0..self.clients.len() {
            let is_learned = self
                .clients
                .get(at)
                .is_some_and(|one| one.client.proxy.has_learned_scope);
            for _ in 0..MAX_ROUNDS {
                if !is_learned || !self.follow_one(at) {
                    break;
                }
            }
        }
    }

    /// The snapshot of the copy.
    #[must_use]
    pub fn context(&self) -> Arc<PushContext> {
        self.state.context()
    }

    /// The proxies, in the order in which they were given.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().map(|one| &one.client)
    }

    /// The resources of a proxy, by its index.
    #[must_use]
    pub fn had(&self, at: usize) -> ProxyResources {
        self.clients
            .get(at)
            .map(|one| had(&self.engine, one.id, &one.client))
            .unwrap_or_default()
    }

    /// Applies changes, and updates the subscriptions of the proxies.
    pub fn apply(&mut self, changes: Vec<Change>) {
        let facts = self.state.apply(changes);
        if !facts.is_empty() {
            self.engine.apply(self.state.context(), facts);
        }
        self.follow();
    }

    /// The proxies on copies, if this engine serves them.
    #[cfg(test)]
    pub(super) fn copy(&self) -> Self {
        let clients = self
            .clients
            .iter()
            .map(|one| (one.id, one.client.clone()))
            .collect();
        Self::copied(self.state.copy(), self.engine.copy(), clients)
    }

    /// The remarks on the resources of the proxies.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        self.engine.remarks()
    }

    /// Descriptions of resources that failed to build.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.engine
            .faults()
            .into_iter()
            .map(|fault| format!("{}: {}", fault.query, fault.message))
            .collect()
    }

    /// Updates the subscriptions of every proxy to the names in its clusters and listeners.
    fn follow(&mut self) {
        for at in 0..self.clients.len() {
            for _ in 0..MAX_ROUNDS {
                if !self.follow_one(at) {
                    break;
                }
            }
        }
    }

    /// Updates the subscriptions of one proxy; returns false if they are unchanged.
    fn follow_one(&mut self, at: usize) -> bool {
        let now = self.had(at);
        let Some(one) = self.clients.get_mut(at) else {
            return false;
        };

        let mut has_changed = false;

        for (from, resource_type) in [
            (ResourceType::Cluster, ResourceType::Endpoint),
            (ResourceType::Listener, ResourceType::Route),
            (ResourceType::Listener, ResourceType::ExtensionConfig),
            (ResourceType::Listener, ResourceType::VirtualHost),
            (ResourceType::Route, ResourceType::Cluster),
        ] {
            // Only a proxy with a learned scope requests clusters by name: those that requests need.
            if resource_type == ResourceType::Cluster && !one.client.proxy.has_learned_scope {
                continue;
            }
            let Some(collection) = now.get(&from) else {
                continue;
            };
            let followed = one.followed.get(&from);
            if followed.is_some_and(|followed| Arc::ptr_eq(followed, collection)) {
                continue;
            }
            let requested = one
                .client
                .interests
                .get(&resource_type)
                .map(|interest| interest.names.clone());
            // On-demand virtual hosts are only for clients that requested them.
            if resource_type == ResourceType::VirtualHost && requested.is_none() {
                continue;
            }
            let requested = requested.unwrap_or_default();
            let names = self
                .names
                .after(resource_type, &requested, followed, collection);
            if *names != *requested {
                let keeps_wildcard = matches!(
                    resource_type,
                    ResourceType::VirtualHost | ResourceType::Cluster
                );
                let wildcard = keeps_wildcard
                    && one
                        .client
                        .interests
                        .get(&resource_type)
                        .is_some_and(|interest| interest.wildcard);
                let interest = Interest { wildcard, names };
                self.engine
                    .subscribe(one.id, resource_type, interest.clone());
                one.client.interests.insert(resource_type, interest);
                has_changed = true;
            }
        }

        one.followed = now;
        has_changed
    }
}

impl Names {
    /// The names of a type that a collection refers to.
    fn of(
        &mut self,
        resource_type: ResourceType,
        collection: &Arc<Collection>,
    ) -> Arc<BTreeSet<ResourceName>> {
        let key = (Arc::as_ptr(collection).addr(), resource_type);
        if let Some((_, names)) = self.of.get(&key) {
            return names.clone();
        }

        let mut names = BTreeSet::new();
        for resource in &collection.resources {
            let named = self.of_resource(collection.resource_type, resource, resource_type);
            names.extend(named.iter().cloned());
        }

        let names = Arc::new(names);
        self.of.insert(key, (collection.clone(), names.clone()));
        names
    }

    /// The names of a type that one resource refers to.
    fn of_resource(
        &mut self,
        from: ResourceType,
        resource: &Arc<Resource>,
        resource_type: ResourceType,
    ) -> Arc<[ResourceName]> {
        let key = (Arc::as_ptr(resource).addr(), resource_type);
        let named = || NamedResource {
            _kept: resource.clone(),
            names: names_in(from, resource, resource_type).into(),
        };
        let named = self.of_resource.entry(key).or_insert_with(named);
        named.names.clone()
    }

    /// The new interest of a client that requested `requested` because of one collection, and has
    /// another one now.
    fn after(
        &mut self,
        resource_type: ResourceType,
        requested: &Arc<BTreeSet<ResourceName>>,
        before: Option<&Arc<Collection>>,
        now: &Arc<Collection>,
    ) -> Arc<BTreeSet<ResourceName>> {
        let new = self.of(resource_type, now);
        let Some(before) = before else { return new };
        let old = self.of(resource_type, before);
        if old == new {
            return requested.clone();
        }

        let key = [
            Arc::as_ptr(requested).addr(),
            Arc::as_ptr(&old).addr(),
            Arc::as_ptr(&new).addr(),
        ];

        let change = || {
            let kept = requested.iter().filter(|name| !old.contains(*name));
            (
                requested.clone(),
                Arc::new(kept.chain(new.iter()).cloned().collect()),
            )
        };

        self.interests.entry(key).or_insert_with(change).1.clone()
    }
}

/// The resources of all subscriptions of a proxy.
fn had(engine: &Engine, id: ProxyId, client: &Client) -> ProxyResources {
    client
        .interests
        .keys()
        .filter_map(|resource_type| Some((*resource_type, engine.published(id, *resource_type)?)))
        .collect()
}

/// The resources of each proxy, by its index.
#[must_use]
pub fn all_resources(mirror: &Mirror) -> BTreeMap<usize, ProxyResources> {
    (0..mirror.clients.len())
        .map(|at| (at, mirror.had(at)))
        .collect()
}
