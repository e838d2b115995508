//! A small control plane with any number of sidecars.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use navarch::api::mesh::MeshConfig;
use navarch::api::names::ResourceName;
use navarch::api::settings::Settings;
use navarch::envoy::EnvoyTranslator;
use navarch::push::engine::{Engine, Interest, ProxyId, PushCause, PushStats, Sink};
use navarch::push::mesh_state::{Change, MeshState};
use navarch::push::resource::{Collection, ResourceType};

use crate::world::{fine_grained_sidecar, host, sidecar};

/// Counts pushed collections.
#[derive(Default)]
pub struct Count(AtomicUsize);

impl Sink for Count {
    fn publish(&self, _: ResourceType, _: Arc<Collection>, _: &Arc<PushCause>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Mesh state and engine.
pub struct Plane {
    state: MeshState,
    engine: Engine,
    sent: Arc<Count>,
    /// The connected proxies, in their order.
    proxies: Vec<ProxyId>,
}

impl Plane {
    /// Creates one with these objects.
    pub fn new(changes: Vec<Change>) -> Self {
        let mut state = MeshState::new(Settings::default());
        state.apply(changes);
        let engine = Engine::new(state.context(), Arc::new(EnvoyTranslator));
        Self {
            state,
            engine,
            sent: Arc::default(),
            proxies: Vec::new(),
        }
    }

    /// Connects sidecars that subscribe to everything, including the endpoints of all services.
    pub fn connect(&mut self, sidecars: usize, services: usize) {
        let everything = Interest {
            wildcard: true,
            ..Interest::default()
        };
        let endpoints = named((0..services).map(|n| format!("outbound|80||{}", host(n))));
        let routes = named(["80".to_owned()]);

        for n in 0..sidecars {
            let id = self.engine.connect(sidecar(n), self.sent.clone());
            self.proxies.push(id);
            for (resource_type, interest) in [
                (ResourceType::Cluster, &everything),
                (ResourceType::Endpoint, &endpoints),
                (ResourceType::Listener, &everything),
                (ResourceType::Route, &routes),
                (ResourceType::NameTable, &everything),
            ] {
                self.engine.subscribe(id, resource_type, interest.clone());
            }
        }
    }

    /// Connects sidecars that subscribe to routes alone, with on-demand virtual hosts (VHDS).
    pub fn connect_fine_grained(&mut self, sidecars: usize) {
        for n in 0..sidecars {
            let id = self
                .engine
                .connect(fine_grained_sidecar(n), self.sent.clone());
            self.proxies.push(id);
            let Interest { names, .. } = named(["80".to_owned()]);
            self.engine.subscribe(
                id,
                ResourceType::Route,
                Interest {
                    wildcard: false,
                    names: names.clone(),
                },
            );

            self.engine.subscribe(
                id,
                ResourceType::VirtualHost,
                Interest {
                    wildcard: true,
                    names,
                },
            );
        }
    }

    /// Applies changes and pushes the resources that differ.
    pub fn apply(&mut self, changes: Vec<Change>) -> PushStats {
        let facts = self.state.apply(changes);
        if facts.is_empty() {
            return PushStats::default();
        }
        self.engine.apply(self.state.context(), facts)
    }

    /// Sets mesh config over Istio's defaults, and pushes the resources that differ.
    pub fn mesh_config(&mut self, yaml: &str) -> PushStats {
        let config = MeshConfig::istio_defaults()
            .apply(yaml)
            .expect("the mesh config is valid");
        self.apply(vec![Change::Mesh(Arc::new(config.value))])
    }

    /// What the proxy that connected at this place has of a type, which it subscribes to.
    pub fn published(&self, place: usize, resource_type: ResourceType) -> Arc<Collection> {
        let proxy = *self.proxies.get(place).expect("the proxy is connected");
        self.engine
            .published(proxy, resource_type)
            .expect("the proxy subscribes to the type")
    }

    /// A new engine with the same mesh state and without proxies.
    pub fn fresh(&self) -> Self {
        let mut state = MeshState::new(Settings::default());
        state.apply([]);
        let engine = Engine::new(self.state.context(), Arc::new(EnvoyTranslator));
        Self {
            state,
            engine,
            sent: Arc::default(),
            proxies: Vec::new(),
        }
    }

    /// The number of pushed collections.
    pub fn sent(&self) -> usize {
        self.sent.0.load(Ordering::Relaxed)
    }
}

fn named(names: impl IntoIterator<Item = String>) -> Interest {
    let names: BTreeSet<ResourceName> = names.into_iter().map(ResourceName::new).collect();
    Interest {
        wildcard: false,
        names: Arc::new(names),
    }
}
