//! The servers of gateways (`router` proxies): the Gateways that select them, merged by port.
//!
//! ```text
//! Gateways ─▶ selected by the proxy ─▶ merged by port ─┬▶ servers of one listener
//!                                                      └▶ servers of one route configuration
//! ```
//!
//! The listeners are built in `listeners/gateway`, the routes in `routes/gateway`: each reads only
//! its own servers, so that an edited Gateway affects only resources with its servers.

mod merge;
mod secret_references;
mod selection;
mod server;
mod virtual_services;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::gateway_api;
use merge::MergedGateways;
pub(super) use merge::ServerGroup;
use navarch_push::query::Query;
use navarch_push::view::View;
pub(super) use secret_references::refers_to_secret;
pub(super) use server::{Handling, PlannedServer};
pub(super) use virtual_services::{NamedHosts, hosts_of, l4_virtual_services};

/// Ports below this one require privileges.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// The addresses and ports of listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BoundPorts;

/// The servers of one address and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServersAt(BoundPort);

/// The Gateways that have a server on some port, as `namespace/name`, sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServingGateways;

/// Whether a server passes TLS through to the cluster named by its SNI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RoutesBySni;

/// The servers of one address and port that are also served over QUIC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QuicServersAt(BoundPort);

/// All servers by address and port: there may be as many ports as servers, and each listener reads
/// only its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServersByPort;

/// The value of [`ServersByPort`].
#[derive(Debug, Default, PartialEq)]
struct PortTables {
    /// Servers, by protocol.
    servers: BTreeMap<BoundPort, Vec<ServerGroup>>,
    /// The servers that are also served over QUIC.
    quic: BTreeMap<BoundPort, Vec<ServerGroup>>,
    /// The names of the route configurations that are also served over QUIC.
    quic_routes: BTreeSet<String>,
    /// The declared ports of servers, by the port of their routes.
    declared: BTreeMap<u16, BTreeSet<u16>>,
}

/// Whether a route configuration is also served over QUIC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AdvertisesHttp3 {
    /// The name of the route configuration.
    name: String,
}

/// The servers of a route configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ServersOfRoutes {
    /// The name of the route configuration.
    name: String,
}

/// The declared ports of servers that share the routes of one port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DeclaredPorts(u16);

/// The address and port of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BoundPort {
    /// The declared address; empty means all addresses.
    pub(super) bind: String,
    pub(super) port: u16,
}

/// The addresses and ports of the proxy's listeners for its Gateways.
pub(super) fn bound_ports(view: &View<'_>) -> Arc<Vec<BoundPort>> {
    view.get(&BoundPorts)
}

/// The servers of an address and port, by protocol, in order of declaration.
pub(super) fn servers_at(view: &View<'_>, at: &BoundPort) -> Arc<Vec<ServerGroup>> {
    view.get(&ServersAt(at.clone()))
}

/// The servers of an address and port that are also served over QUIC, by protocol.
pub(super) fn quic_servers_at(view: &View<'_>, at: &BoundPort) -> Arc<Vec<ServerGroup>> {
    view.get(&QuicServersAt(at.clone()))
}

/// Whether responses on the routes of this name advertise HTTP/3 (`alt-svc`).
pub(super) fn advertises_http3(view: &View<'_>, routes: &str) -> bool {
    view.mesh().settings.quic_listeners
        && *view.get(&AdvertisesHttp3 {
            name: routes.to_owned(),
        })
}

/// The servers of a route configuration, in order; empty if no listener references it.
pub(super) fn servers_of_routes(view: &View<'_>, name: &str) -> Arc<Vec<Arc<PlannedServer>>> {
    view.get(&ServersOfRoutes {
        name: name.to_owned(),
    })
}

/// The names of the proxy's route configurations.
pub(super) fn names_of_routes(view: &View<'_>) -> Vec<String> {
    view.get(&MergedGateways).routes.keys().cloned().collect()
}

/// The declared ports of servers whose routes are those of this listening port; empty if there are
/// none.
pub(super) fn declared_ports(view: &View<'_>, port: u16) -> Arc<BTreeSet<u16>> {
    view.get(&DeclaredPorts(port))
}

/// The Gateways that the proxy serves, as `namespace/name`, sorted.
pub(super) fn serving_gateways(view: &View<'_>) -> Arc<Vec<Arc<str>>> {
    view.get(&ServingGateways)
}

/// Whether a route of the proxy's Gateways has an InferencePool as backend.
pub(super) fn has_inference_pools(view: &View<'_>) -> bool {
    serving_gateways(view)
        .iter()
        .any(|gateway| gateway_api::has_pools(view, gateway))
}

/// Whether the proxy passes TLS through to clusters that are named by the SNI, for which it needs
/// clusters of those names.
pub(super) fn routes_by_sni(view: &View<'_>) -> bool {
    *view.get(&RoutesBySni)
}

impl Query for ServingGateways {
    type Value = Vec<Arc<str>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut names = view.get(&MergedGateways).gateways.clone();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Query for DeclaredPorts {
    type Value = BTreeSet<u16>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ServersByPort)
            .declared
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for RoutesBySni {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.get(&MergedGateways).routes_by_sni
    }
}

impl Query for BoundPorts {
    type Value = Vec<BoundPort>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let plan = view.get(&MergedGateways);
        let ports = plan.groups.iter().map(|group| BoundPort {
            bind: group.key.bind.clone(),
            port: group.key.port,
        });

        let mut ports: Vec<BoundPort> = ports.collect();
        ports.sort_unstable();
        ports.dedup();

        if ports.iter().any(|at| at.port < FIRST_UNPRIVILEGED_PORT)
            && view.proxy().meta_bool("UNPRIVILEGED_POD")
        {
            ports.retain(|at| at.port >= FIRST_UNPRIVILEGED_PORT);
        }
        ports
    }
}

impl Query for ServersByPort {
    type Value = PortTables;

    fn compute(&self, view: &View<'_>) -> PortTables {
        let plan = view.get(&MergedGateways);
        let by_port = |groups: &[ServerGroup]| {
            let mut found: BTreeMap<BoundPort, Vec<ServerGroup>> = BTreeMap::new();
            for group in groups {
                let at = BoundPort {
                    bind: group.key.bind.clone(),
                    port: group.key.port,
                };
                found.entry(at).or_default().push(group.clone());
            }
            found
        };

        let mut declared: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();

        for (name, servers) in &plan.routes {
            if let Some(port) = name.split('.').nth(1).and_then(|port| port.parse().ok()) {
                declared
                    .entry(port)
                    .or_default()
                    .extend(servers.iter().map(|server| server.port));
            }
        }

        let quic_servers = plan.quic.iter().flat_map(|group| &group.servers);
        PortTables {
            servers: by_port(&plan.groups),
            quic: by_port(&plan.quic),
            quic_routes: quic_servers
                .map(|server| server.route_name.clone())
                .collect(),
            declared,
        }
    }
}

impl Query for ServersAt {
    type Value = Vec<ServerGroup>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ServersByPort)
            .servers
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for QuicServersAt {
    type Value = Vec<ServerGroup>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&ServersByPort)
            .quic
            .get(&self.0)
            .cloned()
            .unwrap_or_default()
    }
}

impl Query for AdvertisesHttp3 {
    type Value = bool;

    fn compute(&self, view: &View<'_>) -> bool {
        view.get(&ServersByPort).quic_routes.contains(&self.name)
    }
}

impl Query for ServersOfRoutes {
    type Value = Vec<Arc<PlannedServer>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        view.get(&MergedGateways)
            .routes
            .get(&self.name)
            .cloned()
            .unwrap_or_default()
    }
}
