//! CDS: clusters of services, of the workload's own ports, and those of every proxy.
//!
//! ```text
//! name ─▶ service, rule, port ─▶ builder ─▶ traffic policy: limits, outliers, balancing, TLS ─▶ Envoy
//! ```
//!
//! A cluster's name identifies its inputs, so each is built, cached and shared on its own.

mod builder;
mod connection_pool;
mod dns;
mod dynamic_dns;
mod fixed;
mod gateway_services;
mod http;
mod inbound;
mod inbound_vip;
mod load_balancer;
mod metadata;
mod outbound;
mod outbound_inputs;
mod outlier;
mod patched;
mod tls;
mod tls_context;
mod traffic_policy;
mod transport;
mod tunnels;
mod warming;
mod waypoint_outbound;

pub(super) use builder::stat_name;
use bytes::Bytes;
pub(super) use gateway_services::named_by_extensions;
pub(crate) use http::{HttpOptions, OPTIONS_KEY};
pub(super) use load_balancer::apply_hash;
use navarch_proto::envoy::config::cluster::v3::cluster::{LbConfig, OriginalDstLbConfig};
use navarch_proto::envoy::config::cluster::v3::{Cluster, Filter};
use navarch_proto::envoy::config::listener::v3 as listener;
pub(super) use outbound::draining_override;
pub(super) use tls::accounts_of;
pub(super) use warming::waits_for_others;

use self::outbound_inputs::Purpose;
use crate::build::encode;
use crate::destination_rule;
use crate::filters::dynamic_forward_proxy::resolves_by_name;
use crate::filters::network;
use crate::gateway;
use crate::hbone;
use crate::names::{
    ALLOW_ANY_DYNAMIC_DNS, BLACK_HOLE, ClusterName, INBOUND_PASSTHROUGH, OutboundCluster,
    PASSTHROUGH, TunnelCluster,
};
use crate::sds;
use crate::sidecar_scope::{self, OutboundPolicy};
use crate::waypoint;
use navarch_api::names::ResourceName;
use navarch_push::proxy::ProxyKind;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::ServiceKey;

/// The clusters of one service: its ports, and its ports by subset.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ClustersOfService {
    service: ServiceKey,
    /// The type of client.
    purpose: Purpose,
}

/// The names of all clusters of the proxy.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    patched::names(view).unwrap_or_else(|| generated_names(view))
}

/// The names of all clusters that are generated for the proxy.
fn generated_names(view: &View<'_>) -> Vec<ResourceName> {
    let mut names = match view.proxy().kind() {
        ProxyKind::Sidecar => names_of_services(view),
        ProxyKind::Router | ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => {
            Vec::new()
        }
    };
    names.extend(own_names(view));
    names
}

/// The names of the clusters of all services that a sidecar sees, before patches.
pub(super) fn names_of_services(view: &View<'_>) -> Vec<ResourceName> {
    outbound_names(view, Purpose::Client)
}

/// The names of a sidecar's other clusters; `None` if patches add, remove or rename clusters.
pub(super) fn names_beside_services(view: &View<'_>) -> Option<Vec<ResourceName>> {
    (!patched::has_other_names(view)).then(|| own_names(view))
}

/// The names of all clusters that are generated for the proxy, except those of the services that a
/// sidecar sees.
fn own_names(view: &View<'_>) -> Vec<ResourceName> {
    let fixed = |name: &str| ResourceName::new(name);
    let mut names = Vec::new();

    match view.proxy().kind() {
        ProxyKind::Sidecar => {
            names.extend([BLACK_HOLE, PASSTHROUGH, INBOUND_PASSTHROUGH].map(fixed));
            if sidecar_scope::outbound_policy(view) == OutboundPolicy::AllowAnyDynamicDns {
                names.push(fixed(ALLOW_ANY_DYNAMIC_DNS));
            }
            names.extend(inbound::names(view));
            if hbone::is_taken_by_sidecar(view) {
                names.push(fixed(hbone::MAIN));
            }
        }
        ProxyKind::Router => {
            names.extend(outbound_names(view, Purpose::Client));
            names.push(fixed(BLACK_HOLE));
            if gateway::routes_by_sni(view) {
                names.extend(outbound_names(view, Purpose::SniRouted));
            }
            if hbone::leaves_network(view) {
                names.extend([hbone::INNER, hbone::OUTER].map(fixed));
            }
        }
        ProxyKind::Waypoint => {
            for service in waypoint_outbound::services(view).iter() {
                names.extend(names_of_service(view, service, Purpose::Client));
            }
            names.extend(waypoint::tunnel_cluster_names(view));
            names.extend(inbound_vip::names(view));
            // If no service reaches other networks, a gateway between networks has no destination.
            names.extend(hbone::joins_networks(view).then(|| fixed(BLACK_HOLE)));
        }
        ProxyKind::Ztunnel | ProxyKind::AgentGateway => {}
    }

    let originates = view.mesh().settings.hbone.sends && !hbone::is_declined(view);
    if originates && matches!(view.proxy().kind(), ProxyKind::Sidecar | ProxyKind::Router) {
        names.push(fixed(hbone::ORIGINATE));
    }

    if fixed::has_external_sds(view) {
        names.push(fixed(sds::EXTERNAL_CLUSTER));
    }

    names
}

pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    patched::build(view, name).as_ref().map(encode)
}

/// The generated cluster of this name.
fn build(name: &ResourceName, view: &View<'_>) -> Option<Cluster> {
    match ClusterName::parse(name.as_str())? {
        ClusterName::Outbound(cluster) => outbound::build(view, &cluster, Purpose::Client),
        ClusterName::SniRouted(cluster) => outbound::build(view, &cluster, Purpose::SniRouted),
        ClusterName::Inbound(port) => inbound::build(view, port),
        ClusterName::BlackHole => Some(fixed::black_hole(view)),
        ClusterName::Passthrough => Some(fixed::passthrough(view)),
        ClusterName::InboundPassthrough => Some(fixed::inbound_passthrough(view)),
        ClusterName::AllowAnyDynamicDns => dynamic_dns::allow_any(view),
        ClusterName::ExternalSds => fixed::external_sds(view),
        ClusterName::InboundVip(cluster) => inbound_vip::build(view, &cluster),
        ClusterName::Tunnel(TunnelCluster::Main) => Some(tunnels::main(view)),
        ClusterName::Tunnel(TunnelCluster::Encap) => Some(tunnels::encap(view)),
        ClusterName::Tunnel(TunnelCluster::Originate) => Some(tunnels::originate(view)),
        ClusterName::Tunnel(TunnelCluster::Inner) => Some(tunnels::inner(view)),
        ClusterName::Tunnel(TunnelCluster::Outer) => Some(tunnels::outer(view)),
        ClusterName::Tunnel(TunnelCluster::Forward) => Some(tunnels::forward(view)),
    }
}

/// The names of the clusters of all services that the proxy sees.
fn outbound_names(view: &View<'_>, purpose: Purpose) -> Vec<ResourceName> {
    let services = sidecar_scope::visible_services(view);
    let wanted = match purpose {
        Purpose::Client => gateway_services::needed_services(view),
        Purpose::SniRouted => None,
    };
    let mut names = Vec::with_capacity(services.len());
    for service in services.iter().filter(|service| {
        wanted
            .as_ref()
            .is_none_or(|wanted| wanted.contains(service))
    }) {
        names.extend(names_of_service(view, service, purpose));
    }
    names
}

/// Whether there is a service cluster of this name that the proxy may see, before patches.
pub(super) fn has_outbound(view: &View<'_>, name: &ResourceName) -> bool {
    let Some(cluster) = OutboundCluster::parse(name.as_str()) else {
        return false;
    };
    let Some(service) = sidecar_scope::service_for_host(view, &cluster.host) else {
        return false;
    };
    let purpose = Purpose::Client;
    let clusters = view.get(&ClustersOfService { service, purpose });
    clusters.contains(&cluster)
}

/// The names of the clusters of a service.
fn names_of_service(view: &View<'_>, service: &ServiceKey, purpose: Purpose) -> Vec<ResourceName> {
    let clusters = view.get(&ClustersOfService {
        service: service.clone(),
        purpose,
    });
    clusters
        .iter()
        .map(|cluster| purpose.resource_name(cluster))
        .collect()
}

impl Purpose {
    fn resource_name(self, cluster: &OutboundCluster) -> ResourceName {
        match self {
            Self::Client => cluster.resource_name(),
            Self::SniRouted => ResourceName::new(cluster.sni()),
        }
    }
}

impl Query for ClustersOfService {
    type Value = Vec<OutboundCluster>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(service) = sidecar_scope::seen_service(view, &self.service) else {
            return Vec::new();
        };

        let rule = destination_rule::for_service(view, &service);
        let whole = self.purpose == Purpose::Client && resolves_by_name(&service);
        let subsets = rule
            .iter()
            .filter(|_| !whole)
            .flat_map(|rule| rule.subsets.iter());
        let subsets: Vec<&str> = std::iter::once("")
            .chain(subsets.map(|subset| subset.name.as_str()))
            .collect();

        let ports = service
            .ports
            .iter()
            .filter(|port| outbound::has_cluster(&service, port, self.purpose));
        let of_port = |port: u16| subsets.iter().map(move |subset| (port, *subset));

        ports
            .flat_map(|port| of_port(port.port))
            .map(|(port, subset)| OutboundCluster::new(port, subset, &service.key.hostname))
            .collect()
    }
}

/// The filter for the exchange of peer metadata, if enabled.
fn exchange_filter(view: &View<'_>) -> Option<Filter> {
    let listener::Filter { name, config_type } = network::metadata_exchange(view)?;
    let Some(listener::filter::ConfigType::TypedConfig(config)) = config_type else {
        return None;
    };
    Some(Filter {
        name,
        typed_config: Some(config),
        ..Filter::default()
    })
}

/// Uses the original destination with another port.
fn original_dst_port(port: u16) -> LbConfig {
    LbConfig::OriginalDstLbConfig(OriginalDstLbConfig {
        upstream_port_override: Some(u32::from(port)),
        ..OriginalDstLbConfig::default()
    })
}

#[cfg(test)]
mod tests;
