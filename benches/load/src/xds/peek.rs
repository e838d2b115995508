//! Reads the few fields of Envoy's resources that decide a client's next subscriptions, without
//! decoding the rest.

use anyhow::Result;

use crate::xds::wire::{Fields, Value};

/// The end of the type URL of an HTTP connection manager.
const CONNECTION_MANAGER: &[u8] = b"http_connection_manager.v3.HttpConnectionManager";

/// Passes each length-delimited value of a field to `take`.
fn each<'a>(message: &'a [u8], field: u64, mut take: impl FnMut(&'a [u8])) -> Result<()> {
    let mut fields = Fields(message);
    while let Some(read) = fields.read()? {
        match read {
            (number, Value::Bytes(value)) if number == field => take(value),
            _ => {}
        }
    }
    Ok(())
}

/// The length-delimited value of a field; `None` if it is absent, or the bytes are not a valid
/// message.
fn one(message: &[u8], field: u64) -> Option<&[u8]> {
    let mut found = None;
    each(message, field, |value| found = Some(value)).ok()?;
    found
}

/// The name of a resource in the state-of-the-world protocol, which has it in the content only:
/// field 1 of clusters, listeners, route configurations and endpoint sets. It is usually the first
/// encoded field.
pub(crate) fn name_of(content: &[u8]) -> &[u8] {
    match Fields(content).read() {
        Ok(Some((1, Value::Bytes(name)))) => name,
        _ => one(content, 1).unwrap_or_default(),
    }
}

/// The EDS service name of an `envoy.config.cluster.v3.Cluster`; `None` for clusters of other
/// types.
pub(crate) fn endpoints_of(cluster: &[u8]) -> Option<&[u8]> {
    /// `Cluster.DiscoveryType.EDS`.
    const EDS: u64 = 3;
    let mut name: &[u8] = &[];
    let mut discovery = 0;
    let mut service_name: &[u8] = &[];
    let mut fields = Fields(cluster);

    while let Some(read) = fields.read().ok()? {
        match read {
            (1, Value::Bytes(value)) => name = value,
            (2, Value::Number(value)) => discovery = value,
            // `EdsClusterConfig.service_name`.
            (3, Value::Bytes(eds)) => service_name = one(eds, 2).unwrap_or_default(),
            _ => {}
        }
    }

    (discovery == EDS).then_some(if service_name.is_empty() {
        name
    } else {
        service_name
    })
}

/// Whether an `envoy.config.route.v3.RouteConfiguration` has on-demand virtual hosts (`vhds`).
pub(crate) fn has_vhds(routes: &[u8]) -> bool {
    one(routes, 9).is_some()
}

/// Appends the RDS names of an `envoy.config.listener.v3.Listener`: those of the connection
/// managers in all filter chains, including the default one.
pub(crate) fn routes_of<'a>(listener: &'a [u8], found: &mut Vec<&'a [u8]>) {
    let mut chains = Vec::new();
    let mut filters = Vec::new();

    // An invalid listener refers to no routes.
    let _ = each(listener, 3, |chain| chains.push(chain));
    chains.extend(one(listener, 25));
    for chain in chains {
        let _ = each(chain, 3, |filter| filters.push(filter));
    }

    for filter in filters {
        let Some(config) = one(filter, 4) else {
            continue;
        };
        if !one(config, 1).is_some_and(|type_url| type_url.ends_with(CONNECTION_MANAGER)) {
            continue;
        }
        // `HttpConnectionManager.rds` and `Rds.route_config_name`.
        if let Some(rds) = one(config, 2).and_then(|manager| one(manager, 3)) {
            found.push(one(rds, 2).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::any::pack;
    use navarch_proto::envoy::config::{cluster::v3 as cluster, listener::v3 as listener};
    use navarch_proto::envoy::extensions::filters::network::http_connection_manager::v3 as manager;
    use prost::Message;

    use super::*;

    fn eds(service_name: &str) -> Vec<u8> {
        let config = cluster::cluster::EdsClusterConfig {
            service_name: service_name.to_owned(),
            eds_config: None,
        };
        let cluster = cluster::Cluster {
            name: "a".to_owned(),
            alt_stat_name: "other".to_owned(),
            eds_cluster_config: Some(config),
            cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(
                cluster::cluster::DiscoveryType::Eds.into(),
            )),
            ..Default::default()
        };
        cluster.encode_to_vec()
    }

    #[test]
    fn clusters_subscribe_by_service_name_or_their_own_name() {
        assert_eq!(endpoints_of(&eds("b")).unwrap(), b"b");
        assert_eq!(endpoints_of(&eds("")).unwrap(), b"a");
        let fixed = cluster::Cluster {
            name: "a".to_owned(),
            ..Default::default()
        };
        assert_eq!(endpoints_of(&fixed.encode_to_vec()), None);
        assert_eq!(endpoints_of(b"\xff"), None);
    }

    #[test]
    fn listeners_subscribe_to_the_routes_of_all_their_chains() {
        let chain = |name: &str| {
            let rds = manager::Rds {
                route_config_name: name.to_owned(),
                config_source: None,
            };
            let specifier = manager::http_connection_manager::RouteSpecifier::Rds(rds);
            let manager = manager::HttpConnectionManager {
                route_specifier: Some(specifier),
                ..Default::default()
            };
            let config = listener::filter::ConfigType::TypedConfig(pack(&manager));

            let filter = listener::Filter {
                name: "hcm".to_owned(),
                config_type: Some(config),
            };
            listener::FilterChain {
                filters: vec![filter],
                ..Default::default()
            }
        };

        let listener = listener::Listener {
            name: "l".to_owned(),
            filter_chains: vec![chain("80"), listener::FilterChain::default()],
            default_filter_chain: Some(Box::new(chain("81"))).map(|chain| *chain),
            ..Default::default()
        };

        let listener = listener.encode_to_vec();
        let mut found = Vec::new();
        routes_of(&listener, &mut found);
        assert_eq!(found, [b"80", b"81"]);
        assert_eq!(name_of(&listener), b"l");
        routes_of(&listener[..listener.len() - 1], &mut Vec::new());
    }
}
