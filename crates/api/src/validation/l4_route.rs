//! Rules for TLS and TCP routes.

use super::Verdict;
use super::host_set::HostSet;
use super::name::{ip_or_cidr, labels, port_number, sni_domain, wildcard_domain};
use super::path::Path;
use super::virtual_service::{
    destination, gateway_names, is_for_gateways_only, total_weight, weight,
};
use crate::hostname::is_ip_address;
use crate::istio::{
    L4MatchAttributes, RouteDestination, TcpRoute, TlsMatchAttributes, TlsRoute, VirtualService,
};

/// The hosts of a VirtualService, against which its SNI hosts are checked.
pub(super) struct RouteHosts<'a> {
    hosts: HostSet<'a>,
    /// Whether sidecars do not receive its routes.
    for_gateways_only: bool,
}

impl<'a> RouteHosts<'a> {
    pub(super) fn of(service: &'a VirtualService) -> Self {
        Self {
            hosts: HostSet::of(&service.hosts),
            for_gateways_only: is_for_gateways_only(service),
        }
    }
}

/// Validates a TLS route.
pub(super) fn tls_route(
    verdict: &mut Verdict,
    at: &Path<'_>,
    route: &TlsRoute,
    claims: &RouteHosts<'_>,
) {
    let TlsRoute { matches, route } = route;
    let list = at.field("match");
    if matches.is_empty() {
        verdict.error(&list, "is empty; write at least one match with sniHosts");
    }
    for (index, attributes) in matches.iter().enumerate() {
        tls_match(verdict, &list.item(index), attributes, claims);
    }
    destinations(verdict, &at.field("route"), route);
}

/// Validates the conditions on a TLS connection.
fn tls_match(
    verdict: &mut Verdict,
    at: &Path<'_>,
    attributes: &TlsMatchAttributes,
    claims: &RouteHosts<'_>,
) {
    let TlsMatchAttributes {
        sni_hosts,
        destination_subnets,
        port,
        source_labels,
        gateways,
        source_namespace: _,
    } = attributes;

    let list = at.field("sniHosts");
    if sni_hosts.is_empty() {
        verdict.error(&list, "is empty; write at least one SNI name");
    }

    for (index, host) in sni_hosts.iter().enumerate() {
        sni_host(verdict, &list.item(index), host, claims);
    }

    subnets(
        verdict,
        &at.field("destinationSubnets"),
        destination_subnets,
    );
    if *port != 0 {
        verdict.check(&at.field("port"), port_number(*port));
    }

    labels(verdict, &at.field("sourceLabels"), source_labels);
    gateway_names(verdict, &at.field("gateways"), gateways);
}

/// Validates an SNI name.
fn sni_host(verdict: &mut Verdict, at: &Path<'_>, host: &str, claims: &RouteHosts<'_>) {
    let outcome = if claims.for_gateways_only {
        sni_domain(host)
    } else {
        wildcard_domain(host)
    };

    match outcome {
        Err(_) if is_ip_address(host) => {
            verdict.warn(
                at,
                format!(
                    "{host:?} is an IP address, which clients do not send as SNI; write a host"
                ),
            );
        }
        Err(reason) => verdict.error(at, reason),
        Ok(()) if claims.hosts.covering(host).is_some() => {}
        Ok(()) => verdict.error(
            at,
            format!("{host:?} is not covered by any of spec.hosts; add it there"),
        ),
    }
}

/// Validates a TCP route.
pub(super) fn tcp_route(verdict: &mut Verdict, at: &Path<'_>, route: &TcpRoute) {
    let TcpRoute { matches, route } = route;
    let list = at.field("match");
    for (index, attributes) in matches.iter().enumerate() {
        tcp_match(verdict, &list.item(index), attributes);
    }
    destinations(verdict, &at.field("route"), route);
}

/// Validates the conditions on a TCP connection.
fn tcp_match(verdict: &mut Verdict, at: &Path<'_>, attributes: &L4MatchAttributes) {
    let L4MatchAttributes {
        destination_subnets,
        port,
        source_subnet: _,
        source_labels,
        gateways,
        source_namespace: _,
    } = attributes;

    subnets(
        verdict,
        &at.field("destinationSubnets"),
        destination_subnets,
    );
    if *port != 0 {
        verdict.check(&at.field("port"), port_number(*port));
    }

    labels(verdict, &at.field("sourceLabels"), source_labels);
    let mut inner = Verdict::default();
    gateway_names(&mut inner, &at.field("gateways"), gateways);
    verdict.extend_errors(inner);
}

/// Validates subnets.
fn subnets(verdict: &mut Verdict, at: &Path<'_>, subnets: &[String]) {
    for (index, subnet) in subnets.iter().enumerate() {
        verdict.check(&at.item(index), ip_or_cidr(subnet));
    }
}

/// Validates the destinations of connections.
fn destinations(verdict: &mut Verdict, at: &Path<'_>, destinations: &[RouteDestination]) {
    if destinations.is_empty() {
        verdict.error(at, "is empty; write at least one destination");
    }

    for (
        index,
        RouteDestination {
            destination: target,
            weight: share,
        },
    ) in destinations.iter().enumerate()
    {
        let at = &at.item(index);
        match target {
            Some(target) => destination(verdict, &at.field("destination"), target),
            None => verdict.error(
                &at.field("destination"),
                "is missing; write the service to go to",
            ),
        }
        weight(verdict, at, *share);
    }

    total_weight(
        verdict,
        at,
        destinations.iter().map(|destination| destination.weight),
    );
}
