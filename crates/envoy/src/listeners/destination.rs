//! Destinations of TCP filter chains: weighted clusters, with the connection settings of the
//! DestinationRule.

use std::sync::Arc;

use navarch_proto::envoy::config::listener::v3::Filter;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::weighted_cluster::ClusterWeight;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, TunnelingConfig, WeightedCluster,
};
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy as tcp};
use navarch_proto::envoy::r#type::v3::{HashPolicy, hash_policy};

use super::outbound_plan::ListenPort;
use crate::authorization::AuthorizationOf;
use crate::destination_rule::{self, MergedRule};
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::dynamic_forward_proxy;
use crate::filters::metrics::MetricsFiltersOf;
use crate::filters::network::{protocol_stack, tcp_proxy};
use crate::names::{BLACK_HOLE, OutboundCluster};
use crate::proxy_settings::idle_timeout;
use crate::routes::destination_cluster;
use crate::sidecar_scope;
use crate::stat_prefix::{self, StatService};
use crate::traffic_extension;
use navarch_api::duration::Duration;
use navarch_api::istio::{RouteDestination, TrafficPolicy};
use navarch_api::names::Hostname;
use navarch_api::object::NamespacedName;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::{Service, ServicePort};

/// The filters of a VirtualService's route (whose name is used in metrics), from first to last.
pub(super) fn route_filters(
    view: &View<'_>,
    destinations: &[RouteDestination],
    port: &ListenPort,
    virtual_service: &NamespacedName,
) -> Vec<Filter> {
    let first = destinations
        .first()
        .and_then(|route| route.destination.clone())
        .unwrap_or_default();
    let service = sidecar_scope::host_service(view, &Hostname::new(&first.host));
    let rule = service
        .as_ref()
        .and_then(|service| destination_rule::for_service(view, service));

    let proxy = if destinations.len() == 1 {
        let cluster = destination_cluster(&first, service.as_deref(), port.number);
        let prefix = service.as_deref().map_or_else(
            || cluster.clone(),
            |service| {
                let of = StatService {
                    host: &first.host,
                    subset: &first.subset,
                    port: port.number,
                    port_name: &port.name,
                };
                stat_prefix::outbound(view, service, of, &cluster)
            },
        );
        proxy_to(view, &prefix, &cluster, &first.subset, rule.as_deref())
    } else {
        weighted_proxy(view, destinations, port, virtual_service, rule.as_deref())
    };

    complete(view, port, proxy, None, Guard::Policies)
}

/// The filters of a service without a route.
pub(super) fn service_filters(
    view: &View<'_>,
    service: &Arc<Service>,
    port: &ListenPort,
) -> Vec<Filter> {
    // The listening port of a Sidecar may differ from the service's own port.
    let number = match service.ports.as_slice() {
        [only] => only.port,
        _ => port.number,
    };
    let cluster = OutboundCluster::new(number, "", &service.key.hostname).to_string();
    let of = StatService {
        host: service.key.hostname.as_str(),
        subset: "",
        port: number,
        port_name: "",
    };

    let prefix = stat_prefix::outbound(view, service, of, &cluster);
    let rule = destination_rule::for_service(view, service);
    let proxy = proxy_to(view, &prefix, &cluster, "", rule.as_deref());
    let by_name =
        Some(&**service).filter(|service| dynamic_forward_proxy::resolves_by_name(service));

    complete(view, port, proxy, by_name, Guard::Policies)
}

/// The filters for passing through to the cluster named by the SNI (`cluster` in the form of
/// routes): without a tunnel, since the passed traffic is already one.
pub(super) fn sni_routed_filters(
    view: &View<'_>,
    service: &Service,
    port: &ServicePort,
    cluster: &OutboundCluster,
    rule: Option<&MergedRule>,
) -> Vec<Filter> {
    let host = service.key.hostname.as_str();
    let of = StatService {
        host,
        subset: &cluster.subset,
        port: port.port,
        port_name: port.name.as_str(),
    };

    let name = cluster.sni();
    let prefix = stat_prefix::outbound(view, service, of, &name);
    let proxy = TcpProxy {
        tunneling_config: None,
        ..proxy_to(view, &prefix, &name, &cluster.subset, rule)
    };
    let port = ListenPort {
        number: port.port,
        name: port.name.to_string(),
        protocol: port.protocol,
    };

    complete(view, &port, proxy, None, Guard::Nothing)
}

fn proxy_to(
    view: &View<'_>,
    prefix: &str,
    cluster: &str,
    subset: &str,
    rule: Option<&MergedRule>,
) -> TcpProxy {
    let mut proxy = tcp_proxy(prefix, cluster);
    apply_rule(view, &mut proxy, rule, subset);
    proxy
}

/// A TCP proxy to weighted clusters. The rule of the first destination applies to all.
fn weighted_proxy(
    view: &View<'_>,
    destinations: &[RouteDestination],
    port: &ListenPort,
    virtual_service: &NamespacedName,
    rule: Option<&MergedRule>,
) -> TcpProxy {
    let weighted: Vec<ClusterWeight> = destinations
        .iter()
        .filter_map(|route| {
            let weight = u32::try_from(route.weight)
                .ok()
                .filter(|weight| *weight > 0)?;
            let destination = route.destination.clone().unwrap_or_default();
            let service = sidecar_scope::host_service(view, &Hostname::new(&destination.host));
            let name = destination_cluster(&destination, service.as_deref(), port.number);
            Some(ClusterWeight {
                name,
                weight,
                ..ClusterWeight::default()
            })
        })
        .collect();

    // Envoy rejects weights whose sum is zero or overflows.
    let sum: u64 = weighted
        .iter()
        .map(|cluster| u64::from(cluster.weight))
        .sum();
    let specifier = if sum == 0 || sum > u64::from(u32::MAX) {
        view.remark(format!(
            "VirtualService {virtual_service}: the weights of a route add up to 0, or to more than Envoy's maximum: its connections are closed"
        ));
        ClusterSpecifier::Cluster(BLACK_HOLE.to_owned())
    } else {
        ClusterSpecifier::WeightedClusters(WeightedCluster { clusters: weighted })
    };

    let mut proxy = TcpProxy {
        stat_prefix: format!("{}.{}", virtual_service.name, virtual_service.namespace),
        cluster_specifier: Some(specifier),
        ..TcpProxy::default()
    };
    apply_rule(view, &mut proxy, rule, "");

    proxy
}

/// The connection settings of the rule.
pub(crate) fn apply_rule(
    view: &View<'_>,
    proxy: &mut TcpProxy,
    rule: Option<&MergedRule>,
    subset: &str,
) {
    let policy = rule.and_then(|rule| rule.policy.as_deref());
    let tcp = policy
        .and_then(|policy| policy.connection_pool.as_deref())
        .and_then(|pool| pool.tcp.as_ref());
    let idle = tcp.and_then(|tcp| tcp.idle_timeout).map(Duration::to_proto);
    proxy.idle_timeout = idle.or_else(|| idle_timeout(view));
    proxy.max_downstream_connection_duration = tcp
        .and_then(|tcp| tcp.max_connection_duration)
        .map(Duration::to_proto);

    let Some(rule) = rule else { return };
    let own = rule
        .subset(subset)
        .and_then(|subset| subset.traffic_policy.as_deref());
    if hashes_source(policy, own) {
        let source = hash_policy::PolicySpecifier::SourceIp(hash_policy::SourceIp {});
        proxy.hash_policy = vec![HashPolicy {
            policy_specifier: Some(source),
        }];
    }

    let tunnel =
        if subset.is_empty() { policy } else { own }.and_then(|policy| policy.tunnel.as_ref());
    proxy.tunneling_config = tunnel.map(|tunnel| {
        let host = &tunnel.target_host;
        let host = if host.contains([':', '%']) {
            format!("[{host}]")
        } else {
            host.clone()
        };
        TunnelingConfig {
            hostname: format!("{host}:{}", tunnel.target_port),
            use_post: tunnel.protocol == "POST",
            ..tcp::TunnelingConfig::default()
        }
    });
}

/// Whether endpoints are selected by the client's address: a subset with load balancing settings
/// overrides the host.
fn hashes_source(policy: Option<&TrafficPolicy>, subset: Option<&TrafficPolicy>) -> bool {
    let of = |policy: &TrafficPolicy| {
        let balancer = policy.load_balancer.as_deref()?;
        Some(
            balancer
                .consistent_hash
                .as_ref()
                .is_some_and(|hash| hash.use_source_ip == Some(true)),
        )
    };
    subset
        .and_then(of)
        .or_else(|| policy.and_then(of))
        .unwrap_or(false)
}

/// Whether AuthorizationPolicies apply to connections into a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// They apply.
    Policies,
    /// They do not apply: TLS that is passed through is evaluated where it is terminated.
    Nothing,
}

/// All filters of a chain that ends in a TCP proxy.
fn complete(
    view: &View<'_>,
    port: &ListenPort,
    mut proxy: TcpProxy,
    by_name: Option<&Service>,
    guard: Guard,
) -> Vec<Filter> {
    let class = match view.proxy().kind() {
        ProxyKind::Router => ListenerClass::Gateway,
        ProxyKind::Sidecar | ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => {
            ListenerClass::SidecarOutbound
        }
    };

    view.get(&AccessLogsOf::of_class(class)).put(&mut proxy);
    let cluster = match &proxy.cluster_specifier {
        Some(ClusterSpecifier::Cluster(cluster)) => cluster.clone(),
        Some(ClusterSpecifier::WeightedClusters(weighted)) => weighted
            .clusters
            .first()
            .map(|cluster| cluster.name.clone())
            .unwrap_or_default(),
        None => String::new(),
    };

    let mut filters = Vec::new();
    let is_guarded = class == ListenerClass::Gateway && guard == Guard::Policies;
    let authorization = is_guarded.then(|| view.get(&AuthorizationOf::PROXY));
    let extensions = traffic_extension::network_filters(view, class, port.number);
    filters.extend(
        authorization
            .iter()
            .flat_map(|guard| guard.custom_tcp.iter().cloned()),
    );

    filters.extend(extensions.authn.into_iter().chain(extensions.authz));
    filters.extend(
        authorization
            .iter()
            .flat_map(|guard| guard.tcp.iter().cloned()),
    );
    filters.extend(extensions.rest);
    filters.extend(
        view.get(&MetricsFiltersOf::of_class(class))
            .tcp
            .iter()
            .cloned(),
    );

    if class == ListenerClass::SidecarOutbound {
        filters.extend(
            by_name.map(|service| dynamic_forward_proxy::sni_filter(view, service, port.number)),
        );
    }

    let prefix = proxy.stat_prefix.clone();
    filters.extend(protocol_stack(
        view,
        port.protocol,
        &proxy,
        &prefix,
        &cluster,
    ));

    filters
}
