//! One planned listener, and conflicts between services for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Plan;
use super::service_shape::{ListenPort, ServiceShape};
use crate::sidecar_scope::ServiceRef;
use navarch_registry::protocol::Protocol;

/// A listener with the services that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::listeners) struct PlannedListener {
    /// Its addresses, the primary one first.
    pub(in crate::listeners) binds: Vec<String>,
    /// Whether it binds to the port, rather than receive redirected connections.
    pub(in crate::listeners) binds_to_port: bool,
    /// Its port, 0 for a Unix socket.
    pub(in crate::listeners) port: u16,
    /// Its planned filter chains: first those of the first service, unchanged, then those of each
    /// later one that do not conflict with an earlier chain.
    pub(in crate::listeners) groups: Vec<Vec<ChainPlan>>,
}

/// Planned filter chains of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::listeners) enum ChainPlan {
    Http(HttpChainPlan),
    /// The chains of a service: for its address, and for its TCP and TLS routes.
    Tcp(TcpChainPlan),
}

/// An HTTP filter chain. It contains no reference to its service, except for wildcard services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::listeners) struct HttpChainPlan {
    /// The name of its route configuration.
    pub(in crate::listeners) routes: String,
    /// The declared protocol of the port.
    pub(in crate::listeners) protocol: Protocol,
    /// Whether it matches plain HTTP only, and leaves other connections to other chains.
    pub(in crate::listeners) sniffs: bool,
    /// The service, if requests are resolved by their host.
    pub(in crate::listeners) resolved_by_name: Option<(usize, ServiceRef)>,
}

/// Filter chains of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::listeners) struct TcpChainPlan {
    /// The index of the egress listener that imports the service.
    pub(in crate::listeners) egress: usize,
    pub(in crate::listeners) service: ServiceRef,
    pub(in crate::listeners) port: ListenPort,
    /// The primary address.
    pub(in crate::listeners) bind: String,
    /// The ranges that identify the service; empty if the address does.
    pub(in crate::listeners) cidrs: Vec<String>,
    /// Whether the ranges are the addresses of one pod.
    pub(in crate::listeners) by_pod: bool,
}

/// A service port to be added.
pub(super) struct Request<'a> {
    /// The index of the egress listener.
    pub(super) egress: usize,
    pub(super) service: &'a ServiceRef,
    /// The properties that determine its listeners.
    pub(super) shape: &'a ServiceShape,
    pub(super) port: &'a ListenPort,
    /// The addresses to listen on.
    pub(super) binds: Vec<String>,
    /// The ranges of the service, if the address is not its own.
    pub(super) cidrs: Vec<String>,
    /// Whether the ranges are the addresses of one pod.
    pub(super) by_pod: bool,
    /// Whether the listener binds to the port.
    pub(super) to_port: bool,
}

/// The kind of listener of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Tcp,
    /// Detected by an inspector.
    Sniffed,
}

/// A planned listener and which services may join it.
struct SharedListener {
    listener: PlannedListener,
    /// Its protocol: that of the first service, until a service with another kind joins.
    protocol: Protocol,
    /// Whether no further service may join it.
    locked: bool,
}

/// Listeners by name.
pub(super) struct Entries {
    by_name: BTreeMap<String, SharedListener>,
    /// The wildcard address in the proxy's family.
    wildcard: &'static str,
}

impl Entries {
    /// An empty plan.
    pub(super) fn new(wildcard: &'static str) -> Self {
        Self {
            by_name: BTreeMap::new(),
            wildcard,
        }
    }

    /// Locks all existing entries.
    pub(super) fn lock(&mut self) {
        self.by_name
            .values_mut()
            .for_each(|entry| entry.locked = true);
    }

    pub(super) fn into_plan(self) -> Plan {
        self.by_name
            .into_iter()
            .map(|(name, entry)| (name, Arc::new(entry.listener)))
            .collect()
    }

    /// Adds a listener, or adds the service to the existing one, as far as they are compatible.
    pub(super) fn add(&mut self, name: String, request: Request<'_>) {
        let kind = kind_of(request.port.protocol);
        let protocol = request.port.protocol;
        let Some(current) = self.by_name.get_mut(&name) else {
            let entry = new_entry(request, kind, self.wildcard);
            self.by_name.insert(name, entry);
            return;
        };

        if current.locked {
            return;
        }

        if protocol == Protocol::HttpProxy {
            *current = new_entry(request, kind, self.wildcard);
            return;
        }

        let is_tcp = current.protocol.is_tcp();
        if kind == Kind::Http && !is_tcp || server_speaks_first(protocol, current.protocol) {
            // Routes distinguish HTTP services; and no inspector may wait for the first bytes of
            // some protocols.
            return;
        }

        if kind == Kind::Sniffed && current.protocol.is_http() {
            *current = new_entry(request, kind, self.wildcard);
            return;
        }

        if kind != Kind::Tcp || current.protocol.is_http() {
            let joined_sniffed = !is_tcp && !current.protocol.is_http();
            if !joined_sniffed {
                current.protocol = Protocol::Unsupported;
            }
            let parts = if joined_sniffed {
                vec![request.tcp()]
            } else {
                request.parts(kind, self.wildcard)
            };
            current.listener.groups.push(parts);
            return;
        }

        current.listener.groups.push(vec![request.tcp()]);
    }
}

/// A listener for a single service.
fn new_entry(request: Request<'_>, kind: Kind, wildcard: &str) -> SharedListener {
    let sniffed_http = kind == Kind::Http
        && request.port.protocol != Protocol::HttpProxy
        && request.binds.first().is_some_and(|bind| bind == wildcard);
    let protocol = if sniffed_http {
        Protocol::Unsupported
    } else {
        request.port.protocol
    };

    let parts = request.parts(kind, wildcard);
    let listener = PlannedListener {
        binds: request.binds,
        binds_to_port: request.to_port,
        port: request.port.number,
        groups: vec![parts],
    };

    SharedListener {
        listener,
        protocol,
        locked: false,
    }
}

/// The kind of listener of a protocol.
fn kind_of(protocol: Protocol) -> Kind {
    if protocol.is_http() {
        Kind::Http
    } else if protocol.is_tcp() {
        Kind::Tcp
    } else {
        Kind::Sniffed
    }
}

/// Whether in one of two different protocols the server sends first: such protocols cannot share a
/// port.
fn server_speaks_first(incoming: Protocol, existing: Protocol) -> bool {
    let first = |protocol| matches!(protocol, Protocol::Mongo | Protocol::MySql);
    incoming != existing && (first(incoming) || first(existing))
}

impl Request<'_> {
    /// The filter chains of the service.
    fn parts(&self, kind: Kind, wildcard: &str) -> Vec<ChainPlan> {
        match kind {
            Kind::Http => vec![self.http(kind, wildcard)],
            Kind::Tcp => vec![self.tcp()],
            Kind::Sniffed => vec![self.tcp(), self.http(kind, wildcard)],
        }
    }

    fn http(&self, kind: Kind, wildcard: &str) -> ChainPlan {
        let bind = self.binds.first().map_or("", String::as_str);
        let routes = if self.port.number == 0 {
            bind.to_owned()
        } else if kind == Kind::Sniffed && bind != wildcard {
            // The address is the service's own, and so is its route configuration.
            format!("{}:{}", self.shape.host, self.port.number)
        } else {
            self.port.number.to_string()
        };

        let on_all_addresses = bind == wildcard && self.port.protocol != Protocol::HttpProxy;
        ChainPlan::Http(HttpChainPlan {
            routes,
            protocol: self.port.protocol,
            sniffs: kind == Kind::Sniffed || on_all_addresses,
            resolved_by_name: self
                .shape
                .resolves_by_name
                .then(|| (self.egress, self.service.clone())),
        })
    }

    /// The chains for other protocols.
    fn tcp(&self) -> ChainPlan {
        ChainPlan::Tcp(TcpChainPlan {
            egress: self.egress,
            service: self.service.clone(),
            port: self.port.clone(),
            bind: self
                .binds
                .first()
                .expect("a listener without binds is not added")
                .clone(),
            cidrs: self.cidrs.clone(),
            by_pod: self.by_pod,
        })
    }
}
