//! The few fields of Envoy's resources that tell a client what to ask for next, read without decoding the rest.
//!
//! Each message here is Envoy's with all other fields left out; they are skipped, not kept.

use bytes::Bytes;
use prost::Message;

use crate::wire::Content;

/// A resource with its name in field 1: clusters, listeners, route configurations, endpoint sets, secrets.
#[derive(Clone, PartialEq, Message)]
struct Named {
    /// The name.
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
}

/// `envoy.config.cluster.v3.Cluster`.
#[derive(Clone, PartialEq, Message)]
struct Cluster {
    /// The name.
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    /// How it is discovered; 3 is EDS.
    #[prost(int32, tag = "2")]
    discovery: i32,
    /// The settings of EDS.
    #[prost(message, optional, tag = "3")]
    eds: Option<EdsConfig>,
}

/// `Cluster.EdsClusterConfig`.
#[derive(Clone, PartialEq, Message)]
struct EdsConfig {
    /// What to ask for instead of the cluster's name.
    #[prost(bytes = "bytes", tag = "2")]
    service_name: Bytes,
}

/// `envoy.config.listener.v3.Listener`.
#[derive(Clone, PartialEq, Message)]
struct Listener {
    /// Its chains.
    #[prost(message, repeated, tag = "3")]
    chains: Vec<Chain>,
    /// The chain for what fits none.
    #[prost(message, optional, tag = "25")]
    default_chain: Option<Chain>,
}

/// `FilterChain`.
#[derive(Clone, PartialEq, Message)]
struct Chain {
    /// Its network filters.
    #[prost(message, repeated, tag = "3")]
    filters: Vec<Filter>,
}

/// `Filter`.
#[derive(Clone, PartialEq, Message)]
struct Filter {
    /// Its settings.
    #[prost(message, optional, tag = "4")]
    config: Option<Content>,
}

/// `HttpConnectionManager`.
#[derive(Clone, PartialEq, Message)]
struct ConnectionManager {
    /// The route configuration that comes over RDS.
    #[prost(message, optional, tag = "3")]
    rds: Option<Rds>,
}

/// `Rds`.
#[derive(Clone, PartialEq, Message)]
struct Rds {
    /// What to ask for.
    #[prost(bytes = "bytes", tag = "2")]
    name: Bytes,
}

/// `envoy.config.route.v3.RouteConfiguration`.
#[derive(Clone, PartialEq, Message)]
struct RouteConfiguration {
    /// Where further virtual hosts come from.
    #[prost(message, optional, tag = "9")]
    vhds: Option<Vhds>,
}

/// `Vhds`.
#[derive(Clone, PartialEq, Message)]
struct Vhds {}

/// The end of the type of an HTTP connection manager.
const CONNECTION_MANAGER: &[u8] = b"http_connection_manager.v3.HttpConnectionManager";

/// The name of a resource of the state-of-the-world protocol, which only its content tells.
pub(crate) fn name_of(content: &Content) -> Bytes {
    Named::decode(content.value.clone()).map(|named| named.name).unwrap_or_default()
}

/// What a cluster asks EDS for; `None` where its endpoints come another way.
pub(crate) fn endpoints_of(cluster: &Bytes) -> Option<Bytes> {
    /// `Cluster.DiscoveryType.EDS`.
    const EDS: i32 = 3;
    let cluster = Cluster::decode(cluster.clone()).ok()?;
    (cluster.discovery == EDS).then(|| match cluster.eds {
        Some(eds) if !eds.service_name.is_empty() => eds.service_name,
        _ => cluster.name,
    })
}

/// Whether a route configuration says that its virtual hosts come one by one.
pub(crate) fn has_vhds(routes: &Bytes) -> bool {
    RouteConfiguration::decode(routes.clone()).is_ok_and(|routes| routes.vhds.is_some())
}

/// The route configurations that a listener asks RDS for.
pub(crate) fn routes_of(listener: &Bytes) -> Vec<Bytes> {
    let Ok(listener) = Listener::decode(listener.clone()) else { return Vec::new() };
    let chains = listener.chains.into_iter().chain(listener.default_chain);
    let configs = chains.flat_map(|chain| chain.filters).filter_map(|filter| filter.config);
    configs
        .filter(|config| config.type_url.ends_with(CONNECTION_MANAGER))
        .filter_map(|config| ConnectionManager::decode(config.value).ok()?.rds)
        .map(|rds| rds.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::config::{cluster::v3 as cluster, listener::v3 as listener};
    use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3 as manager;

    use super::*;

    fn eds(service_name: &str) -> Bytes {
        let config = cluster::cluster::EdsClusterConfig { service_name: service_name.to_owned(), eds_config: None };
        let cluster = cluster::Cluster {
            name: "a".to_owned(),
            alt_stat_name: "other".to_owned(),
            eds_cluster_config: Some(config),
            cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
                cluster::cluster::DiscoveryType::Eds.into(),
            )),
            ..Default::default()
        };
        cluster.encode_to_vec().into()
    }

    #[test]
    fn clusters_ask_by_their_service_name_or_their_own() {
        assert_eq!(endpoints_of(&eds("b")).unwrap(), "b");
        assert_eq!(endpoints_of(&eds("")).unwrap(), "a");
        let fixed = cluster::Cluster { name: "a".to_owned(), ..Default::default() };
        assert_eq!(endpoints_of(&fixed.encode_to_vec().into()), None);
        assert_eq!(endpoints_of(&Bytes::from_static(b"\xff")), None);
    }

    #[test]
    fn listeners_ask_for_the_routes_of_all_their_chains() {
        let chain = |name: &str| {
            let rds = manager::Rds { route_config_name: name.to_owned(), config_source: None };
            let specifier = manager::http_connection_manager::RouteSpecifier::Rds(rds);
            let manager = manager::HttpConnectionManager { route_specifier: Some(specifier), ..Default::default() };
            let config = listener::filter::ConfigType::TypedConfig(pack(&manager));
            let filter = listener::Filter { name: "hcm".to_owned(), config_type: Some(config) };
            listener::FilterChain { filters: vec![filter], ..Default::default() }
        };
        let listener = listener::Listener {
            name: "l".to_owned(),
            filter_chains: vec![chain("80"), listener::FilterChain::default()],
            default_filter_chain: Some(Box::new(chain("81"))).map(|chain| *chain),
            ..Default::default()
        };
        assert_eq!(routes_of(&listener.encode_to_vec().into()), ["80", "81"]);
        let content = Content { type_url: Bytes::new(), value: listener.encode_to_vec().into() };
        assert_eq!(name_of(&content), "l");
    }
}
