//! The listener of a waypoint for traffic from terminated tunnels.
//!
//! ```text
//! services, workloads ─▶ main_internal: a filter chain for each port, found by address and port
//!                        └─▶ inbound-vip clusters ─▶ tunnels to the endpoints
//! ```
//!
//! A chain contains the routes and policies of its service: a waypoint is on the server side, but
//! applies DestinationRules as a client does.

mod chains;
mod http;
mod main_internal;
mod matcher;
mod routes;
mod tcp;
#[cfg(test)]
mod tests;

use navarch_registry::model::{Service, ServicePort};

use crate::filters::class::ListenerClass;

pub(super) use main_internal::build as main_internal;

/// The class of a waypoint's listeners.
const CLASS: ListenerClass = ListenerClass::SidecarInbound;

/// The subject of a chain.
#[derive(Clone, Copy, Debug)]
enum Subject<'a> {
    /// A port of a service.
    Port(&'a Service, &'a ServicePort),
    /// Workloads, on any port.
    Workloads,
}
