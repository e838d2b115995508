//! Waypoints in front of services, for sidecars.
//!
//! ```text
//! application ─▶ plain route ─▶ cluster of the service ─▶ connect_originate ─▶ waypoint ─▶ workloads
//! ```
//!
//! Routes and traffic policies of the service are the waypoint's, so that each is applied once. A
//! sidecar that cannot use the waypoint gets no endpoints: the service's own would bypass the
//! waypoint's policies.

#[cfg(test)]
mod tests;

use navarch_ambient::bound::{SidecarPath, path_of_sidecars};
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;
use navarch_registry::model::{Resolution, Service, ServiceKey};

use crate::hbone;
use crate::service_address::UNSPECIFIED;

/// Whether the view's proxy is a sidecar, and the mesh lets sidecars use waypoints.
pub(crate) fn is_enabled(view: &View<'_>) -> bool {
    view.mesh().settings.hbone.sidecar_waypoints && view.proxy().kind() == ProxyKind::Sidecar
}

/// Whether the view's proxy, a sidecar, must use the waypoint of a service.
pub(crate) fn is_in_front(view: &View<'_>, service: &ServiceKey) -> bool {
    path(view, service) != SidecarPath::Direct
}

/// How the view's proxy reaches a service.
pub(crate) fn path(view: &View<'_>, key: &ServiceKey) -> SidecarPath {
    if !is_enabled(view) {
        return SidecarPath::Direct;
    }

    let path = path_of_sidecars(view, key);
    if path == SidecarPath::Direct {
        return path;
    }

    // Applications reach a service without an address at the addresses of its pods, which are not
    // the service's.
    let Some(service) = view
        .service(key)
        .filter(|service| has_address(view, service) && !service.is_headless())
    else {
        return SidecarPath::Direct;
    };

    if can_tunnel(view) && has_one_destination(service) {
        path
    } else {
        SidecarPath::Closed
    }
}

/// Whether a service has an address as tunnel destination. As in istiod's `HasAddressOrAssigned`,
/// the unspecified address of a headless Service counts as one.
pub(crate) fn has_address(view: &View<'_>, service: &Service) -> bool {
    let own = service.cluster_vips.get(&view.proxy().cluster_id());
    own.is_some_and(|vips| !vips.is_empty())
        || *service.default_address != *UNSPECIFIED
        || service.auto_ipv4.is_some()
        || service.auto_ipv6.is_some()
}

/// Whether the view's proxy has the listener that originates tunnels.
fn can_tunnel(view: &View<'_>) -> bool {
    hbone::sends(view)
        && !hbone::is_declined(view)
        // gRPC applications do not originate tunnels, though their node type is sidecar.
        && !view.proxy().has_text("GENERATOR", "grpc")
}

/// Whether the address of a service alone is enough to reach it. A tunnel of a sidecar has neither
/// the address nor the name to which an application connected.
fn has_one_destination(service: &Service) -> bool {
    match service.resolution {
        Resolution::ClientSideLb
        | Resolution::DnsLb
        | Resolution::DnsRoundRobinLb
        | Resolution::Alias => !service.default_address.contains('/'),
        Resolution::Passthrough | Resolution::DynamicDns => false,
    }
}
