//! The services that an egress listener imports of those that a namespace sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::egress_listener::EgressListener;
use super::hosts::EgressHosts;
use super::index::{IndexedService, Services};
use navarch_api::names::{Hostname, Namespace};
use navarch_push::view::View;
use navarch_registry::model::{Registry, Service, ServiceKey};

/// One service as imported by an egress listener, or as a VirtualService's destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceRef {
    /// Host and namespace.
    pub key: ServiceKey,
    /// The index among the services of that key; a lookup by key returns index 0.
    pub nth: usize,
    /// If several namespaces declare a host, a Kubernetes Service can precede a ServiceEntry.
    pub registry: Registry,
    /// The imported ports.
    pub ports: PortFilter,
}

/// The imported ports of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortFilter {
    /// Each port of the service: the listener is for all ports, or the service has only one.
    All,
    /// These, sorted.
    Only(Vec<u16>),
}

/// The services of `candidates` that a listener imports for proxies of `namespace` (`None`: any
/// namespace that is not listed).
///
/// One host is imported from one namespace: the proxy's own, else the first, but a Kubernetes
/// Service precedes a ServiceEntry. The listener of gateways does not select: it imports all.
pub(super) fn select(
    view: &View<'_>,
    listener: &EgressListener,
    candidates: &Services,
    namespace: Option<&Namespace>,
) -> Vec<ServiceRef> {
    let mut candidates = candidates.of_hosts(&listener.hosts);
    candidates.retain(|service| service.is_visible_to(namespace));
    if listener.hosts.all_exact {
        candidates.retain(|service| service.nth == 0);
    } else {
        // Istio's order: those exported to the namespace by name, then the public ones.
        candidates.sort_by_key(|service| service.is_public());
    }

    let selected = candidates.into_iter();
    let selected: Vec<ServiceRef> = selected
        .filter_map(|service| import(view, listener, service))
        .collect();

    if listener.for_gateway {
        return selected;
    }

    one_namespace_per_host(
        selected,
        namespace,
        view.mesh().settings.unified_sidecar_scope,
    )
}

/// The service with the ports that the listener's hosts and port import, if any.
fn import(
    view: &View<'_>,
    listener: &EgressListener,
    service: &IndexedService,
) -> Option<ServiceRef> {
    let namespace = &service.key.namespace;
    let host = service.key.hostname.as_str();
    if listener.hosts.excludes(namespace, host)
        || !listener
            .hosts
            .sets_for(namespace)
            .any(|set| set.imports(host))
    {
        return None;
    }
    let all = ServiceRef {
        key: service.key.clone(),
        nth: service.nth,
        registry: service.registry,
        ports: PortFilter::All,
    };

    match listener.matched_port {
        None => Some(all),
        Some(port) => with_port(view, all, port),
    }
}

/// The service reduced to one port; `None` if it has no such port.
pub(super) fn with_port(view: &View<'_>, service: ServiceRef, port: u16) -> Option<ServiceRef> {
    let ports = &view.services_of(&service.key).get(service.nth)?.ports;
    if !ports.iter().any(|own| own.port == port) {
        return None;
    }
    Some(if ports.len() == 1 {
        service
    } else {
        ServiceRef {
            ports: PortFilter::Only(vec![port]),
            ..service
        }
    })
}

/// Keeps the services of one namespace for each host; with `prefers_kubernetes`, a Kubernetes
/// Service precedes others.
fn one_namespace_per_host(
    selected: Vec<ServiceRef>,
    own: Option<&Namespace>,
    prefers_kubernetes: bool,
) -> Vec<ServiceRef> {
    let mut chosen: BTreeMap<Hostname, (Namespace, Registry)> = BTreeMap::new();

    for service in &selected {
        let ServiceKey {
            namespace,
            hostname,
        } = &service.key;
        let is_own = Some(namespace) == own;
        let wins = match chosen.get(hostname) {
            None => true,
            Some(_) if is_own => true,
            Some((first, registry)) => {
                prefers_kubernetes
                    && *registry != Registry::Kubernetes
                    && service.registry == Registry::Kubernetes
                    && Some(first) != own
            }
        };

        if wins {
            chosen.insert(hostname.clone(), (namespace.clone(), service.registry));
        }
    }

    let is_chosen = |key: &ServiceKey| {
        chosen
            .get(&key.hostname)
            .is_some_and(|(namespace, _)| *namespace == key.namespace)
    };

    selected
        .into_iter()
        .filter(|service| is_chosen(&service.key))
        .collect()
}

/// The referenced service, reduced to its ports, and to the aliases that `hosts` import if given.
pub(super) fn resolve(
    view: &View<'_>,
    reference: &ServiceRef,
    hosts: Option<&EgressHosts>,
) -> Option<Arc<Service>> {
    let service = view.services_of(&reference.key).get(reference.nth)?;
    let cut_ports = match &reference.ports {
        PortFilter::All => None,
        PortFilter::Only(ports) => Some(ports),
    };
    let aliases = hosts.filter(|_| !service.aliases.is_empty()).map(|hosts| {
        let host = service.key.hostname.as_str();
        let set = hosts
            .sets_for(&service.key.namespace)
            .find(|set| set.imports(host));
        let imported =
            |alias: &&ServiceKey| set.is_some_and(|set| set.imports(alias.hostname.as_str()));
        service
            .aliases
            .iter()
            .filter(imported)
            .cloned()
            .collect::<Vec<_>>()
    });

    let aliases = aliases.filter(|aliases| aliases.len() != service.aliases.len());
    if cut_ports.is_none() && aliases.is_none() {
        return Some(Arc::clone(service));
    }

    let mut cut = Service::clone(service);

    if let Some(ports) = cut_ports {
        cut.ports
            .retain(|port| ports.binary_search(&port.port).is_ok());
    }

    if let Some(aliases) = aliases {
        cut.aliases = aliases;
    }

    Some(Arc::new(cut))
}
