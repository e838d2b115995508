//! Which virtual hosts stand on a port, and whose they are.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::context::RouteContext;
use super::domains;
use super::http_route::has_routes;
use super::port_services::{self, OutboundPort, PortService};
use crate::api::hostname;
use crate::api::names::Hostname;
use crate::api::object::NamespacedName;
use crate::envoy::scope::{self, ServiceRef};
use crate::envoy::virtual_service::{IndexedVirtualService, MESH_GATEWAY, VirtualServiceIndex};
use crate::push::query::Query;
use crate::push::view::View;

/// The port for which VirtualServices count even if no service has their hosts.
const HTTP_PORT: u16 = 80;

/// One virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    /// Its name, `host:port`.
    pub(super) name: String,
    /// The host, in lower case.
    pub(super) host: Hostname,
    /// The port of the service, or of the listener.
    pub(super) port: u16,
    /// The VirtualService whose routes it has; `None` for a plain route to the service.
    pub(super) owner: Option<NamespacedName>,
    /// The service; `None` for a host that only a VirtualService names.
    pub(super) service: Option<ServiceRef>,
}

/// The virtual hosts of a port, in the order in which they take names and domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claims {
    /// Where they stand.
    pub(super) at: OutboundPort,
}

/// Virtual hosts with one set of routes (Istio's `VirtualHostWrapper`).
struct Wrapper {
    /// The port of the services, or of the listener.
    port: u16,
    /// The VirtualService; `None` for plain routes.
    owner: Option<NamespacedName>,
    /// The hosts that no service has.
    hosts: Vec<Hostname>,
    /// The services with their hosts.
    services: Vec<(Hostname, ServiceRef)>,
}

/// The value of [`Claims`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClaimTable {
    /// The virtual hosts in their order.
    pub(super) claims: Vec<Claim>,
    /// Their places, by name.
    by_name: BTreeMap<String, usize>,
}

impl ClaimTable {
    /// The virtual host of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Claim> {
        self.claims.get(*self.by_name.get(name)?)
    }
}

impl Query for Claims {
    type Value = ClaimTable;

    fn compute(&self, view: &View<'_>) -> ClaimTable {
        let services = port_services::services_on(view, self.at);
        let mut wrappers = of_virtual_services(view, self.at, &services);
        let routed: BTreeSet<Hostname> =
            wrappers.iter().flat_map(|wrapper| &wrapper.services).map(|(host, _)| host.clone()).collect();
        for (host, service) in services.iter().filter(|(host, service)| !service.is_alias && !routed.contains(*host)) {
            wrappers.extend(service.http_ports.iter().map(|port| Wrapper {
                port: *port,
                owner: None,
                hosts: Vec::new(),
                services: vec![(host.clone(), service.service.clone())],
            }));
        }
        // Istio visits the ports of an HTTP proxy in random order; port 80 comes first here, as its domains stand without it.
        wrappers.sort_by_key(|wrapper| wrapper.port != HTTP_PORT);
        let mut table = ClaimTable::default();
        for claim in wrappers.into_iter().flat_map(Wrapper::claims) {
            if let Entry::Vacant(entry) = table.by_name.entry(claim.name.clone()) {
                entry.insert(table.claims.len());
                table.claims.push(claim);
            }
        }
        table
    }
}

impl Wrapper {
    /// Its virtual hosts: the hosts first.
    fn claims(self) -> impl Iterator<Item = Claim> {
        let Self { port, owner, hosts, services } = self;
        let hosts = hosts.into_iter().map(|host| (port_services::lower_case(&host), None));
        let services = services.into_iter().map(|(host, service)| (host, Some(service)));
        hosts.chain(services).map(move |(host, service)| Claim {
            name: domains::with_port(host.as_str(), port),
            host,
            port,
            owner: owner.clone(),
            service,
        })
    }
}

/// The wrappers of all VirtualServices that have routes here, the oldest first.
fn of_virtual_services(view: &View<'_>, at: OutboundPort, services: &BTreeMap<Hostname, PortService>) -> Vec<Wrapper> {
    let names = scope::listener_virtual_services(view, at.listener);
    let index = view.get(&VirtualServiceIndex);
    let by_name: BTreeMap<&NamespacedName, &IndexedVirtualService> =
        index.entries.iter().map(|entry| (&entry.name, entry)).collect();
    let entries: Vec<&IndexedVirtualService> = names.iter().filter_map(|name| by_name.get(name).copied()).collect();
    let hosts = HostOwners::new(&entries);
    let wildcards: Vec<&Hostname> = services.keys().filter(|host| host.is_wildcard()).collect();
    let mut wrappers = Vec::new();
    for entry in &entries {
        if at.port != HTTP_PORT && !touches(entry, services, &wildcards) {
            continue;
        }
        if !*view.get(&HasRoutes { name: entry.name.clone(), port: at.port }) {
            continue;
        }
        wrappers.extend(wrappers_of(view, at, entry, services, &hosts));
    }
    wrappers
}

/// Whether a VirtualService has routes on a port for the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasRoutes {
    /// The VirtualService.
    name: NamespacedName,
    /// The port.
    port: u16,
}

impl Query for HasRoutes {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let context = RouteContext {
            view,
            listen_port: self.port,
            gateways: &[MESH_GATEWAY.to_owned()].into(),
            is_tls: false,
            advertises_http3: false,
            service: &|_| None,
        };
        has_routes(&context, &self.name)
    }
}

/// Whether any host of a VirtualService means a service here, or the other way round. `wildcards` are the services' hosts
/// that are wildcards.
fn touches(entry: &IndexedVirtualService, services: &BTreeMap<Hostname, PortService>, wildcards: &[&Hostname]) -> bool {
    entry.hosts.iter().map(port_services::lower_case).any(|host| {
        services.contains_key(&host)
            || (host.is_wildcard() && services.keys().any(|service| host.matches(service)))
            || wildcards.iter().any(|service| host.matches(service))
    })
}

/// The wrappers of one VirtualService: one for each port of its services.
fn wrappers_of(
    view: &View<'_>,
    at: OutboundPort,
    entry: &IndexedVirtualService,
    services: &BTreeMap<Hostname, PortService>,
    owners: &HostOwners<'_>,
) -> Vec<Wrapper> {
    let (hosts, matched) = split_hosts(entry, services, owners);
    if entry.is_gateway_route {
        let of_consumer = || view.proxy().namespace_among([entry.name.namespace.clone()]).is_some();
        let allowed = |(_, service): &&(Hostname, &PortService)| service.service.key.namespace == entry.name.namespace;
        if !matched.iter().any(|found| allowed(&found)) && (matched.is_empty() || !of_consumer()) {
            return Vec::new();
        }
    }
    let mut by_port: BTreeMap<u16, Vec<(Hostname, ServiceRef)>> = BTreeMap::new();
    for (host, service) in matched {
        for port in &service.http_ports {
            by_port.entry(*port).or_default().push((host.clone(), service.service.clone()));
        }
    }
    if by_port.is_empty() && at.port == HTTP_PORT {
        by_port.insert(HTTP_PORT, Vec::new());
    }
    let wrapper = |(port, services)| Wrapper { port, owner: Some(entry.name.clone()), hosts: hosts.clone(), services };
    by_port.into_iter().map(wrapper).collect()
}

/// Parts the hosts of a VirtualService into those that no service has, and the services of the others.
fn split_hosts<'a>(
    entry: &IndexedVirtualService,
    services: &'a BTreeMap<Hostname, PortService>,
    owners: &HostOwners<'_>,
) -> (Vec<Hostname>, Vec<(Hostname, &'a PortService)>) {
    let (mut unknown, mut matched) = (Vec::new(), Vec::new());
    for host in entry.hosts.iter().filter(|host| !host.is_wildcard()) {
        let lower = port_services::lower_case(host);
        match services.get(&lower) {
            Some(service) => matched.push((lower, service)),
            None => unknown.push(host.clone()),
        }
    }
    for host in entry.hosts.iter().filter(|host| host.is_wildcard()).map(port_services::lower_case) {
        if entry.is_gateway_route {
            unknown.push(host);
            continue;
        }
        let mut found = false;
        for (name, service) in services.iter().filter(|(name, _)| name.matches(&host)) {
            found = true;
            // A service below several wildcards belongs to the closest one.
            if owners.owner_of(name) == Some(&entry.name) {
                matched.push((name.clone(), service));
            }
        }
        if !found {
            unknown.push(host);
        }
    }
    (unknown, matched)
}

/// Which VirtualService is closest to a host: the oldest that names it, else the one with the longest wildcard over it.
struct HostOwners<'a> {
    /// By full name.
    exact: BTreeMap<&'a str, &'a NamespacedName>,
    /// By wildcard, the most specific first.
    wildcards: Vec<(&'a Hostname, &'a NamespacedName)>,
}

impl<'a> HostOwners<'a> {
    /// Of VirtualServices, the oldest first.
    fn new(entries: &[&'a IndexedVirtualService]) -> Self {
        let mut exact = BTreeMap::new();
        let mut wildcards: BTreeMap<&Hostname, &NamespacedName> = BTreeMap::new();
        for (host, entry) in entries.iter().flat_map(|entry| entry.hosts.iter().map(move |host| (host, entry))) {
            if host.is_wildcard() {
                wildcards.entry(host).or_insert(&entry.name);
            } else {
                exact.entry(host.as_str()).or_insert(&entry.name);
            }
        }
        let mut wildcards: Vec<_> = wildcards.into_iter().collect();
        wildcards.sort_by(|a, b| hostname::compare_specificity(a.0.as_str(), b.0.as_str()));
        Self { exact, wildcards }
    }

    /// The VirtualService closest to a service's host.
    fn owner_of(&self, host: &Hostname) -> Option<&'a NamespacedName> {
        if let Some(owner) = self.exact.get(host.as_str()) {
            return Some(owner);
        }
        self.wildcards.iter().find(|(wildcard, _)| host.subset_of(wildcard)).map(|(_, owner)| *owner)
    }
}
