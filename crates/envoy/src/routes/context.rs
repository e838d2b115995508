//! The context in which a VirtualService is translated.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::waypoint;
use navarch_api::istio::Destination;
use navarch_api::names::Hostname;
use navarch_push::view::View;
use navarch_registry::model::Service;

/// What evaluates the routes. Clients differ in cluster names, in the match of hosts, and in
/// timeouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteClient {
    /// The Envoy of a sidecar or a gateway.
    #[default]
    Envoy,
    /// The Envoy of a waypoint, which has separate clusters for its own services.
    Waypoint,
    /// A gRPC application, which compares hosts including ports and uses the timeout as the maximum
    /// duration of a stream.
    Grpc,
}

/// The context of a VirtualService's routes: port, gateways and client.
#[derive(Clone, Copy)]
pub struct RouteContext<'a> {
    /// Records what the translation reads, so that the routes are computed again when it changes.
    pub view: &'a View<'a>,
    /// The port of the listener; 0 for HTTP proxies and Unix sockets.
    pub listen_port: u16,
    /// The gateways (`namespace/name`, or `mesh`) of the routes: matches for other gateways are
    /// omitted.
    pub gateways: &'a BTreeSet<String>,
    /// Decides the cluster of a destination, see [`RouteContext::cluster`], and the form of hosts
    /// and timeouts.
    pub client: RouteClient,
    /// Whether the listener terminates TLS.
    pub is_tls: bool,
    /// Whether responses advertise HTTP/3 on the same port.
    pub advertises_http3: bool,
    /// The service of a host in this context, if any.
    pub service: &'a dyn Fn(&Hostname) -> Option<Arc<Service>>,
}

impl fmt::Debug for RouteContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteContext")
            .field("listen_port", &self.listen_port)
            .finish_non_exhaustive()
    }
}

impl RouteContext<'_> {
    /// The cluster of a destination in this context.
    #[must_use]
    pub fn cluster(&self, destination: &Destination) -> String {
        let service = (self.service)(&Hostname::new(&destination.host));
        if self.client == RouteClient::Waypoint {
            return waypoint::destination_cluster(
                self.view,
                destination,
                service.as_deref(),
                self.listen_port,
            );
        }
        destination_cluster(destination, service.as_deref(), self.listen_port)
    }
}

/// The cluster of a destination: with its own port, else the only port of its service, else that of
/// the listener.
///
/// A destination without a host, which only an invalid backend of a Gateway API route has, is a
/// cluster that never exists.
#[must_use]
pub fn destination_cluster(
    destination: &Destination,
    service: Option<&Service>,
    listen_port: u16,
) -> String {
    if destination.host.is_empty() {
        return "UnknownService".to_owned();
    }
    let alias = service
        .map(|service| &*service.kubernetes.external_name)
        .filter(|name| !name.is_empty());
    let host = alias.unwrap_or(&destination.host);
    let only_port = service.and_then(|service| match service.ports.as_slice() {
        [only] => Some(only.port),
        [] | [_, _, ..] => None,
    });
    let port = destination.port.as_ref().map_or_else(
        || u32::from(only_port.unwrap_or(listen_port)),
        |port| port.number,
    );
    format!("outbound|{port}|{}|{host}", destination.subset)
}
