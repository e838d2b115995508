//! The endpoints of a port of a service.

use std::sync::Arc;

use navarch_registry::model::{Endpoint, Service, ServiceEndpoints};

/// The endpoints of a service port for inline clusters.
///
/// If an endpoint references the service port by number (ServiceEntry), the number decides, else
/// the port's name.
pub(crate) fn of_port<'a>(
    endpoints: &'a ServiceEndpoints,
    service: &'a Service,
    port: u16,
) -> impl Iterator<Item = &'a Arc<Endpoint>> {
    let name = service.port(port).map(|port| &port.name);
    endpoints
        .endpoints
        .iter()
        .filter(move |endpoint| match endpoint.legacy_port_key {
            0 => name == Some(&endpoint.port_name),
            number => number == port && name.is_some(),
        })
}

/// The endpoints of a service port for EDS: those with the port's name.
pub(crate) fn of_port_name<'a>(
    endpoints: &'a ServiceEndpoints,
    service: &'a Service,
    port: u16,
) -> impl Iterator<Item = &'a Arc<Endpoint>> {
    let name = service.port(port).map(|port| &port.name);
    endpoints
        .endpoints
        .iter()
        .filter(move |endpoint| name == Some(&endpoint.port_name))
}
