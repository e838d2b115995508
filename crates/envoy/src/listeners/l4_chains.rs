//! The filter chains of a service that is not HTTP: those of its VirtualServices' TLS and TCP
//! routes, or its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::address::wildcard;
use super::destination::{route_filters, service_filters};
use super::filter_chain::Chain;
use super::outbound_plan::TcpChainPlan;
use crate::config_info;
use crate::filters::dynamic_forward_proxy::resolves_by_name;
use crate::routes;
use crate::service_address::{self, UNSPECIFIED};
use crate::sidecar_scope;
use crate::sidecar_waypoint;
use crate::virtual_service::{self, MergedSpec};
use navarch_api::istio::{L4MatchAttributes, MESH_GATEWAY, TlsMatchAttributes};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::{Kind, NamespacedName};
use navarch_push::proxy::IpFamilies;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::model::{Labels, Registry, Service};

/// The VirtualServices of an egress listener that have TCP or TLS routes, with their hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct L4VirtualServices {
    /// The index of the egress listener.
    egress: usize,
}

/// The VirtualServices of an egress listener with TCP or TLS routes that match a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct L4VirtualServicesOf {
    /// The index of the egress listener.
    egress: usize,
    host: Hostname,
}

/// VirtualServices by their hosts.
#[derive(Debug, Default, PartialEq, Eq)]
struct ByHost {
    /// The VirtualServices.
    names: Vec<NamespacedName>,
    /// Indexes of those with an exact host, by host.
    exact: BTreeMap<Hostname, Vec<usize>>,
    /// Wildcard hosts, each with the index of its VirtualService.
    wildcards: Vec<(Hostname, usize)>,
}

impl ByHost {
    /// Adds a VirtualService.
    fn add(&mut self, name: &NamespacedName, hosts: &[Hostname]) {
        let place = self.names.len();
        self.names.push(name.clone());
        for host in hosts.iter().cloned() {
            if host.is_wildcard() {
                self.wildcards.push((host, place));
            } else {
                self.exact.entry(host).or_default().push(place);
            }
        }
    }

    /// The VirtualServices that match a host, in order.
    fn of(&self, host: &Hostname) -> Vec<NamespacedName> {
        let wide = self
            .wildcards
            .iter()
            .filter(|(own, _)| own.matches(host))
            .map(|(_, place)| *place);
        let mut places: BTreeSet<usize> = wide.collect();
        if host.is_wildcard() {
            let covered = self.exact.iter().filter(|(own, _)| own.matches(host));
            places.extend(covered.flat_map(|(_, places)| places));
        } else {
            places.extend(self.exact.get(host).into_iter().flatten());
        }
        places
            .into_iter()
            .filter_map(|place| self.names.get(place))
            .cloned()
            .collect()
    }
}

impl Query for L4VirtualServices {
    type Value = ByHost;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut found = ByHost::default();
        for name in sidecar_scope::listener_virtual_services(view, self.egress).iter() {
            if virtual_service::has_l4_routes(view, name) {
                found.add(name, &virtual_service::hosts(view, name));
            }
        }
        found
    }
}

impl Query for L4VirtualServicesOf {
    type Value = Vec<NamespacedName>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&L4VirtualServices {
            egress: self.egress,
        })
        .of(&self.host)
    }
}

/// The chains of a service on a listener.
pub(super) fn of_service(view: &View<'_>, part: &TcpChainPlan) -> Vec<Chain> {
    let Some(service) = sidecar_scope::listener_service(view, part.egress, &part.service) else {
        return Vec::new();
    };
    let names = if sidecar_waypoint::is_in_front(view, &service.key) {
        Arc::default()
    } else {
        view.get(&L4VirtualServicesOf {
            egress: part.egress,
            host: service.key.hostname.clone(),
        })
    };
    let routes: Vec<(&NamespacedName, MergedSpec)> = names
        .iter()
        .filter_map(|name| Some((name, virtual_service::merged(view, name)?)))
        .collect();
    if part.port.protocol.is_tls() {
        tls_chains(view, part, &service, &routes)
    } else {
        tcp_chains(view, part, &service, &routes)
    }
}

/// The chains of a TLS port: by SNI.
fn tls_chains(
    view: &View<'_>,
    part: &TcpChainPlan,
    service: &Arc<Service>,
    routes: &[(&NamespacedName, MergedSpec)],
) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut cidrs = part.cidrs.clone();

    // Two matches may have equal connection criteria and different proxy criteria: the first one is
    // used.
    let mut handled: BTreeSet<(&[String], &[String])> = BTreeSet::new();

    for (name, spec) in routes {
        for route in spec.tls.iter().filter(|route| !route.route.is_empty()) {
            for matched in route
                .matches
                .iter()
                .filter(|matched| tls_applies(view, matched, part))
            {
                if !matched.destination_subnets.is_empty() && part.port.number != 0 {
                    cidrs.clone_from(&matched.destination_subnets);
                }
                if handled.insert((&matched.sni_hosts, &matched.destination_subnets)) {
                    chains.push(Chain {
                        sni: matched.sni_hosts.clone(),
                        cidrs: cidrs.clone(),
                        metadata: Some(config_info::metadata(Kind::VirtualService, name)),
                        filters: route_filters(view, &route.route, &part.port, name),
                        ..Chain::default()
                    });
                }
            }
        }
    }

    if chains.is_empty() {
        let sni = sni_of_service(view, part, service, &cidrs);
        chains.push(Chain {
            sni,
            cidrs,
            filters: service_filters(view, service, &part.port),
            ..Chain::default()
        });
    }

    chains
}

/// The SNI names that distinguish a service from others; empty if its address does.
fn sni_of_service(
    view: &View<'_>,
    part: &TcpChainPlan,
    service: &Service,
    cidrs: &[String],
) -> Vec<String> {
    let address = service_address::main(view, service);
    let families = view.proxy().families();
    let mut address: &str = if address.contains('/') { "" } else { &address };
    if service.registry == Registry::External
        && families == IpFamilies::V6
        && address == UNSPECIFIED
    {
        address = "::";
    }

    let everywhere = wildcard(families);
    let shares_listener = !cidrs.is_empty()
        || address.is_empty()
        || (address == everywhere && part.bind == everywhere);
    if part.by_pod || !(shares_listener || resolves_by_name(service)) {
        return Vec::new();
    }

    let mut names = vec![service.key.hostname.to_string()];

    for alias in &service.aliases {
        names.push(alias.hostname.to_string());
        names.extend(routes::other_names(view, &alias.hostname));
    }

    names
}

/// The chains of any other port: by destination.
fn tcp_chains(
    view: &View<'_>,
    part: &TcpChainPlan,
    service: &Arc<Service>,
    routes: &[(&NamespacedName, MergedSpec)],
) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut has_default = false;

    for (name, spec) in routes {
        for route in spec.tcp.iter().filter(|route| !route.route.is_empty()) {
            let filters = || route_filters(view, &route.route, &part.port, name);
            let mut subnets: Vec<String> = Vec::new();
            let mut is_default = route.matches.is_empty();

            for matched in route
                .matches
                .iter()
                .filter(|matched| tcp_applies(view, matched, part))
            {
                if matched.destination_subnets.is_empty() || part.port.number == 0 {
                    is_default = true;
                    break;
                }
                subnets.extend(matched.destination_subnets.iter().cloned());
            }

            if is_default {
                chains.push(Chain {
                    cidrs: part.cidrs.clone(),
                    metadata: Some(config_info::metadata(Kind::VirtualService, name)),
                    filters: filters(),
                    ..Chain::default()
                });
                return chains;
            }

            if !subnets.is_empty() {
                // Envoy rejects two chains with the same ranges: the service's own chain is
                // omitted.
                has_default |= is_permutation(&subnets, &part.cidrs);
                chains.push(Chain {
                    cidrs: subnets,
                    filters: filters(),
                    ..Chain::default()
                });
            }
        }
    }

    if !has_default {
        let filters = service_filters(view, service, &part.port);
        chains.push(Chain {
            cidrs: part.cidrs.clone(),
            filters,
            ..Chain::default()
        });
    }

    chains
}

/// Whether both contain the same items, in any order.
fn is_permutation(a: &[String], b: &[String]) -> bool {
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    a.len() == b.len() && sorted(a) == sorted(b)
}

/// Whether a TLS match can apply to this proxy and port.
fn tls_applies(view: &View<'_>, matched: &TlsMatchAttributes, part: &TcpChainPlan) -> bool {
    let TlsMatchAttributes {
        port,
        source_labels,
        gateways,
        source_namespace,
        ..
    } = matched;
    applies(view, part, *port, source_labels, gateways, source_namespace)
}

/// Whether a TCP match can apply to this proxy and port.
fn tcp_applies(view: &View<'_>, matched: &L4MatchAttributes, part: &TcpChainPlan) -> bool {
    let L4MatchAttributes {
        port,
        source_labels,
        gateways,
        source_namespace,
        ..
    } = matched;
    applies(view, part, *port, source_labels, gateways, source_namespace)
}

/// Evaluates the criteria of a match about the proxy and the port.
fn applies(
    view: &View<'_>,
    part: &TcpChainPlan,
    port: u32,
    labels: &std::collections::BTreeMap<String, String>,
    gateways: &[String],
    namespace: &str,
) -> bool {
    let labels: Labels = labels
        .iter()
        .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str())))
        .collect();
    (port == 0 || port == u32::from(part.port.number))
        && (gateways.is_empty() || gateways.iter().any(|gateway| gateway == MESH_GATEWAY))
        && (namespace.is_empty()
            || view
                .proxy()
                .namespace_among([Namespace::new(namespace)])
                .is_some())
        && view.proxy().selected_by(&labels)
}
