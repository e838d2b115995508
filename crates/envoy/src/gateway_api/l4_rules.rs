//! Rules of TLSRoutes and TCPRoutes as routes of a VirtualService (istiod's `convertTLSRoute` and
//! `convertTCPRoute`).

use std::collections::BTreeSet;

use super::backends::backend;
use super::fault::Fault;
use super::http_rules::{RuleContext, weight_sum};
use navarch_api::gateway_api::{BackendRef, L4RouteRule};
use navarch_api::hostname;
use navarch_api::istio::{
    Destination, L4MatchAttributes, PortSelector, RouteDestination, TcpRoute, TlsMatchAttributes,
    TlsRoute,
};

/// A TLS route for the requested server names, and the fault of a missing backend.
///
/// # Errors
/// If it cannot be served; then its whole route is not served.
pub(super) fn tls(
    context: RuleContext<'_, '_>,
    rule: &L4RouteRule,
    hostnames: &[String],
) -> Result<(TlsRoute, Option<Fault>), Fault> {
    if weight_sum(&rule.backend_refs) == 0 {
        return Ok((
            TlsRoute {
                matches: Vec::new(),
                route: nowhere(),
            },
            None,
        ));
    }

    let (route, fault) = destinations(context, &rule.backend_refs)?;
    let sni_hosts = if hostnames.is_empty() {
        vec!["*".to_owned()]
    } else {
        hostnames.to_vec()
    };

    let matches = vec![TlsMatchAttributes {
        sni_hosts,
        ..TlsMatchAttributes::default()
    }];
    Ok((TlsRoute { matches, route }, fault))
}

/// A TCP route, and the fault of a missing backend.
///
/// # Errors
/// If it cannot be served; then its whole route is not served.
pub(super) fn tcp(
    context: RuleContext<'_, '_>,
    rule: &L4RouteRule,
) -> Result<(TcpRoute, Option<Fault>), Fault> {
    if weight_sum(&rule.backend_refs) == 0 {
        return Ok((
            TcpRoute {
                matches: Vec::new(),
                route: nowhere(),
            },
            None,
        ));
    }
    let (route, fault) = destinations(context, &rule.backend_refs)?;
    Ok((
        TcpRoute {
            matches: Vec::new(),
            route,
        },
        fault,
    ))
}

/// A cluster that does not exist: connections to it are closed. Its name is visible in resources,
/// and equals istiod's.
fn nowhere() -> Vec<RouteDestination> {
    let destination = Destination {
        host: "internal.cluster.local".to_owned(),
        subset: "zero-weight".to_owned(),
        port: Some(PortSelector { number: 65_535 }),
    };
    vec![RouteDestination {
        destination: Some(destination),
        weight: 0,
    }]
}

/// The destinations of connections.
fn destinations(
    context: RuleContext<'_, '_>,
    backends: &[BackendRef],
) -> Result<(Vec<RouteDestination>, Option<Fault>), Fault> {
    let weighted: Vec<&BackendRef> = backends
        .iter()
        .filter(|backend| backend.weight != 0)
        .collect();
    let is_only = weighted.len() == 1;
    let mut targets = Vec::new();
    let mut fault = None;

    for reference in weighted {
        let backend = backend(
            context.view,
            context.route,
            &reference.object(),
            context.checks_grants,
        )?;
        fault = backend.fault.or(fault);
        let weight = if is_only { 0 } else { reference.weight };
        targets.push(RouteDestination {
            destination: Some(backend.destination),
            weight,
        });
    }

    Ok((targets, fault))
}

pub(super) fn tcp_for_port(routes: &[TcpRoute], port: u32) -> Vec<TcpRoute> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        if route.matches.is_empty() {
            route.matches.push(L4MatchAttributes::default());
        }
        route
            .matches
            .iter_mut()
            .for_each(|matched| matched.port = port);
    }
    routes
}

/// TLS routes of the mesh for the hosts of a parent and optionally one port.
pub(super) fn tls_for_parent(
    routes: &[TlsRoute],
    port: Option<u32>,
    hosts: &[String],
) -> Vec<TlsRoute> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        // If the route has no hosts, those of the parent match.
        if let [only] = route.matches.as_mut_slice()
            && only.sni_hosts == ["*"]
        {
            hosts.clone_into(&mut only.sni_hosts);
        }
        if let Some(port) = port {
            route
                .matches
                .iter_mut()
                .for_each(|matched| matched.port = port);
        }
    }
    routes
}

/// TLS routes of the mesh with those of their names that are a host of a parent.
pub(super) fn tls_for_host(routes: &[TlsRoute], host: &str) -> Vec<TlsRoute> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        if let [only] = route.matches.as_mut_slice()
            && only.sni_hosts.len() > 1
        {
            only.sni_hosts.retain(|sni| hostname::matches(host, sni));
        }
    }
    routes
}

/// TLS routes of a listener with a host, with the names that both have.
pub(super) fn tls_for_listener(routes: &[TlsRoute], host: &str) -> Vec<TlsRoute> {
    let mut routes = routes.to_vec();
    for route in &mut routes {
        route
            .matches
            .iter_mut()
            .for_each(|matched| matched.sni_hosts = shared_hosts(&matched.sni_hosts, host));
    }
    routes.retain(|route| {
        route.matches.is_empty()
            || route
                .matches
                .iter()
                .any(|matched| !matched.sni_hosts.is_empty())
    });
    routes
}

/// The hosts that both a route and a listener have: the narrower name of each pair, in the route's
/// order and each once.
pub(super) fn shared_hosts(hosts: &[String], listener: &str) -> Vec<String> {
    let narrower = |host: &String| match host {
        host if hostname::is_subset_of(host, listener) => Some(host.clone()),
        host if hostname::is_subset_of(listener, host) => Some(listener.to_owned()),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    hosts
        .iter()
        .filter_map(narrower)
        .filter(|host| seen.insert(host.clone()))
        .collect()
}
