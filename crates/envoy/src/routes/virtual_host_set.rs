//! The virtual hosts of a port, and the source VirtualService of each.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::context::{RouteClient, RouteContext};
use super::domains;
use super::http_route::has_routes;
use super::port_services::{self, OutboundPort, PortService};
use crate::sidecar_scope::{self, ServiceRef};
use crate::sidecar_waypoint;
use crate::virtual_service::{IndexedVirtualService, VirtualServiceIndex};
use navarch_api::hostname::HostIndex;
use navarch_api::istio::MESH_GATEWAY;
use navarch_api::names::Hostname;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;

/// The port on which hosts of VirtualServices are served even without a service.
pub(super) const HTTP_PORT: u16 = 80;

/// A virtual host before it is built.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlannedVirtualHost {
    /// Its name, `host:port`.
    pub(super) name: String,
    /// The host, in lower case.
    pub(super) host: Hostname,
    /// The port of the service, or of the listener.
    pub(super) port: u16,
    /// The VirtualService whose routes it has; `None` for a plain route to the service.
    pub(super) owner: Option<NamespacedName>,
    /// The service; `None` for a host of a VirtualService without a service.
    pub(super) service: Option<ServiceRef>,
}

/// The virtual hosts of a port, in the order of precedence for names and domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VirtualHostSet {
    /// The port and listener.
    pub(super) at: OutboundPort,
}

/// Virtual hosts with the same routes (Istio's `VirtualHostWrapper`).
struct Wrapper {
    /// The port of the services, or of the listener.
    port: u16,
    /// The VirtualService; `None` for plain routes.
    owner: Option<NamespacedName>,
    /// The hosts without a service.
    hosts: Vec<Hostname>,
    /// The services with their hosts.
    services: Vec<(Hostname, ServiceRef)>,
}

/// The value of [`VirtualHostSet`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct VirtualHostTable {
    /// The virtual hosts in their order.
    pub(super) virtual_hosts: Vec<PlannedVirtualHost>,
    /// Index into `virtual_hosts` by name.
    by_name: BTreeMap<String, usize>,
}

impl VirtualHostTable {
    pub(super) fn find(&self, name: &str) -> Option<&PlannedVirtualHost> {
        self.virtual_hosts.get(*self.by_name.get(name)?)
    }
}

impl Query for VirtualHostSet {
    type Value = VirtualHostTable;

    fn compute(&self, view: &View<'_>) -> VirtualHostTable {
        let services = port_services::services_on(view, self.at);
        let mut wrappers = of_virtual_services(view, self.at, &services);
        let routed: BTreeSet<Hostname> = wrappers
            .iter()
            .flat_map(|wrapper| &wrapper.services)
            .map(|(host, _)| host.clone())
            .collect();
        for (host, service) in services
            .iter()
            .filter(|(host, service)| !service.is_alias && !routed.contains(*host))
        {
            wrappers.extend(service.http_ports.iter().map(|port| Wrapper {
                port: *port,
                owner: None,
                hosts: Vec::new(),
                services: vec![(host.clone(), service.service.clone())],
            }));
        }

        // Istio visits the ports of an HTTP proxy in random order; port 80 is first here, as its
        // domains have no port.
        wrappers.sort_by_key(|wrapper| wrapper.port != HTTP_PORT);
        let mut table = VirtualHostTable::default();

        for virtual_host in wrappers.into_iter().flat_map(Wrapper::virtual_hosts) {
            if let Entry::Vacant(entry) = table.by_name.entry(virtual_host.name.clone()) {
                entry.insert(table.virtual_hosts.len());
                table.virtual_hosts.push(virtual_host);
            }
        }

        table
    }
}

impl Wrapper {
    /// Its virtual hosts: the hosts first.
    fn virtual_hosts(self) -> impl Iterator<Item = PlannedVirtualHost> {
        let Self {
            port,
            owner,
            hosts,
            services,
        } = self;

        let hosts = hosts
            .into_iter()
            .map(|host| (port_services::lower_case(&host), None));
        let services = services
            .into_iter()
            .map(|(host, service)| (host, Some(service)));

        hosts
            .chain(services)
            .map(move |(host, service)| PlannedVirtualHost {
                name: domains::with_port(host.as_str(), port),
                host,
                port,
                owner: owner.clone(),
                service,
            })
    }
}

/// The wrappers of all VirtualServices with routes here, the oldest first.
fn of_virtual_services(
    view: &View<'_>,
    at: OutboundPort,
    services: &BTreeMap<Hostname, PortService>,
) -> Vec<Wrapper> {
    let names = sidecar_scope::listener_virtual_services(view, at.listener);
    let index = view.get(&VirtualServiceIndex);
    let by_name: BTreeMap<&NamespacedName, &IndexedVirtualService> = index
        .entries
        .iter()
        .map(|entry| (&entry.name, entry))
        .collect();
    let entries: Vec<&IndexedVirtualService> = names
        .iter()
        .filter_map(|name| by_name.get(name).copied())
        .collect();
    let owned = owned_by_wildcard(&entries, services);

    let known = HostIndex::new(services.keys().map(|host| (host.as_str(), ())));
    let mut wrappers = Vec::new();

    for entry in &entries {
        if at.port != HTTP_PORT && !touches(entry, &known) {
            continue;
        }

        if !*view.get(&HasRoutes {
            name: entry.name.clone(),
            port: at.port,
        }) {
            continue;
        }

        let owned = owned
            .get(&entry.name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        wrappers.extend(wrappers_of(
            view,
            at,
            entry,
            split_hosts(entry, services, &known, owned),
        ));
    }

    wrappers
}

/// Whether a VirtualService has routes on a port for the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasRoutes {
    name: NamespacedName,
    port: u16,
}

impl Query for HasRoutes {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        let context = RouteContext {
            view,
            listen_port: self.port,
            gateways: &[MESH_GATEWAY.to_owned()].into(),
            client: RouteClient::Envoy,
            is_tls: false,
            advertises_http3: false,
            service: &|_| None,
        };
        has_routes(&context, &self.name)
    }
}

/// Whether any host of a VirtualService matches a service here, or the other way round.
fn touches(entry: &IndexedVirtualService, known: &HostIndex<'_, ()>) -> bool {
    entry
        .hosts
        .iter()
        .map(port_services::lower_case)
        .any(|host| known.matches(host.as_str()))
}

/// The hosts of a VirtualService, by whether they match a service.
struct SplitHosts<'a> {
    unknown: Vec<Hostname>,
    matched: Vec<(Hostname, &'a PortService)>,
}

/// The wrappers of one VirtualService: one for each port of its services.
fn wrappers_of(
    view: &View<'_>,
    at: OutboundPort,
    entry: &IndexedVirtualService,
    hosts: SplitHosts<'_>,
) -> Vec<Wrapper> {
    let SplitHosts { unknown, matched } = hosts;

    if entry.is_gateway_route {
        let of_consumer = || {
            view.proxy()
                .namespace_among([entry.name.namespace.clone()])
                .is_some()
        };
        let allowed = |(_, service): &&(Hostname, &PortService)| {
            service.service.key.namespace == entry.name.namespace
        };
        if !matched.iter().any(|found| allowed(&found)) && (matched.is_empty() || !of_consumer()) {
            return Vec::new();
        }
    }

    let mut by_port: BTreeMap<u16, Vec<(Hostname, ServiceRef)>> = BTreeMap::new();

    for (host, service) in matched {
        let is_routed_by_waypoint = sidecar_waypoint::is_in_front(view, &service.service.key);
        for port in &service.http_ports {
            let of_port = by_port.entry(*port).or_default();
            if !is_routed_by_waypoint {
                of_port.push((host.clone(), service.service.clone()));
            }
        }
    }

    if by_port.is_empty() && at.port == HTTP_PORT {
        by_port.insert(HTTP_PORT, Vec::new());
    }

    let wrapper = |(port, services)| Wrapper {
        port,
        owner: Some(entry.name.clone()),
        hosts: unknown.clone(),
        services,
    };

    by_port.into_iter().map(wrapper).collect()
}

/// Splits the hosts of a VirtualService into those without a service, and the services of the
/// others. `owned` are the services for which it is the most specific.
fn split_hosts<'a>(
    entry: &IndexedVirtualService,
    services: &'a BTreeMap<Hostname, PortService>,
    known: &HostIndex<'_, ()>,
    owned: &[(&'a Hostname, &'a PortService)],
) -> SplitHosts<'a> {
    let mut unknown = Vec::new();
    let mut matched = Vec::new();

    for host in entry.hosts.iter().filter(|host| !host.is_wildcard()) {
        let lower = port_services::lower_case(host);
        match services.get(&lower) {
            Some(service) => matched.push((lower, service)),
            None => unknown.push(host.clone()),
        }
    }

    let wildcards = entry
        .hosts
        .iter()
        .filter(|host| host.is_wildcard())
        .map(port_services::lower_case);
    let wildcards: Vec<Hostname> = wildcards.collect();
    let is_unknown = |host: &&Hostname| entry.is_gateway_route || !known.matches(host.as_str());
    unknown.extend(wildcards.iter().filter(is_unknown).cloned());

    if !entry.is_gateway_route {
        // Ordered by the first wildcard that covers them, then by name.
        let places = HostIndex::new(
            wildcards
                .iter()
                .enumerate()
                .map(|(place, host)| (host.as_str(), place)),
        );

        let first = |host: &Hostname| {
            places
                .common(host.as_str())
                .into_iter()
                .map(|(_, place)| place)
                .min()
        };

        let mut below: Vec<_> = owned
            .iter()
            .filter_map(|(host, service)| Some((first(host)?, *host, *service)))
            .collect();
        below.sort_by_key(|(place, ..)| *place);
        matched.extend(
            below
                .into_iter()
                .map(|(_, host, service)| (host.clone(), service)),
        );
    }

    SplitHosts { unknown, matched }
}

/// For each VirtualService, the services for which it is the most specific, by name; empty without
/// wildcards.
fn owned_by_wildcard<'a, 'b>(
    entries: &[&'b IndexedVirtualService],
    services: &'a BTreeMap<Hostname, PortService>,
) -> BTreeMap<&'b NamespacedName, Vec<(&'a Hostname, &'a PortService)>> {
    let owners = HostOwners::new(entries.iter().map(|entry| (&entry.name, &*entry.hosts)));
    let mut owned: BTreeMap<&NamespacedName, Vec<(&Hostname, &PortService)>> = BTreeMap::new();
    // Only needed with wildcards.
    for (host, service) in services.iter().filter(|_| !owners.lengths.is_empty()) {
        if let Some(owner) = owners.owner_of(host) {
            owned.entry(owner).or_default().push((host, service));
        }
    }
    owned
}

/// The most specific VirtualService of a host: the oldest with that exact host, else the one with
/// the longest matching wildcard. Hosts are compared in lower case, as Envoy compares them.
struct HostOwners<'a> {
    /// By full name.
    exact: BTreeMap<String, &'a NamespacedName>,
    /// By the suffix of wildcards.
    wildcards: BTreeMap<String, &'a NamespacedName>,
    /// The lengths of these suffixes, longest first.
    lengths: Vec<usize>,
}

impl<'a> HostOwners<'a> {
    /// From VirtualServices with their hosts, the oldest first.
    fn new(entries: impl Iterator<Item = (&'a NamespacedName, &'a [Hostname])>) -> Self {
        let mut exact = BTreeMap::new();
        let mut wildcards = BTreeMap::new();
        for (host, name) in
            entries.flat_map(|(name, hosts)| hosts.iter().map(move |host| (host, name)))
        {
            let (table, text) = match host.as_str().strip_prefix('*') {
                Some(suffix) => (&mut wildcards, suffix),
                None => (&mut exact, host.as_str()),
            };
            table.entry(text.to_ascii_lowercase()).or_insert(name);
        }
        let lengths: BTreeSet<usize> = wildcards.keys().map(|suffix| suffix.len()).collect();
        Self {
            exact,
            wildcards,
            lengths: lengths.into_iter().rev().collect(),
        }
    }

    /// The most specific VirtualService for a service's host, which is in lower case.
    fn owner_of(&self, host: &Hostname) -> Option<&'a NamespacedName> {
        if let Some(owner) = self.exact.get(host.as_str()) {
            return Some(owner);
        }
        let name = host.as_str().strip_prefix('*').unwrap_or(host.as_str());
        let suffixes = self
            .lengths
            .iter()
            .filter_map(|length| name.get(name.len().checked_sub(*length)?..));
        suffixes
            .filter_map(|suffix| self.wildcards.get(suffix))
            .next()
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_belongs_to_its_exact_host_or_the_longest_wildcard() {
        let names = |list: &[&str]| -> Vec<Hostname> { list.iter().map(Hostname::new).collect() };
        let entries = [
            ("exact", names(&["web.shop.example"])),
            ("wide", names(&["*.example", "*"])),
            ("close", names(&["*.shop.example"])),
            ("late", names(&["*.shop.example", "web.shop.example"])),
            ("capital", names(&["ONE.shop.example", "*.Bank.example"])),
        ];

        let named: Vec<(NamespacedName, Vec<Hostname>)> = entries
            .map(|(name, hosts)| (NamespacedName::new("shop", name), hosts))
            .into();
        let owners = HostOwners::new(named.iter().map(|(name, hosts)| (name, hosts.as_slice())));
        let of = |host: &str| {
            owners
                .owner_of(&Hostname::new(host))
                .map_or("", |owner| &owner.name)
        };

        assert_eq!(
            [
                "web.shop.example",
                "api.shop.example",
                "*.shop.example",
                "*.example",
                "other.net",
                "*"
            ]
            .map(of),
            ["exact", "close", "close", "wide", "wide", "wide"]
        );
        // Services' hosts are in lower case here, whatever the VirtualService has.
        assert_eq!(
            ["one.shop.example", "a.bank.example"].map(of),
            ["capital"; 2]
        );
    }
}
