//! The services of an egress listener on one port.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::context::RouteClient;
use crate::sidecar_scope::{self, PortFilter, ServiceRef};
use navarch_api::names::Hostname;
use navarch_api::object::ObjectRef;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Resolution, Service, ServiceKey, ServicePort};
use navarch_registry::protocol::Protocol;

/// The context of outbound routes: the port of an egress listener, 0 for HTTP proxies and Unix
/// sockets, which serve every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OutboundPort {
    /// The index of the egress listener.
    pub(super) listener: usize,
    pub(super) port: u16,
    pub(super) client: RouteClient,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortService {
    pub(super) service: ServiceRef,
    /// Its ports that carry HTTP, or may do so.
    pub(super) http_ports: Vec<u16>,
    /// Whether it is an alias of another, without a virtual host of its own.
    pub(super) is_alias: bool,
}

/// All services of all namespaces by port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortIndex;

/// The services of all namespaces on one port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServicesOnPort(u16);

/// A service's properties on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OnPort {
    /// Whether the port carries HTTP, or may do so.
    is_http: bool,
    /// Whether the service is an alias of another.
    is_alias: bool,
    /// Whether it is the previous service with another address.
    is_further_address: bool,
}

/// Services by key and index among those of the key.
type ByService = BTreeMap<(ServiceKey, usize), OnPort>;

impl Query for PortIndex {
    type Value = BTreeMap<u16, Arc<ByService>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut index: BTreeMap<u16, ByService> = BTreeMap::new();
        let mut last: Option<(&Service, usize)> = None;

        for service in view.all_services() {
            let before = last.filter(|(before, _)| before.key == service.key);
            let nth = before.map_or(0, |(_, nth)| nth + 1);
            let is_further_address =
                before.is_some_and(|(before, _)| before.origin == service.origin);
            last = Some((service, nth));
            let is_alias = service.resolution == Resolution::Alias;

            for port in service
                .ports
                .iter()
                .filter(|port| port.protocol != Protocol::Udp)
            {
                let on_port = OnPort {
                    is_http: port.protocol.is_http_or_sniffed(),
                    is_alias,
                    is_further_address,
                };
                // If a port is declared twice the first declaration is used.
                index
                    .entry(port.port)
                    .or_default()
                    .entry((service.key.clone(), nth))
                    .or_insert(on_port);
            }
        }

        index
            .into_iter()
            .map(|(port, services)| (port, Arc::new(services)))
            .collect()
    }
}

impl Query for ServicesOnPort {
    type Value = Arc<ByService>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&PortIndex)
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

/// The ports that at least so many services of all namespaces have.
pub(super) fn ports_of_many(view: &View<'_>, services: usize) -> Vec<u16> {
    let index = view.get(&PortIndex);
    let crowded = index
        .iter()
        .filter(|(_, on_port)| on_port.len() >= services);
    crowded.map(|(port, _)| *port).collect()
}

/// The services of an egress listener on a port, by lower-case host. Of several objects with one
/// host the last is used: the youngest, and a public one rather than one that is exported by name.
/// Of the services of one ServiceEntry, one for each of its addresses, istiod uses any, Navarch the
/// first.
pub(super) fn services_on(view: &View<'_>, at: OutboundPort) -> BTreeMap<Hostname, PortService> {
    let services = sidecar_scope::listener_services(view, at.listener);

    if at.port == 0 {
        let mut found: BTreeMap<Hostname, (ObjectRef, PortService)> = BTreeMap::new();

        for reference in services.iter() {
            let Some(service) = sidecar_scope::listener_service(view, at.listener, reference)
            else {
                continue;
            };
            if found
                .get(&service.key.hostname)
                .is_none_or(|(origin, _)| *origin != service.origin)
            {
                let entry = (service.origin.clone(), with_all_ports(reference, &service));
                found.insert(service.key.hostname.clone(), entry);
            }
        }

        return found
            .into_iter()
            .map(|(host, (_, service))| (host, service))
            .collect();
    }

    let on_port = view.get(&ServicesOnPort(at.port));
    let mut found: BTreeMap<Hostname, PortService> = BTreeMap::new();
    for service in services
        .iter()
        .filter(|service| imports(&service.ports, at.port))
    {
        if let Some(on_port) = on_port.get(&(service.key.clone(), service.nth)) {
            let http_ports = if on_port.is_http {
                vec![at.port]
            } else {
                Vec::new()
            };

            let entry = PortService {
                service: service.clone(),
                http_ports,
                is_alias: on_port.is_alias,
            };
            let host = lower_case(&service.key.hostname);
            if !on_port.is_further_address || !found.contains_key(&host) {
                found.insert(host, entry);
            }
        }
    }

    found
}

fn with_all_ports(reference: &ServiceRef, service: &Service) -> PortService {
    let http = service
        .ports
        .iter()
        .filter(|port| port.protocol.is_http_or_sniffed());
    PortService {
        service: reference.clone(),
        http_ports: http.map(|port| port.port).collect(),
        is_alias: service.resolution == Resolution::Alias,
    }
}

/// The service that is used for a host on a port (see [`services_on`]), reduced to that port. Reads
/// only that host's services.
pub(super) fn service_on(
    view: &View<'_>,
    at: OutboundPort,
    host: &Hostname,
) -> Option<Arc<Service>> {
    let services = sidecar_scope::listener_services_of_host(view, at.listener, host);
    let on_port = services
        .iter()
        .filter_map(|reference| cut(view, at, reference));
    on_port.reduce(|before, service| {
        if before.origin == service.origin {
            before
        } else {
            service
        }
    })
}

/// A service of the listener, reduced to the port and with its host in lower case; `None` if it
/// does not have the port.
pub(super) fn cut(
    view: &View<'_>,
    at: OutboundPort,
    reference: &ServiceRef,
) -> Option<Arc<Service>> {
    let service = sidecar_scope::listener_service(view, at.listener, reference)?;
    if at.port == 0 {
        return Some(service);
    }

    let port = service.port(at.port)?;
    let lower = lower_case(&service.key.hostname);
    if service.ports.len() == 1 && lower == service.key.hostname {
        return Some(service);
    }

    let ports: Vec<ServicePort> = vec![port.clone()];
    let key = ServiceKey {
        hostname: lower,
        ..service.key.clone()
    };

    Some(Arc::new(Service {
        key,
        ports,
        ..Service::clone(&service)
    }))
}

fn imports(ports: &PortFilter, port: u16) -> bool {
    match ports {
        PortFilter::All => true,
        PortFilter::Only(ports) => ports.binary_search(&port).is_ok(),
    }
}

/// A host in lower case, as Envoy compares it.
pub(super) fn lower_case(host: &Hostname) -> Hostname {
    if host.as_str().bytes().any(|byte| byte.is_ascii_uppercase()) {
        Hostname::new(host.as_str().to_ascii_lowercase())
    } else {
        host.clone()
    }
}
