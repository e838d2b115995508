//! Which services an egress listener takes out of those that a namespace sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hosts::EgressHosts;
use super::index::{IndexedService, Services};
use super::listener::EgressListener;
use navarch_api::names::{Hostname, Namespace};
use navarch_push::view::View;
use navarch_registry::model::{Registry, Service, ServiceKey};

/// One service as an egress listener, or a VirtualService's destination, imports it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceRef {
    /// Host and namespace.
    pub key: ServiceKey,
    /// Which of the services of that key, 0 being the one that a look-up means.
    pub nth: usize,
    /// Which registry it stems from.
    pub registry: Registry,
    /// The ports that are imported.
    pub ports: PortFilter,
}

/// Which ports of a service are imported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortFilter {
    /// All of them.
    All,
    /// These, sorted.
    Only(Vec<u16>),
}

/// The services of `candidates` that a listener imports for proxies of `namespace` (`None`: one that nothing names).
///
/// One host is imported from one namespace: the own one, else the first, but a Kubernetes Service before a ServiceEntry.
/// Gateways have no listener that picks: they take all.
pub(super) fn select(
    view: &View<'_>,
    listener: &EgressListener,
    candidates: &Services,
    namespace: Option<&Namespace>,
) -> Vec<ServiceRef> {
    let selected: Vec<ServiceRef> = if listener.hosts.all_exact {
        let wanted = candidates.services.iter().filter(|service| service.nth == 0 && service.is_visible_to(namespace));
        wanted.filter_map(|service| import(view, listener, service)).collect()
    } else {
        candidates.exported_to(namespace).filter_map(|service| import(view, listener, service)).collect()
    };
    if listener.for_gateway {
        return selected;
    }
    one_namespace_per_host(selected, namespace, view.mesh().settings.unified_sidecar_scope)
}

/// The service as the listener's hosts and port import it, if they do.
fn import(view: &View<'_>, listener: &EgressListener, service: &IndexedService) -> Option<ServiceRef> {
    let (namespace, host) = (&service.key.namespace, service.key.hostname.as_str());
    if listener.hosts.excludes(namespace, host) || !listener.hosts.sets_for(namespace).any(|set| set.imports(host)) {
        return None;
    }
    let all =
        ServiceRef { key: service.key.clone(), nth: service.nth, registry: service.registry, ports: PortFilter::All };
    match listener.matched_port {
        None => Some(all),
        Some(port) => with_port(view, all, port),
    }
}

/// The service cut to one port; `None` if it has no such port.
pub(super) fn with_port(view: &View<'_>, service: ServiceRef, port: u16) -> Option<ServiceRef> {
    let ports = &view.services_of(&service.key).get(service.nth)?.ports;
    if !ports.iter().any(|own| own.port == port) {
        return None;
    }
    Some(if ports.len() == 1 { service } else { ServiceRef { ports: PortFilter::Only(vec![port]), ..service } })
}

/// Keeps of each host the services of one namespace; with `prefers_kubernetes`, a Kubernetes Service comes before others.
fn one_namespace_per_host(
    selected: Vec<ServiceRef>,
    own: Option<&Namespace>,
    prefers_kubernetes: bool,
) -> Vec<ServiceRef> {
    let mut chosen: BTreeMap<Hostname, (Namespace, Registry)> = BTreeMap::new();
    for service in &selected {
        let ServiceKey { namespace, hostname } = &service.key;
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
    let is_chosen =
        |key: &ServiceKey| chosen.get(&key.hostname).is_some_and(|(namespace, _)| *namespace == key.namespace);
    selected.into_iter().filter(|service| is_chosen(&service.key)).collect()
}

/// The service behind a reference, cut to its ports, and to the aliases that `hosts` import where they are given.
pub(super) fn resolve(view: &View<'_>, reference: &ServiceRef, hosts: Option<&EgressHosts>) -> Option<Arc<Service>> {
    let service = view.services_of(&reference.key).get(reference.nth)?;
    let cut_ports = match &reference.ports {
        PortFilter::All => None,
        PortFilter::Only(ports) => Some(ports),
    };
    let aliases = hosts.filter(|_| !service.aliases.is_empty()).map(|hosts| {
        let host = service.key.hostname.as_str();
        let set = hosts.sets_for(&service.key.namespace).find(|set| set.imports(host));
        let imported = |alias: &&ServiceKey| set.is_some_and(|set| set.imports(alias.hostname.as_str()));
        service.aliases.iter().filter(imported).cloned().collect::<Vec<_>>()
    });
    let aliases = aliases.filter(|aliases| aliases.len() != service.aliases.len());
    if cut_ports.is_none() && aliases.is_none() {
        return Some(Arc::clone(service));
    }
    let mut cut = Service::clone(service);
    if let Some(ports) = cut_ports {
        cut.ports.retain(|port| ports.binary_search(&port.port).is_ok());
    }
    if let Some(aliases) = aliases {
        cut.aliases = aliases;
    }
    Some(Arc::new(cut))
}
