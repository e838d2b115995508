//! The listeners of gateways: one for each address and port of their Gateways.

mod chains;
mod l4;
mod sni_routing;
mod topology;

use std::collections::BTreeMap;

use navarch_proto::envoy::config::core::v3::{
    TrafficDirection, UdpSocketConfig, address, socket_address,
};
use navarch_proto::envoy::config::listener::v3::{
    FilterChain, Listener, QuicProtocolOptions, UdpListenerConfig,
};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;

use super::address::{
    accepts_per_event, additional_addresses, balance, listen_address, listener_name, wildcards,
};
use super::filter_chain::Chain;
use super::outbound::socket_connect_timeout;
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::connection_settings::{EffectiveConnectionSettings, unsigned};
use crate::filters::downstream_tls::{quic_transport_socket, transport_socket};
use crate::filters::listener::{proxy_protocol, tls_inspector};
use crate::gateway::{BoundPort, bound_ports, quic_servers_at, servers_at};
use navarch_push::query::Query;
use navarch_push::view::View;
use topology::TopologyOfProxy;

/// A filter chain with the TLS that it terminates.
#[derive(Clone, Debug, Default, PartialEq)]
struct GatewayChain {
    /// Match criteria and filters.
    chain: Chain,
    /// The terminated TLS; `None` for plain text or passed-through connections.
    tls: Option<DownstreamTlsContext>,
}

/// The transport of a listener's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Transport {
    /// TCP, optionally with TLS.
    Tcp,
    /// QUIC over UDP.
    Quic,
}

/// The ports of one listener, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortsOfListener {
    name: String,
}

/// The ports of all listeners, by their names, except those for QUIC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortsByListener;

impl Query for PortsByListener {
    type Value = BTreeMap<String, Vec<BoundPort>>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let mut ports: BTreeMap<String, Vec<BoundPort>> = BTreeMap::new();
        for at in bound_ports(view).iter() {
            ports.entry(name_of(view, at)).or_default().push(at.clone());
        }
        ports
    }
}

impl Query for PortsOfListener {
    type Value = Vec<BoundPort>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        let (_, name) = transport_of(&self.name);
        view.get(&PortsByListener)
            .get(name)
            .cloned()
            .unwrap_or_default()
    }
}

/// The names of all listeners, including those that end up without a filter chain.
pub(super) fn names(view: &View<'_>) -> Vec<String> {
    let ports = bound_ports(view);
    let mut names: Vec<String> = ports.iter().map(|at| name_of(view, at)).collect();
    if view.mesh().settings.quic_listeners {
        let quic = ports
            .iter()
            .filter(|at| !quic_servers_at(view, at).is_empty());
        names.extend(quic.map(|at| format!("{UDP}{}", name_of(view, at))));
    }
    names
}

/// Prefix of the names of listeners for QUIC.
const UDP: &str = "udp_";

/// The transport of a listener of this name, and the rest of the name.
fn transport_of(name: &str) -> (Transport, &str) {
    match name.strip_prefix(UDP) {
        Some(rest) => (Transport::Quic, rest),
        None => (Transport::Tcp, name),
    }
}

/// Builds the listener of this name. `None` without filter chains: a TCP server without a route
/// opens no port.
pub(super) fn build(view: &View<'_>, name: &str) -> Option<Listener> {
    let ports = view.get(&PortsOfListener {
        name: name.to_owned(),
    });
    let at = ports.first()?;
    let (transport, _) = transport_of(name);
    let place = chains::ListenerContext {
        listener: name,
        port: at.port,
        transport,
    };

    let groups: Vec<_> = match transport {
        Transport::Tcp => ports
            .iter()
            .flat_map(|at| servers_at(view, at).to_vec())
            .collect(),
        Transport::Quic => ports
            .iter()
            .flat_map(|at| quic_servers_at(view, at).to_vec())
            .collect(),
    };

    let chains = chains::of_groups(view, place, &groups);
    if chains.is_empty() {
        return None;
    }

    let binds = binds(view, at);
    let connections = view.get(&EffectiveConnectionSettings);
    let buffer = connections
        .as_ref()
        .as_ref()
        .map(|settings| settings.listener_per_connection_buffer_limit_bytes);
    let mut listener = Listener {
        name: name.to_owned(),
        address: binds.first().map(|bind| listen_address(bind, at.port)),
        additional_addresses: additional_addresses(
            binds
                .get(1..)
                .expect("`binds` returns at least one address"),
            at.port,
        ),
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: accepts_per_event(view),
        connection_balance_config: balance(view, "OUTBOUND_LISTENER_EXACT_BALANCE"),
        per_connection_buffer_limit_bytes: buffer.and_then(unsigned),
        access_log: view
            .get(&AccessLogsOf::of_class(ListenerClass::Gateway))
            .listener
            .clone(),
        ..Listener::default()
    };

    match transport {
        Transport::Tcp => inspect(view, &mut listener, &chains),
        Transport::Quic => enable_quic(&mut listener),
    }

    listener.filter_chains = chains
        .into_iter()
        .map(|chain| filter_chain(view, transport, chain))
        .collect();

    Some(listener)
}

/// Adds listener filters that inspect the start of connections.
fn inspect(view: &View<'_>, listener: &mut Listener, chains: &[GatewayChain]) {
    if view.derived(&TopologyOfProxy).proxy_protocol {
        listener.listener_filters.push(proxy_protocol());
    }
    if chains
        .iter()
        .any(|chain| !chain.chain.sni.is_empty() || chain.tls.is_some())
    {
        listener.listener_filters.push(tls_inspector());
    }
}

/// Makes a listener accept QUIC on UDP.
fn enable_quic(listener: &mut Listener) {
    let further = listener
        .additional_addresses
        .iter_mut()
        .filter_map(|further| further.address.as_mut());
    for address in listener.address.iter_mut().chain(further) {
        if let Some(address::Address::SocketAddress(socket)) = &mut address.address {
            socket.protocol = socket_address::Protocol::Udp.into();
        }
    }
    listener.connection_balance_config = None;
    listener.udp_listener_config = Some(UdpListenerConfig {
        quic_options: Some(QuicProtocolOptions::default()),
        downstream_socket_config: Some(UdpSocketConfig::default()),
        ..UdpListenerConfig::default()
    });
}

/// The Envoy message of a chain.
fn filter_chain(
    view: &View<'_>,
    transport: Transport,
    GatewayChain { chain, tls }: GatewayChain,
) -> FilterChain {
    let transport_socket = tls.map(|tls| match transport {
        Transport::Tcp => transport_socket(&tls),
        Transport::Quic => quic_transport_socket(tls),
    });
    FilterChain {
        filter_chain_match: chain.to_match(),
        filters: chain.filters,
        metadata: chain.metadata,
        transport_socket,
        transport_socket_connect_timeout: socket_connect_timeout(view),
        ..FilterChain::default()
    }
}

/// The name of the listener that opens a port.
fn name_of(view: &View<'_>, at: &BoundPort) -> String {
    let bind = match at.bind.as_str() {
        "" => super::address::wildcard(view.proxy().families()),
        bind => bind,
    };
    listener_name(bind, at.port)
}

/// The addresses of a listener: the declared one, else all; the second family only if the proxy has
/// it.
fn binds(view: &View<'_>, at: &BoundPort) -> Vec<String> {
    if !at.bind.is_empty() {
        return vec![at.bind.clone()];
    }
    let all = wildcards(view.proxy().families());
    let used = if view.mesh().settings.dual_stack {
        all.len()
    } else {
        1
    };
    all.iter()
        .take(used)
        .map(|bind| (*bind).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use navarch_proto::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
    use prost::Name;

    use super::*;
    use crate::test_mesh::{TestMesh, networking, service};
    use navarch_api::settings::Settings;

    /// All listeners of a proxy.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct All;

    impl Query for All {
        type Value = Vec<Listener>;

        fn compute(&self, view: &View<'_>) -> Self::Value {
            names(view)
                .iter()
                .filter_map(|name| build(view, name))
                .collect()
        }
    }

    #[test]
    fn https_is_served_over_quic_too_where_a_service_has_the_port_for_udp() {
        let ports = |udp: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: edge, namespace: edge}}\nspec: {{clusterIP: 10.96.0.9, \
                 selector: {{app: gateway}}, ports: [{{name: https, port: 443, targetPort: 443}}{udp}]}}\n---\n"
            )
        };

        let gateway = "{selector: {app: gateway}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, \
                       hosts: [a.example], tls: {mode: SIMPLE, credentialName: a}}]}";
        let routes =
            "{hosts: [a.example], gateways: [web], http: [{route: [{destination: {host: web}}]}]}";
        let yaml = ports(", {name: http3, port: 443, targetPort: 443, protocol: UDP}")
            + &service("edge", "web", 80)
            + &networking("Gateway", "edge", "web", gateway)
            + &networking("VirtualService", "edge", "web", routes);

        let settings = Settings {
            quic_listeners: true,
            ..Settings::default()
        };
        let mut mesh = TestMesh::with_settings(&yaml, settings);
        let proxy = mesh.gateway("edge");
        let listeners = mesh.query(proxy, &All);
        let names: Vec<&str> = listeners
            .iter()
            .map(|listener| listener.name.as_str())
            .collect();
        assert_eq!(names, ["0.0.0.0_443", "udp_0.0.0.0_443"]);

        let quic = &listeners[1];
        assert!(quic.listener_filters.is_empty() && quic.udp_listener_config.is_some());
        let Some(address::Address::SocketAddress(socket)) = &quic.address.as_ref().unwrap().address
        else {
            panic!()
        };

        assert_eq!(socket.protocol(), socket_address::Protocol::Udp);
        let socket = quic.filter_chains[0].transport_socket.as_ref().unwrap();
        let navarch_proto::envoy::config::core::v3::transport_socket::ConfigType::TypedConfig(
            config,
        ) = socket.config_type.as_ref().unwrap();
        assert!(
            config
                .type_url
                .ends_with(&QuicDownstreamTransport::full_name())
        );

        let alt_svc = |mesh: &mut TestMesh| {
            let routes = mesh.routes(proxy, "https.443.https.web.edge");
            let headers = &routes.virtual_hosts[0].routes[0].response_headers_to_add;
            headers
                .iter()
                .map(|header| header.header.as_ref().unwrap().value.clone())
                .collect::<Vec<_>>()
        };

        assert_eq!(alt_svc(&mut mesh), ["h3=\":443\"; ma=86400"]);
        mesh.apply(&ports(""));
        assert_eq!(mesh.query(proxy, &All).len(), 1);
        assert!(alt_svc(&mut mesh).is_empty());
    }
}
