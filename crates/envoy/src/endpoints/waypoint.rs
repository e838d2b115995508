//! Waypoints instead of a service's endpoints, for gateways and sidecars if the service is
//! configured so.

use std::sync::Arc;

use navarch_proto::envoy::config::endpoint::v3::LocalityLbEndpoints;

use super::build::groups;
use super::gateways::is_in_network;
use super::group::Group;
use super::target::{EndpointPath, Target};
use crate::destination_rule;
use crate::names::OutboundCluster;
use crate::service_port::of_port_name;
use crate::sidecar_scope;
use crate::sidecar_waypoint;
use navarch_ambient::bound::{self, Binding, Hop, SidecarPath};
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::{Endpoint, Service, ServiceKey};

/// The factor of weights before they are divided among the endpoints of a waypoint.
const SCALE: u32 = 10_000;

/// The endpoints of a cluster that is reached through a waypoint; `None` if it is not.
pub(super) fn endpoints(
    view: &View<'_>,
    cluster: &OutboundCluster,
) -> Option<Vec<LocalityLbEndpoints>> {
    match view.proxy().kind() {
        ProxyKind::Router => of_gateway(view, cluster),
        ProxyKind::Sidecar => of_sidecar(view, cluster),
        ProxyKind::Waypoint | ProxyKind::Ztunnel | ProxyKind::AgentGateway => None,
    }
}

fn of_gateway(view: &View<'_>, cluster: &OutboundCluster) -> Option<Vec<LocalityLbEndpoints>> {
    if !view.mesh().settings.hbone.ingress_waypoints {
        return None;
    }

    let service = sidecar_scope::host_service(view, &cluster.host)?;
    service.port(cluster.port)?;
    if !sidecar_waypoint::has_address(view, &service) {
        return None;
    }

    let binding = bound::binding(view, &service.key).filter(|binding| binding.at_ingress)?;
    let candidates = if binding.weighted.is_empty() {
        of_hop(view, &binding.waypoint)?
    } else {
        // With weights, the waypoints are always used.
        all_weighted(view, &binding)
    };

    Some(of_candidates(view, &service, cluster.port, &candidates))
}

/// Unlike a gateway, a sidecar never uses the service's own endpoints instead.
fn of_sidecar(view: &View<'_>, cluster: &OutboundCluster) -> Option<Vec<LocalityLbEndpoints>> {
    if !sidecar_waypoint::is_enabled(view) {
        return None;
    }

    let service = sidecar_scope::host_service(view, &cluster.host)?;
    service.port(cluster.port)?;
    let binding = match sidecar_waypoint::path(view, &service.key) {
        SidecarPath::Direct => return None,
        SidecarPath::Closed => return Some(Vec::new()),
        SidecarPath::Waypoint(binding) => binding,
    };

    let mut candidates = if binding.weighted.is_empty() {
        of_hop(view, &binding.waypoint).unwrap_or_default()
    } else {
        all_weighted(view, &binding)
    };
    candidates.retain(|endpoint| is_in_network(view, &endpoint.workload.location.network));

    Some(of_candidates(view, &service, cluster.port, &candidates))
}

/// The endpoints of a service's port through these endpoints of waypoints.
fn of_candidates(
    view: &View<'_>,
    service: &Service,
    port: u16,
    candidates: &[Arc<Endpoint>],
) -> Vec<LocalityLbEndpoints> {
    let rule = destination_rule::for_service(view, service);
    let policy = super::policy(rule.as_deref(), None, port);
    let target = Target {
        service,
        port,
        rule: rule.as_deref(),
        subset: None,
        policy: policy.as_ref(),
        sni_routed: false,
        by_dns: false,
        way: EndpointPath::ToWaypoint,
    };

    let groups = groups(view, &target, candidates.iter());
    groups.into_iter().map(Group::into_wire).collect()
}

/// The endpoints of all waypoints with their weights.
fn all_weighted(view: &View<'_>, binding: &Binding) -> Vec<Arc<Endpoint>> {
    binding
        .weighted
        .iter()
        .flat_map(|(hop, weight)| weighted(view, hop, *weight))
        .collect()
}

/// The service of a waypoint. A `Sidecar` limits the services that applications call, not the
/// waypoints in front of these.
fn service_of_waypoint(view: &View<'_>, key: &ServiceKey) -> Option<Arc<Service>> {
    if view.proxy().kind() == ProxyKind::Sidecar {
        view.service(key).cloned()
    } else {
        sidecar_scope::host_service(view, &key.hostname)
    }
}

/// The endpoints of a waypoint; `None` if it has an address that no service has.
fn of_hop(view: &View<'_>, hop: &Hop) -> Option<Vec<Arc<Endpoint>>> {
    let key = hop.address.service(view)?;
    let Some(service) = service_of_waypoint(view, &key) else {
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
