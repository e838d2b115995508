//! The upstream to which a cluster sends a connection.

use std::net::SocketAddr;

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, LbConfig,
};
use navarch_proto::envoy::config::core::v3::{
    Address, Metadata, TransportSocket, address, socket_address, transport_socket,
};
use navarch_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, lb_endpoint};

use navarch_proto::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use prost::Message as _;
use prost_types::value::Kind;

use super::listener::socket;
use super::{Connection, Endpoint, Resources, Transport, Upstream};

/// The metadata of endpoints behind tunnels.
const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";
/// The metadata by which an endpoint selects one of its cluster's transport sockets.
const SOCKET_MATCH: &str = "envoy.transport_socket_match";
/// The key in that metadata for endpoints behind tunnels.
const TUNNEL: &str = "tunnel";

/// The upstream of the cluster of this name for a connection.
pub(super) fn of(resources: &Resources, name: &str, connection: &Connection) -> Upstream {
    let Some(cluster) = resources.clusters.get(name) else {
        return Upstream::NoCluster;
    };

    match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(_)) => Upstream::Named(named_host(connection)),
        Some(ClusterDiscoveryType::Type(kind))
            if *kind == i32::from(DiscoveryType::OriginalDst) =>
        {
            Upstream::Original(original(cluster, connection.destination))
        }
        Some(ClusterDiscoveryType::Type(kind)) if *kind == i32::from(DiscoveryType::Eds) => {
            let service = cluster
                .eds_cluster_config
                .as_ref()
                .map(|eds| eds.service_name.as_str())
                .unwrap_or_default();
            let name = if service.is_empty() { name } else { service };
            let all = resources
                .endpoints
                .get(name)
                .map(|assignment| endpoints(assignment, cluster));
            Upstream::Endpoints(all.unwrap_or_default())
        }
        Some(ClusterDiscoveryType::Type(_)) | None => {
            let all = cluster
                .load_assignment
                .as_ref()
                .map(|assignment| endpoints(assignment, cluster));
            Upstream::Endpoints(all.unwrap_or_default())
        }
    }
}

/// The host that a request names, or the SNI.
fn named_host(connection: &Connection) -> String {
    let http = connection.http.as_ref().map(|request| request.host.clone());
    http.or_else(|| connection.tls.as_ref().map(|tls| tls.sni.clone()))
        .unwrap_or_default()
}

/// The original destination, with the cluster's port override, if any.
fn original(cluster: &Cluster, destination: SocketAddr) -> SocketAddr {
    let port = match &cluster.lb_config {
        Some(LbConfig::OriginalDstLbConfig(config)) => config.upstream_port_override,
        Some(_) | None => None,
    };
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(destination.port());
    SocketAddr::new(destination.ip(), port)
}

/// The transport of a cluster to endpoints that select none by metadata.
pub(super) fn transport_of(cluster: &Cluster) -> Transport {
    transport(cluster, None)
}

/// The transport of a cluster to an endpoint with this metadata.
fn transport(cluster: &Cluster, metadata: Option<&Metadata>) -> Transport {
    let socket_match = metadata.and_then(|metadata| metadata.filter_metadata.get(SOCKET_MATCH));
    let mut choices = cluster.transport_socket_matches.iter();
    let chosen = choices.find(|choice| {
        let mut wanted = choice.r#match.iter().flat_map(|wanted| &wanted.fields);
        wanted.all(|(key, value)| {
            socket_match.and_then(|socket_match| socket_match.fields.get(key)) == Some(value)
        })
    });

    match chosen {
        Some(choice)
            if choice
                .r#match
                .as_ref()
                .is_some_and(|wanted| wanted.fields.contains_key(TUNNEL)) =>
        {
            Transport::Tunnel
        }
        Some(choice) => spoken(choice.transport_socket.as_ref()),
        None => spoken(cluster.transport_socket.as_ref()),
    }
}

/// The transport of a transport socket; plain text without one.
fn spoken(socket: Option<&TransportSocket>) -> Transport {
    let Some(transport_socket::ConfigType::TypedConfig(config)) =
        socket.and_then(|socket| socket.config_type.as_ref())
    else {
        return Transport::Plain;
    };

    if config.type_url.ends_with(".UpstreamTlsContext") {
        let context = UpstreamTlsContext::decode(config.value.as_slice()).unwrap_or_default();
        // Istio's own mutual TLS is recognized by its ALPN protocols.
        let offered = context
            .common_tls_context
            .map(|common| common.alpn_protocols)
            .unwrap_or_default();
        let is_mutual = offered.iter().any(|protocol| protocol.starts_with("istio"));
        return if is_mutual {
            Transport::Mutual
        } else {
            Transport::Tls
        };
    }

    if config.type_url.ends_with(".ProxyProtocolUpstreamTransport") {
        let wrapper =
            ProxyProtocolUpstreamTransport::decode(config.value.as_slice()).unwrap_or_default();
        return spoken(wrapper.transport_socket.as_ref());
    }

    Transport::Plain
}

fn endpoints(assignment: &ClusterLoadAssignment, cluster: &Cluster) -> Vec<Endpoint> {
    let mut all = Vec::new();

    for locality in &assignment.endpoints {
        for endpoint in &locality.lb_endpoints {
            let Some(lb_endpoint::HostIdentifier::Endpoint(host)) = &endpoint.host_identifier
            else {
                continue;
            };

            let inner = |name: &str| tunnel(endpoint.metadata.as_ref()?, name);
            let address = inner("local").or_else(|| host.address.as_ref().and_then(shown));
            let Some(address) = address else { continue };
            let weight = endpoint.load_balancing_weight.unwrap_or(1);
            let is_internal = matches!(
                host.address
                    .as_ref()
                    .and_then(|address| address.address.as_ref()),
                Some(address::Address::EnvoyInternalAddress(_))
            );

            let transport = if is_internal {
                Transport::Tunnel
            } else {
                transport(cluster, endpoint.metadata.as_ref())
            };

            let waypoint = inner("waypoint");
            let priority = locality.priority;
            all.push(Endpoint {
                address,
                waypoint,
                priority,
                weight,
                transport,
            });
        }
    }

    all
}

/// The value of the endpoint's tunnel metadata: the destination (`local`), or the waypoint at which
/// the tunnel ends (`waypoint`).
fn tunnel(metadata: &Metadata, name: &str) -> Option<String> {
    match metadata
        .filter_metadata
        .get(ORIGINAL_DST)?
        .fields
        .get(name)?
        .kind
        .as_ref()?
    {
        Kind::StringValue(text) => Some(text.clone()),
        Kind::NullValue(_)
        | Kind::NumberValue(_)
        | Kind::BoolValue(_)
        | Kind::StructValue(_)
        | Kind::ListValue(_) => None,
    }
}

/// An address as text.
fn shown(address: &Address) -> Option<String> {
    if let Some(socket) = socket(address) {
        return Some(socket.to_string());
    }
    match address.address.as_ref()? {
        address::Address::SocketAddress(named) => {
            let port = match named.port_specifier.as_ref()? {
                socket_address::PortSpecifier::PortValue(port) => port.to_string(),
                socket_address::PortSpecifier::NamedPort(name) => name.clone(),
            };
            Some(format!("{}:{port}", named.address))
        }
        address::Address::Pipe(pipe) => Some(pipe.path.clone()),
        // Without tunnel metadata, this is a listener of the proxy itself.
        address::Address::EnvoyInternalAddress(_) => None,
    }
}
