//! TCP and TLS routes of VirtualServices on the servers of gateways.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::envoy::config::listener::v3::Filter;

use super::super::destination::route_filters;
use super::super::filter_chain::Chain;
use super::super::outbound_plan::ListenPort;
use crate::config_objects;
use crate::filters::network::metadata_exchange;
use crate::gateway::{PlannedServer, l4_virtual_services};
use crate::virtual_service;
use navarch_api::hostname::HostIndex;
use navarch_api::istio::{ServerTlsMode, VirtualService};
use navarch_api::names::{Hostname, Namespace};
use navarch_api::object::NamespacedName;
use navarch_push::view::View;

/// The source objects of a VirtualService, as `kind/name.namespace`.
const PARENTS: &str = "internal.istio.io/parents";

/// The SNI names of pass-through chains of a listener: Envoy rejects duplicate names.
#[derive(Debug, Default)]
pub(super) struct UsedSni(BTreeSet<String>);

impl UsedSni {
    /// Adds names. Returns false, without adding any, if one of them exists already.
    fn take(&mut self, names: &[String]) -> bool {
        let free = names.iter().all(|name| !self.0.contains(name));
        if free {
            self.0.extend(names.iter().cloned());
        }
        free
    }
}

/// The hosts of a server, indexed once for each namespace with VirtualServices for some of them.
struct ServerHosts<'a> {
    server: &'a PlannedServer,
    open_to: BTreeMap<Namespace, HostIndex<'a, ()>>,
}

impl<'a> ServerHosts<'a> {
    fn new(server: &'a PlannedServer) -> Self {
        Self {
            server,
            open_to: BTreeMap::new(),
        }
    }

    /// Whether the server has any of the hosts of a VirtualService of a namespace.
    fn any(&mut self, namespace: &Namespace, hosts: &[Hostname]) -> bool {
        if !self.open_to.contains_key(namespace) {
            let own = self
                .server
                .hosts_for(namespace)
                .into_iter()
                .map(|host| (host, ()));
            self.open_to.insert(namespace.clone(), HostIndex::new(own));
        }
        self.open_to
            .get(namespace)
            .is_some_and(|own| hosts.iter().any(|host| own.matches(host.as_str())))
    }
}

/// The filters of the first TCP route for a server, if any.
pub(super) fn tcp_filters(view: &View<'_>, server: &PlannedServer) -> Option<Vec<Filter>> {
    let port = listen_port(server);
    let mut claims = ServerHosts::new(server);

    for (name, hosts) in l4_virtual_services(view, &server.gateway_name).iter() {
        if !claims.any(&name.namespace, hosts) {
            continue;
        }

        let Some(spec) = virtual_service::merged(view, name) else {
            continue;
        };

        let routes = spec
            .tcp
            .iter()
            .filter(|route| !route.route.is_empty())
            .map(|route| (&route.matches, &route.route));

        let mut fitting = routes.filter(|(matches, _)| {
            matches.is_empty()
                || matches
                    .iter()
                    .any(|matched| applies(server, matched.port, &matched.gateways))
        });

        let found = fitting.next().map(|(_, destinations)| destinations);
        if let Some(destinations) = found.or_else(|| ended_tls_route(view, server, name, &spec)) {
            let mut filters = route_filters(view, destinations, &port, name);
            if server
                .server
                .tls
                .as_ref()
                .is_some_and(|tls| tls.mode == ServerTlsMode::IstioMutual)
                && let Some(exchange) = metadata_exchange(view)
            {
                filters.insert(0, exchange);
            }
            return Some(filters);
        }
    }

    None
}

/// A TLSRoute of the Gateway API also has TLS routes for servers that terminate TLS.
fn ended_tls_route<'a>(
    view: &View<'_>,
    server: &PlannedServer,
    name: &NamespacedName,
    spec: &'a VirtualService,
) -> Option<&'a Vec<navarch_api::istio::RouteDestination>> {
    if spec.tls.is_empty() {
        return None;
    }
    let object = config_objects::virtual_service(view, name)?;
    let parents = object.meta.annotations.get(PARENTS)?;
    if !parents.starts_with("TLSRoute/") {
        return None;
    }
    let fits = |route: &&navarch_api::istio::TlsRoute| {
        route
            .matches
            .iter()
            .any(|matched| applies(server, matched.port, &matched.gateways))
    };
    spec.tls.iter().find(fits).map(|route| &route.route)
}

/// The chains of all TLS routes for a server that passes TLS through.
pub(super) fn tls_chains(
    view: &View<'_>,
    server: &PlannedServer,
    taken: &mut UsedSni,
) -> Vec<Chain> {
    let port = listen_port(server);
    let mut claims = ServerHosts::new(server);
    let mut chains = Vec::new();

    for (name, hosts) in l4_virtual_services(view, &server.gateway_name).iter() {
        if !claims.any(&name.namespace, hosts) {
            continue;
        }

        let Some(spec) = virtual_service::merged(view, name) else {
            continue;
        };

        for route in spec.tls.iter().filter(|route| !route.route.is_empty()) {
            let fitting = route
                .matches
                .iter()
                .filter(|matched| applies(server, matched.port, &matched.gateways));
            for matched in fitting {
                if taken.take(&matched.sni_hosts) {
                    let filters = route_filters(view, &route.route, &port, name);
                    chains.push(Chain {
                        sni: matched.sni_hosts.clone(),
                        filters,
                        ..Chain::default()
                    });
                }
            }
        }
    }

    chains
}

/// The port for routes: the one in the Gateway, whatever the listening port.
fn listen_port(server: &PlannedServer) -> ListenPort {
    let name = server
        .server
        .port
        .as_ref()
        .map(|port| port.name.clone())
        .unwrap_or_default();
    ListenPort {
        number: server.port,
        name,
        protocol: server.protocol,
    }
}

/// Whether a match applies to a server. Criteria about the client are evaluated for each
/// connection.
fn applies(server: &PlannedServer, port: u32, gateways: &[String]) -> bool {
    (port == 0 || port == u32::from(server.port))
        && (gateways.is_empty()
            || gateways
                .iter()
                .any(|gateway| **gateway == *server.gateway_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sni_names_are_claimed_all_or_none() {
        let names = |list: &[&str]| {
            list.iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let mut taken = UsedSni::default();
        assert!(taken.take(&names(&["a", "b"])));
        assert!(!taken.take(&names(&["b", "c"])));
        assert!(taken.take(&names(&["c"])));
    }
}
