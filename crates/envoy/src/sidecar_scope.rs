//! The scope of a proxy: which Sidecar applies to it, and the services and VirtualServices that it
//! imports.
//!
//! Agrees in meaning with Istio's `pilot/pkg/model/sidecar.go`. A result about one host is a query
//! for that host ([`service_for_host`], [`seen_service`]); the lists ([`visible_services`],
//! [`egress_listeners`]) contain only names, so that a change inside a service does not affect
//! their readers. A proxy's namespace is read only as far as some object distinguishes namespaces:
//! without private objects, all namespaces share one scope.
//!
//! ```text
//! Sidecars ─▶ Scope (of the proxy) ─▶ egress listeners ─▶ services, VirtualServices of each ─▶ visible services
//! ```

mod applied;
mod described;
mod egress_listener;
mod hosts;
mod index;
mod listener;
mod policy;
mod selection;
mod visible;

use std::sync::Arc;

pub use applied::Scope;
pub use described::{DescribeScope, RuleDescription, ScopeDescription};
pub use egress_listener::EgressListener;
pub(crate) use listener::NamedHosts;
pub use policy::OutboundPolicy;
pub use selection::{PortFilter, ServiceRef};

use navarch_api::istio::{IstioIngressListener, Sidecar};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{NamespacedName, Object};
use navarch_push::namespace_list::NamespaceList;
use navarch_push::view::View;
use navarch_registry::model::{Service, ServiceKey};

/// The scope of the view's proxy: a Sidecar, the default, or that of gateways.
#[must_use]
pub fn scope(view: &View<'_>) -> Scope {
    (*view.derived(&applied::ScopeOfProxy)).clone()
}

/// The Sidecar that applies to the proxy: one that selects its workload, else its namespace's, else
/// the root namespace's.
#[must_use]
pub fn sidecar<'a>(view: &'a View<'_>) -> Option<&'a Arc<Object<Sidecar>>> {
    match scope(view) {
        Scope::Sidecar(name) => view.object::<Sidecar>(&name),
        Scope::Default | Scope::Gateway => None,
    }
}

/// The keys of all services that the proxy sees, one per host, in Istio's order. Changes only if a
/// service is added or removed.
#[must_use]
pub fn visible_services(view: &View<'_>) -> Arc<Vec<ServiceKey>> {
    view.get(&visible::VisibleServices { scope: scope(view) })
}

/// The service that the proxy uses for a host, reduced to the ports and aliases that its Sidecar
/// imports.
#[must_use]
pub fn host_service(view: &View<'_>, host: &Hostname) -> Option<Arc<Service>> {
    (*view.get(&visible::HostService {
        scope: scope(view),
        host: host.clone(),
    }))
    .clone()
}

/// The key of the service that the proxy uses for a host.
#[must_use]
pub fn service_for_host(view: &View<'_>, host: &Hostname) -> Option<ServiceKey> {
    (*view.get(&visible::HostKey {
        scope: scope(view),
        host: host.clone(),
    }))
    .clone()
}

/// The service as the proxy sees it: reduced to the ports and aliases that its Sidecar imports;
/// `None` if it does not see it.
#[must_use]
pub fn seen_service(view: &View<'_>, key: &ServiceKey) -> Option<Arc<Service>> {
    host_service(view, &key.hostname).filter(|seen| seen.key.namespace == key.namespace)
}

/// The egress listeners of the proxy's Sidecar, in declared order; a single one for all services
/// without a Sidecar.
#[must_use]
pub fn egress_listeners(view: &View<'_>) -> Arc<Vec<EgressListener>> {
    view.get(&listener::EgressListeners { scope: scope(view) })
}

/// The index in [`egress_listeners`] of the listener for a port (0 with the `bind` of a Unix
/// socket).
#[must_use]
pub fn egress_listener_for(view: &View<'_>, port: u16, bind: &str) -> Option<usize> {
    egress_listeners(view)
        .iter()
        .position(|listener| match &listener.port {
            None => true,
            Some(own) if port == 0 => own.number == 0 && listener.bind == bind,
            Some(own) => own.number == u32::from(port),
        })
}

/// The services of one egress listener in Istio's order, including duplicates of a host in one
/// namespace.
#[must_use]
pub fn listener_services(view: &View<'_>, listener: usize) -> Arc<Vec<ServiceRef>> {
    view.get(&listener::ListenerServices {
        scope: scope(view),
        listener,
    })
}

/// The services of one host in an egress listener; depends only on that host.
#[must_use]
pub fn listener_services_of_host(
    view: &View<'_>,
    listener: usize,
    host: &Hostname,
) -> Arc<Vec<ServiceRef>> {
    view.get(&listener::ListenerServicesOfHost {
        scope: scope(view),
        listener,
        host: host.clone(),
    })
}

/// A service of an egress listener, reduced to the ports and aliases that the listener imports.
#[must_use]
pub fn listener_service(
    view: &View<'_>,
    listener: usize,
    service: &ServiceRef,
) -> Option<Arc<Service>> {
    (*view.get(&listener::ListenerService {
        scope: scope(view),
        listener,
        service: service.clone(),
    }))
    .clone()
}

/// The VirtualServices for `mesh` that one egress listener imports, in Istio's order.
#[must_use]
pub fn listener_virtual_services(view: &View<'_>, listener: usize) -> Arc<Vec<NamespacedName>> {
    view.get(&listener::ListenerVirtualServices {
        scope: scope(view),
        listener,
    })
}

/// The VirtualServices bound to a gateway (`namespace/name`, or `mesh`) that the proxy's namespace
/// sees, in Istio's order.
#[must_use]
pub fn gateway_virtual_services(view: &View<'_>, gateway: &str) -> Arc<Vec<NamespacedName>> {
    view.get(&listener::GatewayVirtualServices {
        gateway: Arc::from(gateway),
    })
}

/// The VirtualServices bound to a gateway that the proxy's namespace sees, with their hosts, in
/// Istio's order.
pub(crate) fn gateway_hosts(view: &View<'_>, gateway: &Arc<str>) -> Arc<Vec<NamedHosts>> {
    view.get(&listener::GatewayHosts {
        gateway: gateway.clone(),
    })
}

/// The ingress listeners of the proxy's Sidecar; empty if its services determine the ports.
#[must_use]
pub fn ingress_listeners<'a>(view: &'a View<'_>) -> &'a [IstioIngressListener] {
    sidecar(view).map_or(&[], |sidecar| &sidecar.spec.ingress)
}

/// The policy for traffic to unknown destinations.
#[must_use]
pub fn outbound_policy(view: &View<'_>) -> OutboundPolicy {
    (*view.get(&policy::OutboundPolicyOf { scope: scope(view) })).clone()
}

/// The proxy's configuration namespace if it is one of `mattering`, reading it only if the scope
/// does not determine it.
fn config_namespace(
    view: &View<'_>,
    scope: &Scope,
    mattering: &NamespaceList,
) -> Option<Namespace> {
    match scope {
        Scope::Sidecar(name) if name.namespace != *view.get(&applied::RootNamespace) => {
            Some(name.namespace.clone())
        }
        Scope::Sidecar(_) | Scope::Default | Scope::Gateway if mattering.is_empty() => None,
        Scope::Sidecar(_) | Scope::Default | Scope::Gateway => view.proxy().namespace_in(mattering),
    }
}

#[cfg(test)]
mod tests;
