//! What a proxy has: the services that it sees, what its own extensions send to, and which objects
//! route its requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use navarch_answers::received::ProxyResources;
use navarch_api::names::Hostname;
use navarch_base::resource_version::Version;
use navarch_envoy::names::OutboundCluster;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::core::v3::Metadata;
use navarch_proto::envoy::config::route::v3::route::Action;
use navarch_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use navarch_proto::envoy::config::route::v3::{RouteAction, RouteConfiguration, VirtualHost};
use navarch_proto::json::Codec;
use navarch_push::resource::{Resource, ResourceType};
use navarch_tables::hash::KeyedMap;
use prost::Message;
use prost_types::Struct;
use prost_types::value::Kind;
use serde::{Deserialize, Serialize};

use super::listener_uses::ListenerUses;

/// The key of Istio's metadata.
const ISTIO: &str = "istio";

/// The size of one proxy's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// The number of its clusters.
    pub clusters: usize,
    /// The encoded size of all of its resources: clusters, endpoints, listeners, routes and names.
    pub bytes: usize,
}

/// The VirtualService that the metadata of a route names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectPath {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A virtual host, or a filter chain, and where it sends requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routed {
    /// As reasons name it: a virtual host with its name, or `a filter chain`.
    pub(crate) place: String,
    /// Its route configuration or listener.
    pub(crate) within: String,
    /// The host in the name of a virtual host; empty for filter chains.
    pub(crate) host: String,
    /// The port in the name of a virtual host; `None` for filter chains.
    pub(crate) port: Option<u16>,
    /// The hosts of its destinations.
    pub(crate) hosts: BTreeSet<String>,
    /// The objects that have made its routes.
    pub(crate) objects: BTreeSet<ObjectPath>,
    /// A digest of its routes; `None` for filter chains.
    pub(crate) content: Option<Version>,
}

/// What one proxy has.
#[derive(Debug, Default)]
pub(crate) struct ProxyConfig {
    /// The names of its clusters for services.
    pub(crate) clusters: BTreeSet<String>,
    /// The namespace of each service that it sees, by host.
    pub(crate) services: BTreeMap<String, String>,
    /// The hosts that its own extensions send to, and the names of these.
    pub(crate) extensions: BTreeMap<String, BTreeSet<String>>,
    /// The parts of its routes and listeners, those of a resource together.
    routed: Vec<Arc<Vec<Routed>>>,
    pub(crate) size: Size,
}

/// A cluster for a service.
#[derive(Clone, Debug)]
struct ServiceCluster {
    host: String,
    /// Empty if its metadata has none.
    namespace: String,
}

/// A read resource. It is kept, so that its address is not reused.
#[derive(Debug)]
struct Read<T> {
    _kept: Arc<Resource>,
    value: Arc<T>,
}

/// Reads what proxies have. Most of their resources are shared, and each is decoded once.
#[derive(Debug)]
pub(crate) struct ConfigReader {
    codec: Codec,
    clusters: KeyedMap<usize, Read<Option<ServiceCluster>>>,
    routes: KeyedMap<usize, Read<Vec<Routed>>>,
    listeners: KeyedMap<usize, Read<ListenerParts>>,
}

/// What is kept of a listener.
#[derive(Debug, Default)]
struct ListenerParts {
    extensions: BTreeMap<String, BTreeSet<String>>,
    chains: Arc<Vec<Routed>>,
}

impl ObjectPath {
    /// The object of a path such as
    /// `/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web`; `None` for other kinds.
    pub(crate) fn of_virtual_service(path: &str) -> Option<Self> {
        let (_, rest) = path.split_once("/namespaces/")?;
        let (namespace, rest) = rest.split_once('/')?;
        let name = rest.strip_prefix("virtual-service/")?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Routed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.place, self.within)
    }
}

impl Routed {
    /// Whether requests are routed as by another one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.place == other.place && self.content == other.content && self.objects == other.objects
    }
}

impl ProxyConfig {
    /// The parts of its routes and listeners.
    pub(crate) fn routed(&self) -> impl Iterator<Item = &Routed> {
        self.routed.iter().flat_map(|parts| parts.iter())
    }

    /// Whether a virtual host is that of a service at a port that the service does not have. Istio
    /// routes a VirtualService's hosts at each port at which any service is routed as HTTP.
    pub(crate) fn lacks_port(&self, routed: &Routed) -> bool {
        let Some(port) = routed.port else {
            return false;
        };
        let cluster = OutboundCluster::new(port, "", &Hostname::new(&routed.host));
        self.services.contains_key(&routed.host) && !self.clusters.contains(&cluster.to_string())
    }
}

impl ConfigReader {
    pub(crate) fn new() -> Self {
        Self {
            codec: Codec::new(),
            clusters: KeyedMap::default(),
            routes: KeyedMap::default(),
            listeners: KeyedMap::default(),
        }
    }

    /// What a proxy has.
    pub(crate) fn read(&mut self, had: &ProxyResources) -> ProxyConfig {
        let mut config = ProxyConfig::default();
        for (resource_type, collection) in had {
            for resource in &collection.resources {
                config.size.bytes += resource.body.len();
                if *resource_type == ResourceType::Cluster {
                    self.add_cluster(&mut config, resource);
                } else if matches!(
                    resource_type,
                    ResourceType::Listener | ResourceType::ExtensionConfig
                ) {
                    self.add_listener(&mut config, resource);
                } else if *resource_type == ResourceType::Route {
                    config.routed.push(self.routes(resource));
                }
            }
        }
        config
    }

    fn add_cluster(&mut self, config: &mut ProxyConfig, resource: &Arc<Resource>) {
        config.size.clusters += 1;
        let read = || Read {
            _kept: resource.clone(),
            value: Arc::new(ServiceCluster::of(resource)),
        };
        let key = Arc::as_ptr(resource).addr();
        let cluster = &self.clusters.entry(key).or_insert_with(read).value;
        let Some(cluster) = cluster.as_ref() else {
            return;
        };

        config.clusters.insert(resource.name.as_str().to_owned());
        let namespace = config.services.entry(cluster.host.clone()).or_default();
        if namespace.is_empty() {
            namespace.clone_from(&cluster.namespace);
        }
    }

    /// Adds a listener, or an extension that listeners request on its own, such as a WasmPlugin.
    fn add_listener(&mut self, config: &mut ProxyConfig, resource: &Arc<Resource>) {
        let codec = &self.codec;
        let read = || Read {
            _kept: resource.clone(),
            value: Arc::new(ListenerParts::of(codec, resource)),
        };
        let key = Arc::as_ptr(resource).addr();
        let parts = &self.listeners.entry(key).or_insert_with(read).value;

        for (host, owners) in &parts.extensions {
            let known = config.extensions.entry(host.clone()).or_default();
            known.extend(owners.iter().cloned());
        }
        config.routed.push(parts.chains.clone());
    }

    fn routes(&mut self, resource: &Arc<Resource>) -> Arc<Vec<Routed>> {
        let read = || Read {
            _kept: resource.clone(),
            value: Arc::new(routed(resource)),
        };
        let key = Arc::as_ptr(resource).addr();
        self.routes.entry(key).or_insert_with(read).value.clone()
    }
}

impl ListenerParts {
    /// Those of a listener or an extension; none without a JSON form. What Navarch translates, also
    /// by EnvoyFilters, has types that it can write as JSON.
    fn of(codec: &Codec, resource: &Resource) -> Self {
        let url = resource.resource_type.type_url();
        let Ok(listener) = codec.to_json(url, &resource.body) else {
            return Self::default();
        };
        let uses = ListenerUses::of(&listener);
        Self {
            extensions: uses.extensions,
            chains: Arc::new(uses.chains),
        }
    }
}

impl ServiceCluster {
    /// `None` for clusters of the proxy itself.
    fn of(resource: &Resource) -> Option<Self> {
        let name = OutboundCluster::parse(resource.name.as_str())?;
        let host = name.host.as_str();
        let cluster = Cluster::decode(resource.body.clone()).ok()?;
        let namespace = cluster
            .metadata
            .as_ref()
            .and_then(|metadata| namespace_of(metadata, host));
        Some(Self {
            host: host.to_owned(),
            namespace: namespace.unwrap_or_default(),
        })
    }
}

/// The namespace of a host in the services of a cluster's metadata.
fn namespace_of(metadata: &Metadata, host: &str) -> Option<String> {
    let istio = metadata.filter_metadata.get(ISTIO)?;
    let Some(Kind::ListValue(services)) = &istio.fields.get("services")?.kind else {
        return None;
    };
    let services = services.values.iter().filter_map(|service| {
        if let Some(Kind::StructValue(service)) = &service.kind {
            Some(service)
        } else {
            None
        }
    });
    let mut own = services.filter(|service| text(service, "host") == host);
    own.next()
        .map(|service| text(service, "namespace").to_owned())
}

/// A text of a structure; empty if it is missing.
fn text<'a>(structure: &'a Struct, key: &str) -> &'a str {
    match structure
        .fields
        .get(key)
        .and_then(|value| value.kind.as_ref())
    {
        Some(Kind::StringValue(text)) => text,
        _ => "",
    }
}

/// The virtual hosts of a route configuration.
fn routed(resource: &Resource) -> Vec<Routed> {
    let Ok(routes) = RouteConfiguration::decode(resource.body.clone()) else {
        return Vec::new();
    };
    let of_host = |host: &VirtualHost| of_virtual_host(&routes.name, host);
    routes.virtual_hosts.iter().map(of_host).collect()
}

fn of_virtual_host(configuration: &str, virtual_host: &VirtualHost) -> Routed {
    let mut hosts = BTreeSet::new();
    let mut objects = BTreeSet::new();
    let mut encoded = Vec::new();
    for route in &virtual_host.routes {
        encoded.extend(route.encode_length_delimited_to_vec());
        let istio = route
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.filter_metadata.get(ISTIO));
        let path = istio.map_or("", |istio| text(istio, "config"));
        objects.extend(ObjectPath::of_virtual_service(path));

        if let Some(Action::Route(action)) = &route.action {
            add_destinations(action, &mut hosts);
        }
    }

    let name = &virtual_host.name;
    let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
    Routed {
        place: format!("virtual host {name}"),
        within: format!("routes {configuration}"),
        host: host.to_owned(),
        port: port.parse().ok(),
        hosts,
        objects,
        content: Some(Version::of(&encoded)),
    }
}

/// Adds the hosts that a route sends to, copies of requests included.
fn add_destinations(action: &RouteAction, hosts: &mut BTreeSet<String>) {
    let mut add = |cluster: &str| {
        let cluster = OutboundCluster::parse(cluster);
        hosts.extend(cluster.map(|cluster| cluster.host.as_str().to_owned()));
    };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => add(cluster),
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            weighted.clusters.iter().for_each(|share| add(&share.name));
        }
        _ => {}
    }
    for mirror in &action.request_mirror_policies {
        add(&mirror.cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_virtual_services_route() {
        let path = |kind: &str| format!("/apis/networking.istio.io/v1/namespaces/shop/{kind}/web");
        let object = ObjectPath::of_virtual_service(&path("virtual-service")).unwrap();
        assert_eq!(
            (object.namespace.as_str(), object.name.as_str()),
            ("shop", "web")
        );
        assert_eq!(ObjectPath::of_virtual_service(&path("sidecar")), None);
        assert_eq!(ObjectPath::of_virtual_service(""), None);
    }
}
