//! Merges the Gateways of a proxy by port: which servers share one, and which are skipped.
//!
//! Agrees in meaning with `mergeGateways` in Istio's `pilot/pkg/model/gateway.go`. The order is
//! that of the Gateways, oldest first, and of servers as declared: earlier ones take precedence. On
//! one port
//! - HTTP servers share a listener and its routes;
//! - servers with TLS share a listener as long as their SNI names are unique;
//! - any other server is skipped, unless it binds to another address.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::selection::{PortTranslation, SelectedGateways};
use super::server::{Handling, PlannedServer};
use crate::config_objects;
use navarch_api::istio::Server;
use navarch_api::object::NamespacedName;
use navarch_push::query::Query;
use navarch_push::view::View;
use navarch_registry::protocol::Protocol;

/// All merged Gateways of the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MergedGateways;

/// The proxy's listeners, and the routes that they need.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Servers by port, in the order in which the ports were first declared.
    pub(crate) groups: Vec<ServerGroup>,
    /// The servers of each route configuration, in order.
    pub(crate) routes: BTreeMap<String, Vec<Arc<PlannedServer>>>,
    /// Servers that are also served over QUIC, by port.
    pub(crate) quic: Vec<ServerGroup>,
    /// The Gateways with a server on some port, in order.
    pub(crate) gateways: Vec<Arc<str>>,
    /// Whether a server passes TLS through to the cluster named by its SNI.
    pub(crate) routes_by_sni: bool,
}

/// Servers that share a port, an address and a protocol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServerGroup {
    /// The shared key.
    pub(crate) key: GroupKey,
    /// The route configuration of HTTP servers.
    pub(crate) route_name: String,
    /// The servers, in order.
    pub(crate) servers: Vec<Arc<PlannedServer>>,
}

/// Port, address and protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    /// The listening port.
    pub(crate) port: u16,
    /// The declared protocol.
    pub(crate) protocol: Protocol,
    /// The declared address; empty means all addresses.
    pub(crate) bind: String,
}

/// A plan under construction.
#[derive(Debug, Default)]
struct Merger {
    /// Whether servers may be served over QUIC.
    quic: bool,
    /// The plan so far.
    plan: Plan,
    /// The index of each group in [`Plan::groups`]; a Gateway may have as many groups as servers.
    groups: BTreeMap<GroupKey, usize>,
    /// The index of each group in [`Plan::quic`].
    quic_groups: BTreeMap<GroupKey, usize>,
    /// The ports with a server.
    taken: BTreeSet<u16>,
    /// The last group without TLS on each port.
    plain: BTreeMap<u16, GroupKey>,
    /// The address of the last server with TLS settings, by port and host.
    tls_hosts: BTreeMap<(u16, String), String>,
}

impl Query for MergedGateways {
    type Value = Plan;

    fn compute(&self, view: &View<'_>) -> Plan {
        let mut merger = Merger {
            quic: view.mesh().settings.quic_listeners,
            ..Merger::default()
        };
        for selected in view.get(&SelectedGateways).iter() {
            if let Some(gateway) = config_objects::gateway(view, &selected.name) {
                merger.add_gateway(&selected.name, &gateway.spec.servers, &selected.ports);
            }
        }
        merger.plan
    }
}

impl Merger {
    fn add_gateway(&mut self, name: &NamespacedName, servers: &[Server], ports: &PortTranslation) {
        for server in servers {
            let number = server
                .port
                .as_ref()
                .and_then(|port| u16::try_from(port.number).ok());
            let Some(number) = number else { continue };
            let has_udp_port = self.quic && ports.has_udp_port(number);
            for port in ports.resolve(number) {
                if let Some(planned) = PlannedServer::new(name, server, port) {
                    self.plan.gateways.push(planned.gateway_name.clone());
                    self.add(planned, port, has_udp_port);
                }
            }
        }
    }

    /// Adds a server to a port, unless it conflicts with an earlier one. HTTPS is also served over
    /// QUIC if the port `has_udp_port`.
    fn add(&mut self, server: PlannedServer, port: u16, has_udp_port: bool) {
        if server.server.tls.is_some() && !self.claim_hosts(&server, port) {
            return;
        }

        // As in istiod, this applies even if the server is then skipped because of a conflict on
        // its port.
        self.plan.routes_by_sni |= server.handling() == Handling::AutoPassthrough;
        let key = GroupKey {
            port,
            protocol: server.protocol,
            bind: server.server.bind.clone(),
        };

        let server = Arc::new(server);
        let quic = has_udp_port && matches!(server.handling(), Handling::Https(_));
        let quic = quic.then(|| (key.clone(), server.clone()));
        let first_on_port = self.taken.insert(port);

        match self.plain.get(&port).cloned() {
            _ if first_on_port => self.open(key, server),
            Some(current) if current.bind == key.bind => {
                if current.protocol.is_http() && key.protocol.is_http() {
                    self.join(&current, server);
                }
                return;
            }
            Some(_) if self.groups.contains_key(&key) => self.join(&key, server),
            Some(_) => self.open(key, server),
            None if ends_tls_or_passes_it_on(&server) => {
                if !self.add_tls(key, server) {
                    return;
                }
            }
            None => self.open(key, server),
        }

        if let Some((key, server)) = quic {
            self.add_quic(key, server);
        }
    }

    /// Adds a server to those over QUIC.
    fn add_quic(&mut self, key: GroupKey, server: Arc<PlannedServer>) {
        let group = self
            .quic_groups
            .get(&key)
            .and_then(|index| self.plan.quic.get_mut(*index));
        match group {
            Some(group) => group.servers.push(server),
            None => {
                self.quic_groups.insert(key.clone(), self.plan.quic.len());
                self.plan.quic.push(ServerGroup {
                    key,
                    route_name: String::new(),
                    servers: vec![server],
                });
            }
        }
    }

    /// Adds the hosts of a server with TLS settings. Returns false if the last server of the port
    /// with one of them has the same address: Envoy rejects a listener with equal matches. As in
    /// istiod, an earlier server does not count; of chains with equal matches only the first is
    /// sent.
    fn claim_hosts(&mut self, server: &PlannedServer, port: u16) -> bool {
        let Server { hosts, bind, .. } = &server.server;
        let is_free = hosts
            .iter()
            .all(|host| self.tls_hosts.get(&(port, host.clone())) != Some(bind));
        if is_free {
            self.tls_hosts.extend(
                hosts
                    .iter()
                    .map(|host| ((port, host.clone()), bind.clone())),
            );
        }
        is_free
    }

    /// Adds a server with TLS to a port with others. Returns false if its route configuration
    /// belongs to another.
    fn add_tls(&mut self, key: GroupKey, server: Arc<PlannedServer>) -> bool {
        if !server.route_name.is_empty() {
            if self.plan.routes.contains_key(&server.route_name) {
                return false;
            }
            self.plan
                .routes
                .insert(server.route_name.clone(), vec![server.clone()]);
        }
        match self.group(&key) {
            Some(group) => group.servers.push(server),
            None => self.append(ServerGroup {
                key,
                route_name: String::new(),
                servers: vec![server],
            }),
        }
        true
    }

    /// Starts a group with a server, and replaces a group with the same key.
    fn open(&mut self, key: GroupKey, server: Arc<PlannedServer>) {
        if !ends_tls_or_passes_it_on(&server) {
            self.plain.insert(key.port, key.clone());
        }

        let route_name = server.route_name.clone();
        if !route_name.is_empty() {
            self.plan
                .routes
                .insert(route_name.clone(), vec![server.clone()]);
        }

        let group = ServerGroup {
            key,
            route_name,
            servers: vec![server],
        };
        match self.group(&group.key) {
            Some(old) => *old = group,
            None => self.append(group),
        }
    }

    fn group(&mut self, key: &GroupKey) -> Option<&mut ServerGroup> {
        self.plan.groups.get_mut(*self.groups.get(key)?)
    }

    /// Adds a new group.
    fn append(&mut self, group: ServerGroup) {
        self.groups
            .insert(group.key.clone(), self.plan.groups.len());
        self.plan.groups.push(group);
    }

    /// Adds an HTTP server to an existing group.
    fn join(&mut self, key: &GroupKey, server: Arc<PlannedServer>) {
        if !server.route_name.is_empty() {
            self.plan
                .routes
                .entry(server.route_name.clone())
                .or_default()
                .push(server.clone());
        }
        if let Some(group) = self.group(key) {
            group.servers.push(server);
        }
    }
}

/// Whether the first bytes of a connection are TLS.
fn ends_tls_or_passes_it_on(server: &PlannedServer) -> bool {
    match server.handling() {
        Handling::Http | Handling::Opaque => false,
        Handling::Https(_)
        | Handling::EndTls(_)
        | Handling::Passthrough
        | Handling::AutoPassthrough => true,
    }
}

#[cfg(test)]
mod tests;
