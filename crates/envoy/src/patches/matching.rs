//! The listeners, filter chains, clusters and routes that a patch matches. Unset criteria match
//! everything.

use std::collections::BTreeSet;

use navarch_proto::envoy::config::core::v3::{address, socket_address};
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::config::route::v3::{Route, VirtualHost, route};

use super::compiled::Patch;
use navarch_api::istio::{
    ApplyTo, FilterMatch, ListenerMatch, PatchContext, RouteMatch, RouteMatchAction,
};
use navarch_api::names::Hostname;

/// The listeners for redirected connections of all ports, with filter chains by port.
const VIRTUAL: [&str; 2] = ["virtualInbound", "virtualOutbound"];
/// The transport socket of filter chains without one.
const RAW_BUFFER: &str = "envoy.transport_sockets.raw_buffer";

/// Whether a patch matches a listener.
pub(super) fn listener_matches(patch: &Patch, listener: &Listener) -> bool {
    let Some(wanted) = &patch.matches.listener else {
        return true;
    };
    if !wanted.name.is_empty() && wanted.name != listener.name {
        return false;
    }
    if patch.apply_to != ApplyTo::Listener && is_virtual(listener) {
        return true;
    }
    wanted.port_number == 0 || port_of(listener) == Some(wanted.port_number)
}

/// Whether the listener receives redirected connections of all ports.
fn is_virtual(listener: &Listener) -> bool {
    VIRTUAL.contains(&listener.name.as_str())
}

/// The port that a listener binds to.
fn port_of(listener: &Listener) -> Option<u32> {
    let address::Address::SocketAddress(socket) = listener.address.as_ref()?.address.as_ref()?
    else {
        return None;
    };
    match socket.port_specifier.as_ref()? {
        socket_address::PortSpecifier::PortValue(port) => Some(*port),
        socket_address::PortSpecifier::NamedPort(_) => None,
    }
}

/// Whether a patch that matches a listener matches one of its filter chains.
pub(super) fn chain_matches(patch: &Patch, listener: &Listener, chain: &FilterChain) -> bool {
    let Some(ListenerMatch {
        port_number,
        filter_chain,
        ..
    }) = &patch.matches.listener
    else {
        return true;
    };

    let shown = chain.filter_chain_match.as_ref();
    let port = shown.and_then(|shown| shown.destination_port);
    if is_virtual(listener) && *port_number > 0 && port.unwrap_or_default() != *port_number {
        return false;
    }

    let Some(wanted) = filter_chain else {
        return true;
    };

    let is_among = |wanted: &str, list: Option<&Vec<String>>| {
        list.is_some_and(|list| list.iter().any(|name| name == wanted))
    };
    let protocols = shown.map(|shown| &shown.application_protocols);

    (wanted.name.is_empty() || wanted.name == chain.name)
        && (wanted.sni.is_empty() || is_among(&wanted.sni, shown.map(|shown| &shown.server_names)))
        && (wanted.transport_protocol.is_empty()
            || shown.is_some_and(|shown| shown.transport_protocol == wanted.transport_protocol))
        && (wanted.application_protocols.is_empty()
            || wanted
                .application_protocols
                .split(',')
                .all(|protocol| is_among(protocol, protocols)))
        && (wanted.transport_socket.is_empty() || wanted.transport_socket == socket_of(chain))
        && (wanted.destination_port == 0 || port == Some(wanted.destination_port))
}

/// The name of a filter chain's transport socket. Envoy's default passes bytes through.
fn socket_of(chain: &FilterChain) -> &str {
    chain
        .transport_socket
        .as_ref()
        .map_or(RAW_BUFFER, |socket| &socket.name)
}

/// The network filter that a patch selects.
pub(super) fn wanted_filter(patch: &Patch) -> Option<&FilterMatch> {
    patch
        .matches
        .listener
        .as_ref()?
        .filter_chain
        .as_ref()?
        .filter
        .as_ref()
}

/// The name of the HTTP filter that a patch selects.
pub(super) fn wanted_sub_filter(patch: &Patch) -> Option<&str> {
    wanted_filter(patch)?
        .sub_filter
        .as_ref()
        .map(|filter| filter.name.as_str())
}

/// The name of the listener filter that a patch selects.
pub(super) fn wanted_listener_filter(patch: &Patch) -> Option<&str> {
    let name = &patch.matches.listener.as_ref()?.listener_filter;
    (!name.is_empty()).then_some(name)
}

/// Whether a name equals the selected one, if any.
pub(super) fn matches_name(wanted: Option<&str>, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == name)
}

/// Whether a patch matches a cluster. `hosts` are the services of an inbound cluster, whose name
/// contains none.
pub(super) fn cluster_matches(patch: &Patch, name: &str, hosts: &[Hostname]) -> bool {
    let Some(wanted) = &patch.matches.cluster else {
        return true;
    };
    if !wanted.name.is_empty() {
        return wanted.name == name;
    }
    let parts = NameParts::of(name);
    let is_host = |host: &str| {
        if parts.direction == "inbound" && !hosts.is_empty() {
            hosts.iter().any(|own| own.as_str() == host)
        } else {
            parts.host == host
        }
    };
    (wanted.subset.is_empty() || wanted.subset == parts.subset)
        && (wanted.service.is_empty() || is_host(&wanted.service))
        && (wanted.port_number == 0 || wanted.port_number == parts.port)
}

/// The parts of a cluster's name, as far as it has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NameParts<'a> {
    /// `inbound` or `outbound`.
    direction: &'a str,
    port: u32,
    subset: &'a str,
    host: &'a str,
}

impl<'a> NameParts<'a> {
    /// Parses a name, including names of users.
    fn of(name: &'a str) -> Self {
        let separator = if name.starts_with("outbound_.") || name.starts_with("inbound_.") {
            "_."
        } else {
            "|"
        };

        let mut rest = name.split(separator);
        let mut next = || rest.next().unwrap_or_default();
        let direction = next();
        let port = next();
        let subset = next();
        let host = next();
        if name == direction {
            return Self::default();
        }

        let host = if rest.next().is_some() { "" } else { host };
        Self {
            direction,
            port: port.parse().unwrap_or_default(),
            subset,
            host,
        }
    }
}

/// The properties of a route configuration that patches match on.
#[derive(Clone, Debug)]
pub struct RoutesIdentity<'a> {
    /// In `GATEWAY` port, port name and gateway of the configuration's name are compared, in others
    /// only the port.
    pub context: PatchContext,
    /// On gateways, the declared ports that match instead of the one in the name; `None` if only
    /// that one matches.
    pub declared_ports: Option<&'a BTreeSet<u16>>,
}

/// Whether a patch matches a route configuration.
pub(super) fn routes_match(patch: &Patch, name: &str, identity: &RoutesIdentity<'_>) -> bool {
    let Some(wanted) = &patch.matches.route_configuration else {
        return true;
    };
    if !wanted.name.is_empty() && wanted.name != name {
        return false;
    }
    if identity.context != PatchContext::Gateway {
        return wanted.port_number == 0 || wanted.port_number == sidecar_port(name);
    }
    let parts = GatewayRoutes::of(name);
    let is_port = |port: u32| match identity.declared_ports {
        Some(ports) => ports.iter().any(|declared| u32::from(*declared) == port),
        None => parts.port == port,
    };
    (wanted.port_name.is_empty() || wanted.port_name == parts.port_name)
        && (wanted.gateway.is_empty() || wanted.gateway == parts.gateway)
        && (wanted.port_number == 0 || is_port(wanted.port_number))
}

/// The port of a sidecar's route configuration; 0 if its name is not a port, or that of an inbound
/// cluster.
fn sidecar_port(name: &str) -> u32 {
    if name.starts_with("inbound") {
        NameParts::of(name).port
    } else {
        name.parse().unwrap_or_default()
    }
}

/// The parsed name of a gateway's route configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayRoutes<'a> {
    /// The listening port.
    pub(super) port: u32,
    /// The name of the server's port, for HTTPS.
    port_name: &'a str,
    /// The Gateway as `namespace/name`, for HTTPS.
    gateway: String,
}

impl<'a> GatewayRoutes<'a> {
    /// Parses `http.<port>` or `https.<port>.<port name>.<gateway>.<namespace>`.
    pub(super) fn of(name: &'a str) -> Self {
        if let Some(port) = name.strip_prefix("http.") {
            return Self {
                port: port.parse().unwrap_or_default(),
                ..Self::default()
            };
        }
        let parts: Vec<&str> = name.split('.').collect();
        match parts.as_slice() {
            ["https", port, port_name, gateway, namespace] => Self {
                port: port.parse().unwrap_or_default(),
                port_name,
                gateway: format!("{namespace}/{gateway}"),
            },
            _ => Self::default(),
        }
    }
}

/// Whether a patch that matches a route configuration matches one of its virtual hosts.
pub(super) fn host_matches(patch: &Patch, host: &VirtualHost) -> bool {
    let wanted = patch
        .matches
        .route_configuration
        .as_ref()
        .and_then(|routes| routes.vhost.as_ref());
    let Some(wanted) = wanted else { return true };
    (wanted.name.is_empty() || wanted.name == host.name)
        && (wanted.domain_name.is_empty() || host.domains.contains(&wanted.domain_name))
}

/// The route that a patch selects.
pub(super) fn wanted_route(patch: &Patch) -> Option<&RouteMatch> {
    patch
        .matches
        .route_configuration
        .as_ref()?
        .vhost
        .as_ref()?
        .route
        .as_ref()
}

/// Whether a patch that matches a virtual host matches one of its routes.
pub(super) fn route_matches(patch: &Patch, route: &Route) -> bool {
    let Some(wanted) = wanted_route(patch) else {
        return true;
    };

    if !wanted.name.is_empty() && wanted.name != route.name {
        return false;
    }

    match (wanted.action, &route.action) {
        (RouteMatchAction::Any, _) => true,
        (action, Some(route::Action::Route(_))) => action == RouteMatchAction::Route,
        (action, Some(route::Action::Redirect(_))) => action == RouteMatchAction::Redirect,
        (action, Some(route::Action::DirectResponse(_))) => {
            action == RouteMatchAction::DirectResponse
        }
        // Actions for which the API has no value match any value.
        (
            _,
            Some(route::Action::FilterAction(_) | route::Action::NonForwardingAction(_)) | None,
        ) => true,
    }
}

#[cfg(test)]
mod tests {
    use navarch_push::resource::ResourceType;

    use super::*;
    use crate::test_mesh::{TestMesh, networking, service};

    /// How many filter chains of the inbound listener terminate TLS, and how many do not, once
    /// those with a transport socket are removed.
    fn chains_without(socket: &str) -> [usize; 2] {
        let filter = format!(
            "{{configPatches: [{{applyTo: FILTER_CHAIN, match: {{context: SIDECAR_INBOUND, \
             listener: {{filterChain: {{transportSocket: {socket}}}}}}}, \
             patch: {{operation: REMOVE}}}}]}}"
        );
        let filter = networking("EnvoyFilter", "shop", "remove", &filter)
            .replace("networking.istio.io/v1", "networking.istio.io/v1alpha3");
        let mut mesh = TestMesh::new(&(service("shop", "web", 80) + &filter));
        let proxy = mesh.sidecar("shop", "web");
        let listeners = mesh.named::<Listener>(proxy, ResourceType::Listener, &["virtualInbound"]);

        let chains = &listeners["virtualInbound"].filter_chains;
        let (tls, others): (Vec<_>, Vec<_>) = chains
            .iter()
            .partition(|chain| socket_of(chain) == "envoy.transport_sockets.tls");
        [tls.len(), others.len()]
    }

    #[test]
    fn filter_chains_are_selected_by_what_handles_their_bytes() {
        let [tls, others] = chains_without("envoy.transport_sockets.quic");
        assert!(tls > 0 && others > 0, "{tls} {others}");
        assert_eq!(chains_without("envoy.transport_sockets.tls"), [0, others]);
        assert_eq!(chains_without(RAW_BUFFER), [tls, 0]);
    }

    #[test]
    fn cluster_names_are_parsed_in_both_forms() {
        let parts = |port, subset, host| NameParts {
            direction: "outbound",
            port,
            subset,
            host,
        };
        assert_eq!(
            NameParts::of("outbound|80|v1|a.example"),
            parts(80, "v1", "a.example")
        );
        assert_eq!(
            NameParts::of("outbound_.80_._.a.example"),
            parts(80, "", "a.example")
        );
        assert_eq!(NameParts::of("inbound|8080||").port, 8080);
        assert_eq!(NameParts::of("BlackHoleCluster"), NameParts::default());
    }

    #[test]
    fn names_of_gateway_routes_are_parsed() {
        assert_eq!(GatewayRoutes::of("http.8080").port, 8080);
        let https = GatewayRoutes::of("https.443.web.edge.shop");
        assert_eq!(
            (https.port, https.port_name, https.gateway.as_str()),
            (443, "web", "shop/edge")
        );
        assert_eq!(GatewayRoutes::of("other"), GatewayRoutes::default());
    }

    #[test]
    fn sidecar_routes_have_the_port_of_their_name() {
        assert_eq!(sidecar_port("9080"), 9080);
        assert_eq!(sidecar_port("inbound|8080||"), 8080);
        assert_eq!(sidecar_port("a.example:80"), 0);
    }
}
