//! The filters of a TCP chain.

use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::weighted_cluster::ClusterWeight;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{ClusterSpecifier, WeightedCluster};

use super::routes::virtual_services;
use super::{CLASS, Subject};
use crate::authorization::{AuthorizationOf, Peers};
use crate::filters::access_log::AccessLogsOf;
use crate::filters::dynamic_forward_proxy::{resolves_by_name, sni_filter};
use crate::filters::metrics::MetricsFiltersOf;
use crate::filters::network::{metadata_exchange, protocol_stack, tcp_proxy};
use crate::hbone;
use crate::listeners::apply_rule;
use crate::names::BLACK_HOLE;
use crate::policy::PolicyService;
use crate::proxy_settings::idle_timeout;
use crate::stat_prefix::{self, ShortNames, StatService};
use crate::waypoint::destination_cluster;
use crate::{destination_rule, sidecar_scope, traffic_extension};
use navarch_api::istio::{MESH_GATEWAY, RouteDestination, VirtualService};
use navarch_api::names::Hostname;
use navarch_push::view::View;
use navarch_registry::model::Service;
use navarch_registry::protocol::Protocol;

/// How the connections of a chain are forwarded.
struct Forwarding<'a> {
    proxy: TcpProxy,
    stat_prefix: String,
    /// 0 for any port of workloads.
    port: u16,
    protocol: Protocol,
    service: Option<&'a Service>,
}

/// The forwarding of a chain's connections: to `cluster`, unless a route matches.
fn forwarding<'a>(view: &View<'_>, subject: Subject<'a>, cluster: &str) -> Forwarding<'a> {
    match subject {
        Subject::Port(service, port) => {
            let host = service.key.hostname.as_str();
            let of = StatService {
                host,
                subset: "",
                port: port.port,
                port_name: port.name.as_str(),
            };

            // Unlike those of sidecars, with the namespace for ServiceEntries, too.
            let short = ShortNames::in_namespace(service);
            let stat_prefix = stat_prefix::inbound(view, &short, of, cluster);
            Forwarding {
                proxy: to_service(view, service, port.port, &stat_prefix, cluster),
                stat_prefix,
                port: port.port,
                protocol: port.protocol,
                service: Some(service),
            }
        }

        Subject::Workloads => {
            let of = StatService {
                host: "",
                subset: "",
                port: 0,
                port_name: "unknown",
            };
            let stat_prefix = stat_prefix::inbound(view, &ShortNames::default(), of, cluster);
            let mut proxy = tcp_proxy(&stat_prefix, cluster);
            proxy.idle_timeout = idle_timeout(view);
            Forwarding {
                proxy,
                stat_prefix,
                port: 0,
                protocol: Protocol::Tcp,
                service: None,
            }
        }
    }
}

/// The filters of the chain that forwards to `cluster` unless a route matches.
pub(super) fn filters(view: &View<'_>, subject: Subject<'_>, cluster: &str) -> Vec<Filter> {
    let Forwarding {
        proxy,
        stat_prefix,
        port,
        protocol,
        service,
    } = forwarding(view, subject, cluster);

    // Policies of a service are applied at the end of the inner tunnel.
    let named = service
        .filter(|_| !hbone::joins_networks(view))
        .map(PolicyService::new);
    let logs = view.get(&AccessLogsOf {
        class: CLASS,
        service: named.clone(),
    });

    let proxy = TcpProxy {
        access_log: logs.tcp.clone(),
        ..proxy
    };
    let authorization = view.get(&AuthorizationOf {
        service: named.clone(),
        peers: Peers::Tunnel,
    });

    let extensions = traffic_extension::network_filters_for(view, CLASS, port, named.clone());
    let mut filters: Vec<Filter> = metadata_exchange(view).into_iter().collect();
    filters.extend(authorization.custom_tcp.iter().cloned());
    filters.extend(extensions.authn.into_iter().chain(extensions.authz));
    filters.extend(authorization.tcp.iter().cloned());
    filters.extend(extensions.rest);
    filters.extend(
        view.get(&MetricsFiltersOf {
            class: CLASS,
            service: named,
        })
        .tcp
        .iter()
        .cloned(),
    );

    filters.extend(
        service
            .filter(|service| resolves_by_name(service))
            .map(|service| sni_filter(view, service, port)),
    );
    filters.extend(protocol_stack(
        view,
        protocol,
        &proxy,
        &stat_prefix,
        cluster,
    ));

    filters
}

/// Forwards by the routes of a service's VirtualServices, else to `cluster`. The DestinationRule of
/// the first destination applies.
fn to_service(
    view: &View<'_>,
    service: &Service,
    port: u16,
    prefix: &str,
    cluster: &str,
) -> TcpProxy {
    let specs = virtual_services(view, service);
    let specs: Vec<&VirtualService> = specs.iter().map(|(_, spec)| &**spec).collect();
    let routes = destinations(&specs, service.key.hostname.as_str(), port).unwrap_or_default();
    let mut proxy = tcp_proxy(prefix, cluster);
    let first = routes.first().and_then(|route| route.destination.as_ref());
    if let Some(specifier) = specifier(view, routes, port) {
        proxy.cluster_specifier = Some(specifier);
    }

    let host = first.map_or_else(
        || service.key.hostname.clone(),
        |first| Hostname::new(&first.host),
    );
    let rule = sidecar_scope::host_service(view, &host)
        .and_then(|service| destination_rule::for_service(view, &service));
    let subset = if routes.len() == 1 {
        first.map_or("", |first| first.subset.as_str())
    } else {
        ""
    };

    apply_rule(view, &mut proxy, rule.as_deref(), subset);
    proxy
}

/// The clusters of a route's destinations; `None` without any.
fn specifier(view: &View<'_>, routes: &[RouteDestination], port: u16) -> Option<ClusterSpecifier> {
    let cluster = |route: &RouteDestination| {
        let destination = route.destination.clone().unwrap_or_default();
        let service = sidecar_scope::host_service(view, &Hostname::new(&destination.host));
        destination_cluster(view, &destination, service.as_deref(), port)
    };

    let weighted = |route: &RouteDestination| {
        let weight = u32::try_from(route.weight)
            .ok()
            .filter(|weight| *weight > 0)?;
        Some(ClusterWeight {
            name: cluster(route),
            weight,
            ..ClusterWeight::default()
        })
    };

    match routes {
        [] => None,
        [only] => Some(ClusterSpecifier::Cluster(cluster(only))),
        several => {
            let clusters: Vec<ClusterWeight> = several.iter().filter_map(weighted).collect();
            // Envoy rejects weights whose sum is zero.
            Some(match clusters.is_empty() {
                true => ClusterSpecifier::Cluster(BLACK_HOLE.to_owned()),
                false => ClusterSpecifier::WeightedClusters(WeightedCluster { clusters }),
            })
        }
    }
}

/// The destinations of the first route for connections to a port: TLS routes before TCP routes.
/// Only TLS routes with the service's own host apply, as the SNI is not read.
fn destinations<'a>(
    specs: &[&'a VirtualService],
    host: &str,
    port: u16,
) -> Option<&'a [RouteDestination]> {
    let applies = |wanted: u32, gateways: &[String], labels: bool, namespace: &str| {
        (wanted == 0 || wanted == u32::from(port))
            && (gateways.is_empty() || gateways.iter().any(|gateway| gateway == MESH_GATEWAY))
            && !labels
            && namespace.is_empty()
    };

    let tls = specs.iter().flat_map(|spec| &spec.tls).find(|route| {
        route.matches.is_empty()
            || route.matches.iter().any(|matched| {
                matches!(matched.sni_hosts.as_slice(), [only] if only == host)
                    && applies(
                        matched.port,
                        &matched.gateways,
                        !matched.source_labels.is_empty(),
                        &matched.source_namespace,
                    )
            })
    });

    let tcp = || {
        specs.iter().flat_map(|spec| &spec.tcp).find(|route| {
            route.matches.is_empty()
                || route.matches.iter().any(|matched| {
                    let has_labels = !matched.source_labels.is_empty();
                    applies(
                        matched.port,
                        &matched.gateways,
                        has_labels,
                        &matched.source_namespace,
                    )
                })
        })
    };

    tls.map(|route| route.route.as_slice())
        .or_else(|| tcp().map(|route| route.route.as_slice()))
}
