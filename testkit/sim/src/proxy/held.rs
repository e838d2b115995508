//! The resources that a proxy holds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use navarch_proto::envoy::config::listener::v3::filter::ConfigType;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use navarch_proto::istio::mesh::v1alpha1::ProxyConfig;
use prost::Message as _;

/// A type of resources that the simulated proxies subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoint,
    /// LDS.
    Listener,
    /// RDS.
    Route,
    /// SDS.
    Secret,
    /// PCDS, which an agent subscribes to: the roots.
    ProxyConfig,
}

impl Type {
    /// All, in the order in which Envoy subscribes.
    pub const ALL: [Self; 6] = [
        Self::Cluster,
        Self::Endpoint,
        Self::Listener,
        Self::Route,
        Self::Secret,
        Self::ProxyConfig,
    ];

    /// Its URL.
    #[must_use]
    pub fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::ProxyConfig => "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig",
        }
    }

    /// The type with this URL.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url() == url)
    }

    /// Whether all resources of the type are subscribed to.
    #[must_use]
    pub fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener | Self::ProxyConfig)
    }
}

/// A resource: its version in delta xDS, and its encoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldResource {
    /// The version; empty with the state of the world.
    pub version: String,
    /// The message.
    pub bytes: Bytes,
}

/// The resources of each type, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held(BTreeMap<Type, BTreeMap<String, HeldResource>>);

impl Held {
    /// The resources of a type.
    pub fn of(&self, kind: Type) -> impl Iterator<Item = (&String, &HeldResource)> {
        self.0.get(&kind).into_iter().flatten()
    }

    /// A resource.
    #[must_use]
    pub fn get(&self, kind: Type, name: &str) -> Option<&HeldResource> {
        self.0.get(&kind)?.get(name)
    }

    /// The resources of a type, to change them.
    pub(crate) fn entry(&mut self, kind: Type) -> &mut BTreeMap<String, HeldResource> {
        self.0.entry(kind).or_default()
    }

    /// The names of the clusters' endpoints.
    pub(crate) fn endpoint_names(&self) -> BTreeSet<String> {
        self.of(Type::Cluster)
            .filter_map(|(_, resource)| {
                let cluster = Cluster::decode(resource.bytes.clone()).ok()?;
                let config = cluster.eds_cluster_config?;
                Some(match config.service_name.as_str() {
                    "" => cluster.name,
                    name => name.to_owned(),
                })
            })
            .collect()
    }

    /// The names of the listeners' routes.
    pub(crate) fn route_names(&self) -> BTreeSet<String> {
        self.of(Type::Listener)
            .filter_map(|(_, resource)| Listener::decode(resource.bytes.clone()).ok())
            .flat_map(|listener| {
                listener
                    .filter_chains
                    .into_iter()
                    .chain(listener.default_filter_chain)
            })
            .flat_map(route_names_of)
            .collect()
    }

    /// The number of endpoints of a cluster; `None` if they are not held.
    #[must_use]
    pub fn endpoints(&self, name: &str) -> Option<usize> {
        let resource = self.get(Type::Endpoint, name)?;
        let assignment = ClusterLoadAssignment::decode(resource.bytes.clone()).ok()?;
        Some(
            assignment
                .endpoints
                .iter()
                .map(|locality| locality.lb_endpoints.len())
                .sum(),
        )
    }

    /// The roots (PEM).
    pub(crate) fn roots(&self) -> String {
        self.of(Type::ProxyConfig)
            .filter_map(|(_, resource)| ProxyConfig::decode(resource.bytes.clone()).ok())
            .flat_map(|config| config.ca_certificates_pem)
            .collect()
    }

    /// Takes the resources of a type from another proxy.
    pub(crate) fn take_over(&mut self, kind: Type, other: &Self) {
        let resources = other.0.get(&kind).cloned().unwrap_or_default();
        self.0.insert(kind, resources);
    }

    /// In which resources two proxies differ, in words; empty if in none.
    #[must_use]
    pub fn difference(&self, expected: &Self) -> Vec<String> {
        let mut different = Vec::new();
        for kind in Type::ALL {
            let names: BTreeSet<&String> = self
                .of(kind)
                .chain(expected.of(kind))
                .map(|(name, _)| name)
                .collect();
            for name in names {
                let is = self.get(kind, name).map(|resource| &resource.bytes);
                let should = expected.get(kind, name).map(|resource| &resource.bytes);
                match (is, should) {
                    (is, should) if is == should => {}
                    (Some(_), None) => different.push(format!("{kind:?} {name} was not removed")),
                    (None, _) => different.push(format!("{kind:?} {name} is missing")),
                    (Some(_), Some(_)) => different.push(format!("{kind:?} {name} is outdated")),
                }
            }
        }
        different
    }
}

/// The names of the routes of a filter chain.
fn route_names_of(chain: FilterChain) -> Vec<String> {
    let route = |config| {
        let ConfigType::TypedConfig(any) = config else {
            return None;
        };
        if !any.type_url.ends_with(".HttpConnectionManager") {
            return None;
        }
        let manager = HttpConnectionManager::decode(any.value.as_slice()).ok()?;
        match manager.route_specifier? {
            RouteSpecifier::Rds(rds) => Some(rds.route_config_name),
            RouteSpecifier::RouteConfig(_) | RouteSpecifier::ScopedRoutes(_) => None,
        }
    };
    chain
        .filters
        .into_iter()
        .filter_map(|filter| route(filter.config_type?))
        .collect()
}

/// The name of an encoded resource, which is the first field of all of these types.
pub(crate) fn name_of(message: &[u8]) -> String {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }
    Named::decode(message)
        .map(|named| named.name)
        .unwrap_or_default()
}
