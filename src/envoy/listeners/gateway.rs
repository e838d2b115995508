//! The listeners of gateways: one for each address and port that their Gateways open.

mod chains;
mod l4;
mod sni_routing;
mod topology;

use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::envoy::extensions::transport_sockets::tls::v3::DownstreamTlsContext;

use super::address::{accepts_per_event, additional_addresses, balance, listen_address, listener_name, wildcards};
use super::filter_chain::Chain;
use super::outbound::socket_connect_timeout;
use crate::envoy::filters::access_log::AccessLogsOf;
use crate::envoy::filters::class::ListenerClass;
use crate::envoy::filters::connection_settings::{EffectiveConnectionSettings, unsigned};
use crate::envoy::filters::downstream_tls::transport_socket;
use crate::envoy::filters::listener::{proxy_protocol, tls_inspector};
use crate::envoy::gateway::{BoundPort, bound_ports, servers_at};
use crate::push::query::Query;
use crate::push::view::View;
use topology::TopologyOfProxy;

/// A filter chain with the TLS that it ends.
#[derive(Clone, Debug, Default, PartialEq)]
struct GatewayChain {
    /// What a connection must show, and the filters.
    chain: Chain,
    /// The TLS that is ended; `None` takes connections as they are.
    tls: Option<DownstreamTlsContext>,
}

/// What one listener opens, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortsOfListener {
    /// The name.
    name: String,
}

impl Query for PortsOfListener {
    type Value = Vec<BoundPort>;

    fn compute(&self, view: &View<'_>) -> Self::Value {
        bound_ports(view).iter().filter(|at| name_of(view, at) == self.name).cloned().collect()
    }
}

/// The names of all listeners. Those that come to have no filter chain are among them.
pub(super) fn names(view: &View<'_>) -> Vec<String> {
    bound_ports(view).iter().map(|at| name_of(view, at)).collect()
}

/// Builds the listener of this name. `None` without filter chains: a TCP server that no route speaks of opens no port.
pub(super) fn build(view: &View<'_>, name: &str) -> Option<Listener> {
    let ports = view.get(&PortsOfListener { name: name.to_owned() });
    let at = ports.first()?;
    let groups: Vec<_> = ports.iter().flat_map(|at| servers_at(view, at).to_vec()).collect();
    let chains = chains::of_groups(view, chains::Place { listener: name, port: at.port }, &groups);
    if chains.is_empty() {
        return None;
    }
    let binds = binds(view, at);
    let connections = view.get(&EffectiveConnectionSettings);
    let buffer = connections.as_ref().as_ref().map(|settings| settings.listener_per_connection_buffer_limit_bytes);
    let mut listener = Listener {
        name: name.to_owned(),
        address: binds.first().map(|bind| listen_address(bind, at.port)),
        additional_addresses: additional_addresses(binds.get(1..).unwrap_or_default(), at.port),
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: accepts_per_event(view),
        connection_balance_config: balance(view, "OUTBOUND_LISTENER_EXACT_BALANCE"),
        per_connection_buffer_limit_bytes: buffer.and_then(unsigned),
        access_log: view.get(&AccessLogsOf { class: ListenerClass::Gateway }).listener.clone(),
        ..Listener::default()
    };
    if view.derived(&TopologyOfProxy).proxy_protocol {
        listener.listener_filters.push(proxy_protocol());
    }
    if chains.iter().any(|chain| !chain.chain.sni.is_empty() || chain.tls.is_some()) {
        listener.listener_filters.push(tls_inspector());
    }
    listener.filter_chains = chains.into_iter().map(|chain| filter_chain(view, chain)).collect();
    Some(listener)
}

/// A chain as Envoy has it.
fn filter_chain(view: &View<'_>, GatewayChain { chain, tls }: GatewayChain) -> FilterChain {
    FilterChain {
        filter_chain_match: chain.to_match(),
        filters: chain.filters,
        metadata: chain.metadata,
        transport_socket: tls.as_ref().map(transport_socket),
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

/// The addresses of a listener: the one that is declared, else all, of the second family only where that is in use.
fn binds(view: &View<'_>, at: &BoundPort) -> Vec<String> {
    if !at.bind.is_empty() {
        return vec![at.bind.clone()];
    }
    let all = wildcards(view.proxy().families());
    let used = if view.mesh().settings.dual_stack { all.len() } else { 1 };
    all.iter().take(used).map(|bind| (*bind).to_owned()).collect()
}
