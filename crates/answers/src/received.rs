//! The resources of a proxy, decoded from the collections that were sent to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use navarch_tables::hash::KeyedMap;
use navarch_api::names::ResourceName;
use navarch_envoy::routes::with_hosts;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{RouteConfiguration, route};
use navarch_proto::envoy::config::listener::v3::filter::ConfigType;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_filter,
};
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_walk::{Connection, Outcome, Resources, Routes, Upstream, Walk};
use prost::Message;

/// The collection of each xDS type that a proxy has; types that it does not subscribe to are
/// missing.
pub type ProxyResources = BTreeMap<ResourceType, Arc<Collection>>;

/// A proxy's resources, decoded as far as walks need them.
#[derive(Debug)]
pub struct Walkable<'a> {
    had: &'a ProxyResources,
    resources: Resources,
}

/// Decoded listeners and route configurations, shared by several proxies.
#[derive(Debug, Default)]
pub struct ReadResources {
    listeners: KeyedMap<usize, (Arc<Resource>, Option<Arc<Listener>>)>,
    routes: KeyedMap<usize, (Arc<Resource>, Arc<Routes>)>,
}

impl ReadResources {
    /// A listener; `None` if malformed.
    fn listener(&mut self, resource: &Arc<Resource>) -> Option<Arc<Listener>> {
        let read = || {
            (
                resource.clone(),
                Listener::decode(resource.body.clone()).ok().map(Arc::new),
            )
        };
        self.listeners
            .entry(Arc::as_ptr(resource).addr())
            .or_insert_with(read)
            .1
            .clone()
    }

    /// A complete route configuration.
    fn routes(&mut self, resource: &Arc<Resource>) -> Arc<Routes> {
        let read = || {
            (
                resource.clone(),
                Arc::new(Routes::new(resource.body.clone())),
            )
        };
        self.routes
            .entry(Arc::as_ptr(resource).addr())
            .or_insert_with(read)
            .1
            .clone()
    }
}

impl<'a> Walkable<'a> {
    /// Decodes listeners; routes, clusters and endpoints are decoded when a walk needs them.
    #[must_use]
    pub fn read(had: &'a ProxyResources, read: &mut ReadResources) -> Self {
        let all = |resource_type| {
            had.get(&resource_type)
                .into_iter()
                .flat_map(|collection| &collection.resources)
        };
        let mut resources = Resources::default();
        resources
            .listeners
            .extend(all(ResourceType::Listener).filter_map(|resource| read.listener(resource)));

        let hosts: Vec<_> = all(ResourceType::VirtualHost)
            .map(|host| (&host.name, &host.body))
            .collect();

        for one in all(ResourceType::Route) {
            let routes = if hosts.is_empty() {
                read.routes(one)
            } else {
                Arc::new(Routes::new(with_hosts(
                    &one.name,
                    &one.body,
                    hosts.iter().copied(),
                )))
            };
            resources.routes.insert(one.name.to_string(), routes);
        }

        Self { had, resources }
    }

    /// The resources decoded so far.
    #[must_use]
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Walks a connection, and the request that it carries.
    pub fn walk(&mut self, connection: &Connection) -> Walk {
        let walk = self.resources.walk(connection);
        let Outcome::Forwarded(shares) = &walk.outcome else {
            return walk;
        };

        let missing: Vec<String> = shares
            .iter()
            .filter(|share| {
                share.upstream == Upstream::NoCluster
                    && !self.resources.clusters.contains_key(&share.cluster)
            })
            .map(|share| share.cluster.clone())
            .collect();

        let found = missing
            .iter()
            .filter(|name| self.read_cluster(name))
            .count();
        if found == 0 {
            walk
        } else {
            self.resources.walk(connection)
        }
    }

    /// Decodes a cluster with its endpoints. Returns false if it does not exist.
    fn read_cluster(&mut self, name: &str) -> bool {
        let Some(cluster) = find(self.had, ResourceType::Cluster, name) else {
            return false;
        };
        let Ok(cluster) = Cluster::decode(cluster.body.clone()) else {
            return false;
        };
        let service = endpoints_of(&cluster);
        let endpoints = service
            .as_deref()
            .and_then(|service| find(self.had, ResourceType::Endpoint, service));
        let endpoints = endpoints
            .and_then(|resource| ClusterLoadAssignment::decode(resource.body.clone()).ok());
        if let Some((service, endpoints)) = service.zip(endpoints) {
            self.resources.endpoints.insert(service, endpoints);
        }
        self.resources.clusters.insert(name.to_owned(), cluster);
        true
    }
}

/// `None` if the proxy has no collection of the type, or none of its resources has the name.
#[must_use]
pub fn find<'a>(
    had: &'a ProxyResources,
    resource_type: ResourceType,
    name: &str,
) -> Option<&'a Arc<Resource>> {
    had.get(&resource_type)?
        .resources
        .find(&ResourceName::new(name))
}

/// The EDS service name of a cluster, if it uses EDS.
fn endpoints_of(cluster: &Cluster) -> Option<String> {
    let is_eds = cluster.cluster_discovery_type
        == Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    let service = cluster
        .eds_cluster_config
        .as_ref()
        .map(|eds| eds.service_name.clone())
        .unwrap_or_default();
    is_eds.then(|| {
        if service.is_empty() {
            cluster.name.clone()
        } else {
            service
        }
    })
}

/// The names of type `resource_type` to which a client subscribes because of one resource of type `from`:
/// endpoints of a cluster; routes, with their virtual hosts, or extensions of a listener; clusters of
/// routes, on demand.
#[must_use]
pub fn names_in(
    from: ResourceType,
    resource: &Resource,
    resource_type: ResourceType,
) -> Vec<ResourceName> {
    if from == ResourceType::Cluster {
        let cluster = Cluster::decode(resource.body.clone()).ok();
        let endpoints = cluster.as_ref().and_then(endpoints_of);
        return endpoints.map(ResourceName::new).into_iter().collect();
    }
    if from == ResourceType::Listener {
        let listener = Listener::decode(resource.body.clone()).ok();
        return listener.map_or_else(Vec::new, |listener| {
            names_in_listener(&listener, resource_type)
        });
    }
    if from == ResourceType::Route {
        let routes = RouteConfiguration::decode(resource.body.clone()).ok();
        return routes.map_or_else(Vec::new, |routes| clusters_of(&routes));
    }

    Vec::new()
}

/// The clusters to which the routes of a configuration send requests.
fn clusters_of(routes: &RouteConfiguration) -> Vec<ResourceName> {
    let routes = routes.virtual_hosts.iter().flat_map(|host| &host.routes);
    let mut names = Vec::new();
    for action in routes.filter_map(|route| route.action.as_ref()) {
        let route::Action::Route(action) = action else {
            continue;
        };
        match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => names.push(ResourceName::new(name)),
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                let clusters = weighted.clusters.iter();
                names.extend(clusters.map(|cluster| ResourceName::new(&cluster.name)));
            }
            Some(_) | None => {}
        }
    }
    names
}

/// The routes, or the extensions, to which a listener refers.
fn names_in_listener(listener: &Listener, resource_type: ResourceType) -> Vec<ResourceName> {
    let mut names = Vec::new();

    for manager in chains(listener).filter_map(manager_of) {
        if resource_type == ResourceType::ExtensionConfig {
            names.extend(extensions_of(&manager).map(ResourceName::new));
        } else {
            names.extend(routes_of(&manager).map(ResourceName::new));
        }
    }

    names
}

/// The ECDS resource names of a connection manager.
fn extensions_of(manager: &HttpConnectionManager) -> impl Iterator<Item = &String> {
    let is_requested = |filter: &&HttpFilter| {
        matches!(
            filter.config_type,
            Some(http_filter::ConfigType::ConfigDiscovery(_))
        )
    };
    manager
        .http_filters
        .iter()
        .filter(is_requested)
        .map(|filter| &filter.name)
}

pub(super) fn chains(listener: &Listener) -> impl Iterator<Item = &FilterChain> {
    listener
        .filter_chains
        .iter()
        .chain(&listener.default_filter_chain)
}

/// The connection manager of a filter chain, if it has one.
pub(super) fn manager_of(chain: &FilterChain) -> Option<HttpConnectionManager> {
    let config = chain
        .filters
        .iter()
        .find_map(|filter| match &filter.config_type {
            Some(ConfigType::TypedConfig(config))
                if config.type_url.ends_with(".HttpConnectionManager") =>
            {
                Some(config)
            }
            Some(ConfigType::TypedConfig(_) | ConfigType::ConfigDiscovery(_)) | None => None,
        });
    HttpConnectionManager::decode(config?.value.as_slice()).ok()
}

/// The RDS resource name of a connection manager, if it uses RDS.
pub(super) fn routes_of(manager: &HttpConnectionManager) -> Option<&str> {
    match &manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => Some(&rds.route_config_name),
        Some(RouteSpecifier::RouteConfig(_) | RouteSpecifier::ScopedRoutes(_)) | None => None,
    }
}
