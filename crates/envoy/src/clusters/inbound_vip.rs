//! The clusters of the services behind a waypoint, which reaches their endpoints through tunnels.

use navarch_proto::envoy::config::cluster::v3::Cluster;
use navarch_proto::envoy::config::cluster::v3::cluster::{DnsLookupFamily, LbPolicy};
use navarch_proto::envoy::config::core::v3::TransportSocket;

use super::builder::{ClusterBuilder, Discovery};
use super::http::HttpOptions;
use super::metadata::NamedService;
use super::outbound::declared_discovery;
use super::{
    connection_pool, dns, dynamic_dns, load_balancer, original_dst_port, outlier, tls_context,
    transport,
};
use crate::destination_rule::{self, MergedRule};
use crate::endpoints::locality_setting::LocalitySetting;
use crate::endpoints::{self, EndpointPath, Group, Target};
use crate::filters::tunnel::cluster_baggage;
use crate::hbone;
use crate::names::VipCluster;
use crate::service_port::of_port;
use crate::tunnel_sockets::{self as sockets, PassedMetadata};
use crate::{sidecar_scope, waypoint};
use navarch_api::istio::{ClientTlsMode, ConnectionPoolSettings, TrafficPolicy};
use navarch_api::names::ResourceName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Resolution, Service, ServiceKey, ServicePort};

/// The clusters of one service: its ports, and its ports by subset.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct VipClustersOf(ServiceKey);

/// The names of the clusters of all services behind the view's proxy.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let services = waypoint::services(view);
    let of_service = |key: &ServiceKey| (*view.get(&VipClustersOf(key.clone()))).clone();
    services
        .iter()
        .flat_map(|service| of_service(&service.key))
        .map(|cluster| cluster.resource_name())
        .collect()
}

/// The rule for traffic from a waypoint to a service.
fn rule(view: &View<'_>, service: &Service) -> Option<std::sync::Arc<MergedRule>> {
    destination_rule::for_inbound(
        view,
        &sidecar_scope::service_for_host(view, &service.key.hostname)?,
    )
}

impl Query for VipClustersOf {
    type Value = Vec<VipCluster>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let Some(service) = view.service(&self.0) else {
            return Vec::new();
        };

        let rule = rule(view, service).filter(|_| !hbone::joins_networks(view));
        let subsets = rule
            .iter()
            .flat_map(|rule| rule.subsets.iter())
            .map(|subset| subset.name.as_str());
        let subsets: Vec<&str> = std::iter::once("").chain(subsets).collect();
        let mut clusters = Vec::new();

        for port in service
            .ports
            .iter()
            .filter(|port| waypoint::has_clusters(service, port))
        {
            for transport in waypoint::transports(view, port) {
                let whole = VipCluster::new(port.port, *transport, &service.key.hostname);
                clusters.extend(
                    subsets
                        .iter()
                        .map(|subset| whole.clone().with_subset(subset)),
                );
            }
        }

        clusters
    }
}

/// The cluster of this name, if the service is behind the view's proxy.
pub(super) fn build(view: &View<'_>, name: &VipCluster) -> Option<Cluster> {
    let service = waypoint::service(view, &name.host)?;
    let port = service
        .port(name.port)
        .filter(|port| waypoint::has_clusters(&service, port))?;
    if !waypoint::transports(view, port).contains(&name.transport) {
        return None;
    }

    if hbone::joins_networks(view) {
        return between_networks(view, name, &service, port);
    }

    let rule = rule(view, &service);
    let subset = match name.subset.as_str() {
        "" => None,
        subset => Some(rule.as_ref()?.subset(subset)?.clone()),
    };
    let policy = endpoints::policy(rule.as_deref(), subset.as_deref(), name.port);
    let mut builder = builder(view, name, &service, port, policy.as_ref())?;
    builder.metadata.services = Some(vec![NamedService::new(&service)]);

    builder.metadata.subset = Some(name.subset_key());
    if let Some(rule) = rule.filter(|_| policy.is_some()) {
        builder.metadata.rule = Some(rule.name.clone());
    }

    apply(view, &mut builder, &service, port, policy.as_ref());
    let (socket, is_opaque) = inner_socket(view, &mut builder, policy.as_ref());
    builder.metadata.keeps_baggage = is_opaque && view.mesh().settings.hbone.baggage;
    builder.cluster.transport_socket = Some(sockets::internal_socket_with_metadata(
        view,
        PassedMetadata::Endpoint,
        socket,
    ));

    if builder.discovery == Discovery::Eds {
        builder.cluster.filters.extend(cluster_baggage(view));
    }

    if service.races_connections {
        builder.cluster.dns_lookup_family = DnsLookupFamily::All.into();
    }

    Some(builder.finish())
}

/// The cluster of a gateway between networks: rules do not apply to tunnels that it forwards as
/// bytes.
fn between_networks(
    view: &View<'_>,
    name: &VipCluster,
    service: &Service,
    port: &ServicePort,
) -> Option<Cluster> {
    if !name.subset.is_empty() {
        return None;
    }

    let mut builder = builder(view, name, service, port, None)?;
    builder.metadata.services = Some(vec![NamedService::new(service)]);
    builder.metadata.subset = Some(name.subset_key());
    let mesh = view.mesh();
    connection_pool::apply(
        &mut builder,
        mesh,
        Some(&ConnectionPoolSettings::default()),
        None,
    );

    outlier::apply(&mut builder, None, false);
    let setting = locality(view, service, None);
    load_balancer::apply(
        &mut builder,
        mesh,
        service,
        port.protocol,
        None,
        setting.as_ref(),
    );

    if builder.discovery == Discovery::OriginalDst {
        builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    }

    builder.cluster.transport_socket = Some(sockets::internal_socket_with_metadata(
        view,
        PassedMetadata::EndpointAndCluster,
        sockets::raw(),
    ));

    Some(builder.finish())
}

/// The cluster before any policy; `None` if it would never have endpoints.
fn builder(
    view: &View<'_>,
    name: &VipCluster,
    service: &Service,
    port: &ServicePort,
    policy: Option<&TrafficPolicy>,
) -> Option<ClusterBuilder> {
    if service.resolution == Resolution::DynamicDns {
        return Some(dynamic_dns::builder(
            view,
            &name.to_string(),
            service,
            port.protocol,
        ));
    }

    let mut builder = ClusterBuilder::new(&name.to_string(), declared_discovery(view, service));
    builder.common_lb();
    builder.http = HttpOptions::for_protocol(view, port.protocol);

    match builder.discovery {
        Discovery::StrictDns | Discovery::LogicalDns => {
            dns::apply(view, &mut builder, service.races_connections);
            builder.endpoints = inline_endpoints(view, name, service, policy)?;
        }
        Discovery::OriginalDst => {
            if let Some(port) = service.passthrough_target_ports.get(&port.port) {
                builder.cluster.lb_config = Some(original_dst_port(*port));
            }
        }
        Discovery::Static | Discovery::Eds | Discovery::Dynamic(_) => {}
    }

    Some(builder)
}

/// The endpoints that the proxy resolves; `None` if there are none. As in Istio, subsets have all
/// endpoints.
fn inline_endpoints(
    view: &View<'_>,
    name: &VipCluster,
    service: &Service,
    policy: Option<&TrafficPolicy>,
) -> Option<Vec<navarch_proto::envoy::config::endpoint::v3::LocalityLbEndpoints>> {
    let target = Target {
        service,
        port: name.port,
        rule: None,
        subset: None,
        policy: None,
        sni_routed: false,
        by_dns: true,
        way: EndpointPath::OfWaypoint,
    };

    let registered = view.endpoints(&service.key)?;
    let mut groups = endpoints::groups(view, &target, of_port(registered, service, name.port));

    if groups.is_empty() {
        view.count("pilot_dns_cluster_without_endpoints", name.to_string());
        return None;
    }

    if let Some(setting) = locality(view, service, policy) {
        let fails_over = policy.is_some_and(|policy| policy.outlier_detection.is_some());
        endpoints::arrange(view, &setting, &mut groups, fails_over, false);
    }

    Some(groups.into_iter().map(Group::into_wire).collect())
}

/// The locality setting. Waypoints have no endpoint counts of their own zones.
fn locality(
    view: &View<'_>,
    service: &Service,
    policy: Option<&TrafficPolicy>,
) -> Option<LocalitySetting> {
    let balancer = policy.and_then(|policy| policy.load_balancer.as_deref());
    let setting = LocalitySetting::effective(&view.mesh().config, balancer, service)?;
    (!matches!(setting, LocalitySetting::ZoneAware(_))).then_some(setting)
}

/// Applies a policy to the cluster, except TLS.
fn apply(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    service: &Service,
    port: &ServicePort,
    policy: Option<&TrafficPolicy>,
) {
    let mesh = view.mesh();
    let pool = policy
        .and_then(|policy| policy.connection_pool.as_deref())
        .cloned()
        .unwrap_or_default();
    connection_pool::apply(
        builder,
        mesh,
        Some(&pool),
        policy.and_then(|policy| policy.retry_budget.as_ref()),
    );

    if connection_pool::upgrades(mesh, Some(&pool), port.protocol) {
        builder.http.upgrade();
    }

    outlier::apply(
        builder,
        policy.and_then(|policy| policy.outlier_detection.as_deref()),
        false,
    );
    let balancer = policy.and_then(|policy| policy.load_balancer.as_deref());
    let setting = locality(view, service, policy);
    load_balancer::apply(
        builder,
        mesh,
        service,
        port.protocol,
        balancer,
        setting.as_ref(),
    );

    if builder.discovery == Discovery::OriginalDst {
        builder.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    }
}

/// The protocol inside the tunnel, and whether peer metadata cannot be read from it.
fn inner_socket(
    view: &View<'_>,
    builder: &mut ClusterBuilder,
    policy: Option<&TrafficPolicy>,
) -> (TransportSocket, bool) {
    let tls = policy.and_then(|policy| policy.tls.as_deref());
    let tls = tls.filter(|tls| matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual));
    let context =
        tls.and_then(|tls| tls_context::build(view, builder, tls, tls_context::Client::default()));
    let socket = context.as_ref().map_or_else(sockets::raw, transport::tls);
    match policy.and_then(|policy| policy.proxy_protocol.as_ref()) {
        Some(header) => (transport::with_header(header.version, socket), true),
        None => (socket, context.is_some()),
    }
}
