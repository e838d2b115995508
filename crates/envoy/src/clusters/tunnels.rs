//! The clusters to the listeners of tunnels, and to the ends of tunnels (`hbone` has the drawing).

use navarch_proto::any;
use navarch_proto::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use navarch_proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, LbConfig, LbPolicy, OriginalDstLbConfig,
};
use navarch_proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster};
use navarch_proto::envoy::config::core::v3::{
    Http2ProtocolOptions, HttpProtocolOptions as Common, TransportSocket,
};
use navarch_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use navarch_proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use navarch_proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use navarch_proto::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};
use navarch_proto::envoy::r#type::metadata::v3::MetadataKey;
use navarch_proto::envoy::r#type::metadata::v3::metadata_key::{
    PathSegment, path_segment::Segment,
};

use super::{HttpOptions, OPTIONS_KEY, stat_name};
use crate::build::internal_address;
use crate::filters::tunnel;
use crate::hbone::{
    ENCAP, FORWARD, INNER, MAIN, ORIGINAL_DST, ORIGINATE, OUTER, PORT, joins_networks,
};
use crate::tunnel_sockets as sockets;
use navarch_api::duration::Duration;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// Default idle timeout of a tunnel.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Cleanup interval of original destination hosts.
const CLEANUP: prost_types::Duration = prost_types::Duration {
    seconds: 60,
    nanos: 0,
};

/// The number of requests per connection of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pooling {
    Shared,
    Single,
}

/// The cluster for traffic from terminated tunnels.
pub(super) fn main(view: &View<'_>) -> Cluster {
    let mut cluster = internal(
        view,
        MAIN,
        MAIN,
        sockets::internal("internal_upstream", sockets::raw()),
    );
    set_options(&mut cluster, HttpOptions::passthrough_plain().into_wire());
    cluster
}

/// The cluster into tunnels, for traffic to workloads. At a gateway between networks the inner
/// tunnel already exists.
pub(super) fn encap(view: &View<'_>) -> Cluster {
    if joins_networks(view) {
        return internal(
            view,
            ENCAP,
            FORWARD,
            sockets::internal("internal_upstream", sockets::raw()),
        );
    }
    let mut cluster = internal(
        view,
        ENCAP,
        ORIGINATE,
        sockets::internal("internal_upstream", sockets::raw()),
    );
    set_options(&mut cluster, HttpOptions::passthrough_plain().into_wire());
    cluster.filters.extend(tunnel::cluster_baggage(view));
    cluster
}

/// The cluster to the ends of tunnels: by the metadata of the endpoint, else to its address.
/// Waypoints additionally accept identities of their own namespace.
pub(super) fn originate(view: &View<'_>) -> Cluster {
    let own = view.proxy().kind() == ProxyKind::Waypoint
        && !view.mesh().settings.skip_validate_trust_domain;
    let tls = sockets::common_tls(view, own.then(|| sockets::own_namespace(view)));
    let mut cluster = original(
        view,
        ORIGINATE,
        Some(waypoint_key()),
        sockets::client_tls(tls),
    );
    set_options(&mut cluster, Some(connect_options(view, Pooling::Shared)));
    cluster
}

/// The cluster to the ends of inner tunnels, which are forwarded as bytes: waypoints by the
/// metadata of the endpoint, else workloads.
pub(super) fn forward(view: &View<'_>) -> Cluster {
    Cluster {
        transport_socket: None,
        ..original(view, FORWARD, Some(waypoint_key()), sockets::raw())
    }
}

/// The metadata key with the waypoint of an endpoint.
fn waypoint_key() -> MetadataKey {
    let segment = PathSegment {
        segment: Some(Segment::Key("waypoint".to_owned())),
    };
    MetadataKey {
        key: ORIGINAL_DST.to_owned(),
        path: vec![segment],
    }
}

/// The cluster into the inner of two tunnels.
pub(super) fn inner(view: &View<'_>) -> Cluster {
    let tls = sockets::client_tls(sockets::common_tls(view, None));
    let mut cluster = internal(
        view,
        INNER,
        OUTER,
        sockets::internal("internal_upstream_with_tls", tls),
    );
    set_options(&mut cluster, Some(connect_options(view, Pooling::Single)));
    cluster
}

/// The cluster into the outer of two tunnels.
pub(super) fn outer(view: &View<'_>) -> Cluster {
    let tls = sockets::client_tls(sockets::common_tls(view, None));
    let mut cluster = original(view, OUTER, None, tls);
    set_options(&mut cluster, Some(connect_options(view, Pooling::Single)));
    cluster
}

/// A cluster whose only endpoint is an internal listener.
fn internal(view: &View<'_>, name: &str, listener: &str, socket: TransportSocket) -> Cluster {
    let endpoint = Endpoint {
        address: Some(internal_address(listener, "")),
        ..Endpoint::default()
    };
    let endpoint = LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
        ..LbEndpoint::default()
    };

    let endpoints = vec![LocalityLbEndpoints {
        lb_endpoints: vec![endpoint],
        ..LocalityLbEndpoints::default()
    }];
    Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            endpoints,
            ..ClusterLoadAssignment::default()
        }),
        transport_socket: Some(socket),
        ..base(view, name)
    }
}

/// A cluster to port [`PORT`] of the original destination.
fn original(
    view: &View<'_>,
    name: &str,
    metadata_key: Option<MetadataKey>,
    socket: TransportSocket,
) -> Cluster {
    Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(
            DiscoveryType::OriginalDst.into(),
        )),
        lb_policy: LbPolicy::ClusterProvided.into(),
        connect_timeout: view.mesh().config.connect_timeout.map(Into::into),
        cleanup_interval: Some(CLEANUP),
        lb_config: Some(LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
            upstream_port_override: Some(u32::from(PORT)),
            metadata_key,
            ..OriginalDstLbConfig::default()
        })),
        transport_socket: Some(socket),
        ..base(view, name)
    }
}

/// The common part of all these clusters. Limits are for clusters of services, whose connections
/// all share these.
fn base(view: &View<'_>, name: &str) -> Cluster {
    let limits = Thresholds {
        max_connections: Some(u32::MAX),
        max_pending_requests: Some(u32::MAX),
        max_requests: Some(u32::MAX),
        max_retries: Some(u32::MAX),
        track_remaining: !view.mesh().settings.disable_track_remaining,
        ..Thresholds::default()
    };
    Cluster {
        name: name.to_owned(),
        alt_stat_name: stat_name(name),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![limits],
            ..CircuitBreakers::default()
        }),
        ..Cluster::default()
    }
}

/// HTTP/2 options for CONNECT.
fn connect_options(view: &View<'_>, pooling: Pooling) -> prost_types::Any {
    let mesh = view.mesh();
    let window = |bytes: u32| Some(bytes).filter(|bytes| *bytes > 0);
    let http2 = Http2ProtocolOptions {
        allow_connect: true,
        initial_stream_window_size: window(mesh.settings.hbone.stream_window),
        initial_connection_window_size: window(mesh.settings.hbone.connection_window),
        ..Http2ProtocolOptions::default()
    };

    let options = HttpProtocolOptions {
        common_http_protocol_options: Some(Common {
            idle_timeout: Some(
                mesh.config
                    .hbone_idle_timeout
                    .unwrap_or(IDLE_TIMEOUT)
                    .into(),
            ),
            max_requests_per_connection: (pooling == Pooling::Single).then_some(1),
            ..Common::default()
        }),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(http2)),
            },
        )),
        ..HttpProtocolOptions::default()
    };

    any::pack(&options)
}

/// Sets HTTP protocol options.
fn set_options(cluster: &mut Cluster, options: Option<prost_types::Any>) {
    cluster
        .typed_extension_protocol_options
        .extend(options.map(|options| (OPTIONS_KEY.to_owned(), options)));
}
