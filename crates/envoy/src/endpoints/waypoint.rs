//! Waypoints instead of a service's endpoints, for gateways if the service is configured so.

use std::sync::Arc;

use navarch_proto::envoy::config::endpoint::v3::LocalityLbEndpoints;

use super::build::{EndpointPath, Target, groups};
use super::group::Group;
use super::service_port::of_port_name;
use crate::destination_rule;
use crate::names::OutboundCluster;
use crate::sidecar_scope;
use navarch_ambient::bound::{self, Hop};
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::{Endpoint, Service};

/// The factor of weights before they are divided among the endpoints of a waypoint.
const SCALE: u32 = 10_000;
/// The address of services without one.
const UNSPECIFIED: &str = "0.0.0.0";

/// The endpoints of a cluster that is reached through a waypoint; `None` if it is not.
pub(super) fn endpoints(
    view: &View<'_>,
    cluster: &OutboundCluster,
) -> Option<Vec<LocalityLbEndpoints>> {
    if view.proxy().kind() != ProxyKind::Router || !view.mesh().settings.hbone.ingress_waypoints {
        return None;
    }

    let service = sidecar_scope::host_service(view, &cluster.host)?;
    service.port(cluster.port)?;
    if !has_address(view, &service) {
        return None;
    }

    let binding = bound::binding(view, &service.key).filter(|binding| binding.at_ingress)?;
    let candidates = if binding.weighted.is_empty() {
        of_hop(view, &binding.waypoint)?
    } else {
        // With weights, the waypoints are always used.
        binding
            .weighted
            .iter()
            .flat_map(|(hop, weight)| weighted(view, hop, *weight))
            .collect()
    };

    let rule = destination_rule::for_service(view, &service);
    let policy = super::policy(rule.as_deref(), None, cluster.port);
    let target = Target {
        service: &service,
        port: cluster.port,
        rule: rule.as_deref(),
        subset: None,
        policy: policy.as_ref(),
        sni_routed: false,
        by_dns: false,
        way: EndpointPath::ToWaypoint,
    };

    let groups = groups(view, &target, candidates.iter());
    Some(groups.into_iter().map(Group::into_wire).collect())
}

/// Whether a service has an address as tunnel destination.
fn has_address(view: &View<'_>, service: &Service) -> bool {
    let own = service.cluster_vips.get(&view.proxy().cluster_id());
    own.is_some_and(|vips| !vips.is_empty())
        || *service.default_address != *UNSPECIFIED
        || service.auto_ipv4.is_some()
        || service.auto_ipv6.is_some()
}

/// The endpoints of a waypoint; `None` if it has an address that no service has.
fn of_hop(view: &View<'_>, hop: &Hop) -> Option<Vec<Arc<Endpoint>>> {
    let key = hop.address.service(view)?;
    let Some(service) = sidecar_scope::host_service(view, &key.hostname) else {
        return Some(Vec::new());
    };
    if service.port(hop.port).is_none() {
        return Some(Vec::new());
    }
    let endpoints = view
        .endpoints(&service.key)
        .map(|all| of_port_name(all, &service, hop.port).cloned().collect());
    Some(endpoints.unwrap_or_default())
}

/// The endpoints of a waypoint with a weight.
fn weighted(view: &View<'_>, hop: &Hop, weight: u32) -> Vec<Arc<Endpoint>> {
    let endpoints = if weight == 0 {
        Vec::new()
    } else {
        of_hop(view, hop).unwrap_or_default()
    };

    let Ok(count) = u32::try_from(endpoints.len()) else {
        return Vec::new();
    };

    let each = weight
        .saturating_mul(SCALE)
        .checked_div(count)
        .unwrap_or_default()
        .max(1);

    let weigh = |endpoint: Arc<Endpoint>| {
        Arc::new(Endpoint {
            weight: each,
            ..Endpoint::clone(&endpoint)
        })
    };

    endpoints.into_iter().map(weigh).collect()
}
