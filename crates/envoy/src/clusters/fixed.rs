//! Clusters of every proxy, independent of services.

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::LbPolicy;
use navarch_proto::envoy::config::core::v3::{
    BindConfig, ExtraSourceAddress, SocketAddress, socket_address,
};
use navarch_proto::envoy::config::endpoint::v3::{LbEndpoint, LocalityLbEndpoints};

use super::builder::{ClusterBuilder, Discovery, stat_name};
use super::http::{HttpOptions, HttpVersion};
use super::{connection_pool, exchange_filter};
use crate::endpoints::wire;
use crate::names::{BLACK_HOLE, INBOUND_PASSTHROUGH, PASSTHROUGH};
use crate::sds;
use navarch_push::proxy::IpFamilies;
use navarch_push::view::View;

/// The loopback address of the workload, IPv4.
pub(super) const LOCALHOST_V4: &str = "127.0.0.1";
/// The loopback address of the workload, IPv6.
pub(super) const LOCALHOST_V6: &str = "::1";
/// The IPv4 source address of the proxy's own connections to the workload, which is excluded from
/// redirection.
const SOURCE_V4: &str = "127.0.0.6";
/// The IPv6 source address of the proxy's own connections to the workload.
const SOURCE_V6: &str = "::6";
/// The socket of an SDS server in the proxy's pod.
const CREDENTIAL_SOCKET: &str = "./var/run/secrets/credential-uds/socket";

/// The cluster without endpoints.
pub(super) fn black_hole(view: &View<'_>) -> Cluster {
    let mut builder = ClusterBuilder::new(BLACK_HOLE, Discovery::Static);
    builder.cluster.connect_timeout = view.mesh().config.connect_timeout.map(Into::into);
    builder.finish()
}

/// The cluster for traffic to unknown services.
pub(super) fn passthrough(view: &View<'_>) -> Cluster {
    let mut builder = passthrough_builder(view, PASSTHROUGH);
    builder.cluster.filters.extend(exchange_filter(view));
    builder.finish()
}

/// The cluster for inbound traffic on ports without a service. It has the stat name of the outbound
/// one.
pub(super) fn inbound_passthrough(view: &View<'_>) -> Cluster {
    let mut builder = passthrough_builder(view, INBOUND_PASSTHROUGH);
    let families = view.proxy().families();
    builder.cluster.alt_stat_name = stat_name(PASSTHROUGH);
    builder.cluster.upstream_bind_config = Some(bind_config(families, true));
    builder.finish()
}

/// The cluster of an SDS server in the proxy's pod, if any.
pub(super) fn external_sds(view: &View<'_>) -> Option<Cluster> {
    if !has_external_sds(view) {
        return None;
    }
    let mut builder = ClusterBuilder::new(sds::EXTERNAL_CLUSTER, Discovery::Static);
    builder.cluster.connect_timeout = view.mesh().config.connect_timeout.map(Into::into);
    builder.http.version = HttpVersion::Http2(Box::default());
    let server = LbEndpoint {
        host_identifier: Some(wire::host(CREDENTIAL_SOCKET, 0, &[])),
        ..LbEndpoint::default()
    };
    builder.endpoints = vec![LocalityLbEndpoints {
        lb_endpoints: vec![server],
        ..LocalityLbEndpoints::default()
    }];
    Some(builder.finish())
}

/// Whether an SDS server runs in the proxy's pod.
pub(super) fn has_external_sds(view: &View<'_>) -> bool {
    view.proxy().meta("credential").as_deref() == Some("true")
}

/// The source address of the proxy's connections to its own workload. Envoy selects the address of
/// the required family.
pub(super) fn bind_config(families: IpFamilies, both: bool) -> BindConfig {
    let address = |text: &str| SocketAddress {
        address: text.to_owned(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(0)),
        ..SocketAddress::default()
    };

    let first = if families.has_v4() {
        SOURCE_V4
    } else {
        SOURCE_V6
    };

    let further = (both && families.has_v4() && families.has_v6()).then(|| ExtraSourceAddress {
        address: Some(address(SOURCE_V6)),
        ..ExtraSourceAddress::default()
    });
    BindConfig {
        source_address: Some(address(first)),
        extra_source_addresses: further.into_iter().collect(),
        ..BindConfig::default()
    }
}

/// A cluster to the original destination. It has no outlier detection, since there is no other
/// endpoint.
fn passthrough_builder(view: &View<'_>, name: &str) -> ClusterBuilder {
    let mesh = view.mesh();
    let mut builder = ClusterBuilder::new(name, Discovery::OriginalDst);
    let pool = mesh
        .config
        .default_traffic_policy
        .as_ref()
        .and_then(|policy| policy.connection_pool.as_ref());
    connection_pool::apply(&mut builder, mesh, pool, None);
    // HTTP settings of the connection pool do not apply to unknown services.
    builder.http = HttpOptions::passthrough(view);
    builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    builder
}
