//! The services of a scope over all of its egress listeners: one per host, merged if listeners
//! import parts of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::applied::Scope;
use super::config_namespace;
use super::egress_listener::EgressListener;
use super::index::{HostIndex, IndexedService, Services};
use super::listener::{
    EgressListeners, ImportedDestination, ImportedDestinations, ListenerServices,
    ListenerServicesOfHost,
};
use super::selection::{self, PortFilter, ServiceRef};
use navarch_api::names::{Hostname, Namespace};
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Registry, Service, ServiceKey};

/// The keys of all services of a scope, one per host, in the order in which they are first
/// imported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VisibleServices {
    pub(super) scope: Scope,
}

/// The service of a host in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostService {
    pub(super) scope: Scope,
    pub(super) host: Hostname,
}

/// The key of the service of a host in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostKey {
    pub(super) scope: Scope,
    pub(super) host: Hostname,
}

/// The visible services in import order, one for each host.
#[derive(Default)]
struct ServicesByHost {
    /// Index into `services` by host.
    places: BTreeMap<Hostname, usize>,
    services: Vec<(ServiceKey, Registry)>,
}

impl ServicesByHost {
    /// Whether a host's service is one that no other can replace.
    fn has_kubernetes_service(&self, host: &Hostname) -> bool {
        let service = self
            .places
            .get(host)
            .and_then(|place| self.services.get(*place));
        service.is_some_and(|(_, registry)| *registry == Registry::Kubernetes)
    }

    /// Adds a service unless its host has one that it must not replace.
    fn add(&mut self, service: &ServiceRef) {
        let later = (service.key.clone(), service.registry);
        match self
            .places
            .get(&service.key.hostname)
            .and_then(|place| self.services.get_mut(*place))
        {
            Some(earlier) if replaces(earlier.1, later.1) => *earlier = later,
            Some(_) => {}
            None => {
                self.places
                    .insert(service.key.hostname.clone(), self.services.len());
                self.services.push(later);
            }
        }
    }
}

impl Query for VisibleServices {
    type Value = Vec<ServiceKey>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listeners = view.get(&EgressListeners {
            scope: self.scope.clone(),
        });
        let mut seen = ServicesByHost::default();

        for (place, listener) in listeners.iter().enumerate() {
            let services = view.get(&ListenerServices {
                scope: self.scope.clone(),
                listener: place,
            });
            services.iter().for_each(|service| seen.add(service));
            if listener.for_gateway {
                continue;
            }

            let imported = view.get(&ImportedDestinations {
                scope: self.scope.clone(),
                listener: place,
            });
            for (host, ports) in imported.iter() {
                if listener.declared || !seen.has_kubernetes_service(host) {
                    self.imports_of(view, listener, host, ports)
                        .iter()
                        .for_each(|service| seen.add(service));
                }
            }
        }

        seen.services.into_iter().map(|(key, _)| key).collect()
    }
}

impl VisibleServices {
    /// The services that are destinations of VirtualServices, for one host.
    fn imports_of(
        &self,
        view: &View<'_>,
        listener: &EgressListener,
        host: &Hostname,
        named: &[Vec<u16>],
    ) -> Vec<ServiceRef> {
        let index = view.get(&HostIndex { host: host.clone() });
        let namespaces = index
            .services
            .iter()
            .map(|service| service.key.namespace.clone());
        let mattering = namespaces.chain(index.mattering.iter().cloned()).collect();
        let own = config_namespace(view, &self.scope, &mattering);

        let pick = if view.mesh().settings.sidecar_best_namespace {
            Pick::Best
        } else {
            Pick::First
        };

        let Some(service) = destination_service(&index, own.as_ref(), pick) else {
            return Vec::new();
        };

        let whole = ServiceRef {
            key: service.key.clone(),
            nth: 0,
            registry: service.registry,
            ports: PortFilter::All,
        };

        let cut = |ports: &Vec<u16>| match listener.matched_port {
            Some(port) => selection::with_port(view, whole.clone(), port),
            None => with_named_ports(view, whole.clone(), ports),
        };
        named.iter().filter_map(cut).collect()
    }
}

/// How one of several namespaces with a host is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    /// That of a Kubernetes Service, else of the oldest service.
    Best,
    /// The alphabetically first one.
    First,
}

/// The service of a destination's host: the own namespace's, even if not exported; else one of the
/// visible ones.
fn destination_service<'a>(
    index: &'a Services,
    own: Option<&Namespace>,
    pick: Pick,
) -> Option<&'a IndexedService> {
    let winners = || index.services.iter().filter(|service| service.nth == 0);
    if let Some(service) = winners().find(|service| Some(&service.key.namespace) == own) {
        return Some(service);
    }

    let visible = winners().filter(|service| service.is_visible_to(own));
    if pick == Pick::First {
        return visible.min_by_key(|service| &service.key.namespace);
    }

    let mut best: Option<&IndexedService> = None;

    for service in visible {
        if service.registry == Registry::Kubernetes {
            return Some(service);
        }
        if best.is_none_or(|best| service.is_older_than(best)) {
            best = Some(service);
        }
    }

    best
}

/// The service reduced to the ports of a VirtualService, where 0 means all; `None` if it has none
/// of them.
fn with_named_ports(view: &View<'_>, service: ServiceRef, named: &[u16]) -> Option<ServiceRef> {
    if named.is_empty() || named.contains(&0) {
        return Some(service);
    }
    let own = &view.services_of(&service.key).get(service.nth)?.ports;
    let mut ports: Vec<u16> = own
        .iter()
        .map(|port| port.port)
        .filter(|port| named.contains(port))
        .collect();
    if ports.len() == own.len() {
        return Some(service);
    }
    ports.sort_unstable();
    (!ports.is_empty()).then_some(ServiceRef {
        ports: PortFilter::Only(ports),
        ..service
    })
}

/// Whether a later service replaces an earlier one of the same host: only Kubernetes Services
/// replace, and only other kinds.
fn replaces(earlier: Registry, later: Registry) -> bool {
    earlier != Registry::Kubernetes && later == Registry::Kubernetes
}

impl Query for HostService {
    type Value = Option<Arc<Service>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let listeners = view.get(&EgressListeners {
            scope: self.scope.clone(),
        });
        let mut seen: Option<Arc<Service>> = None;

        for (place, listener) in listeners.iter().enumerate() {
            let host = ListenerServicesOfHost {
                scope: self.scope.clone(),
                listener: place,
                host: self.host.clone(),
            };

            for reference in view.get(&host).iter() {
                add(
                    &mut seen,
                    selection::resolve(view, reference, Some(&listener.hosts)),
                );
            }

            // If everything is imported whole, destinations only add services that the own
            // namespace does not export to itself. Such a Kubernetes Service replaces a visible
            // ServiceEntry.
            let is_final = seen
                .as_ref()
                .is_some_and(|service| service.registry == Registry::Kubernetes);
            if listener.for_gateway || (!listener.declared && is_final) {
                continue;
            }

            let ports = view.get(&ImportedDestination {
                scope: self.scope.clone(),
                listener: place,
                host: self.host.clone(),
            });
            let all = VisibleServices {
                scope: self.scope.clone(),
            };
            for reference in all.imports_of(view, listener, &self.host, &ports) {
                add(&mut seen, selection::resolve(view, &reference, None));
            }
        }

        seen
    }
}

/// Adds a service to the one of its host (Istio's `appendSidecarServices`).
fn add(seen: &mut Option<Arc<Service>>, later: Option<Arc<Service>>) {
    let Some(later) = later else { return };
    let Some(earlier) = seen else {
        *seen = Some(later);
        return;
    };

    if Arc::ptr_eq(earlier, &later) || replaces(later.registry, earlier.registry) {
        return;
    }

    if replaces(earlier.registry, later.registry) {
        *seen = Some(later);
        return;
    }

    let missing: Vec<_> = later
        .ports
        .iter()
        .filter(|port| !earlier.ports.iter().any(|own| own.port == port.port))
        .cloned()
        .collect();

    if !missing.is_empty() && can_merge(earlier, &later) {
        Arc::make_mut(earlier).ports.extend(missing);
    }
}

/// Whether two services of a host can be merged.
fn can_merge(a: &Service, b: &Service) -> bool {
    a.key.namespace == b.key.namespace
        && a.resolution == b.resolution
        && a.registry == b.registry
        && a.labels == b.labels
        && a.selector == b.selector
        && a.export_to == b.export_to
}

impl Query for HostKey {
    type Value = Option<ServiceKey>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let service = view.get(&HostService {
            scope: self.scope.clone(),
            host: self.host.clone(),
        });
        service.as_ref().as_ref().map(|service| service.key.clone())
    }
}
