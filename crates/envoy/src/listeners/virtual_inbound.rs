//! Inbound listeners: the one that iptables redirects all inbound connections to, and those that
//! bind to ports.

use std::collections::BTreeSet;

use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter,
};

use super::address::{
    Interception, VIRTUAL_INBOUND, accepts_per_event, additional_addresses, balance, interception,
    listen_address, listener_name, wildcards,
};
use super::inbound_chain::{self, Target};
use super::inbound_plan::{ServedPort, served_ports};
use super::inspectors;
use crate::filters::access_log::AccessLogsOf;
use crate::filters::class::ListenerClass;
use crate::filters::listener::{original_destination, original_source};
use crate::filters::metrics::MetricsFiltersOf;
use crate::filters::network::{metadata_exchange, tcp_filter, tcp_proxy};
use crate::mtls;
use crate::names::BLACK_HOLE;
use navarch_api::duration::Duration;
use navarch_push::view::View;

/// The class of these listeners.
const CLASS: ListenerClass = ListenerClass::SidecarInbound;

/// Whether a listener receives redirected connections or accepts them itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// iptables redirects connections for other ports to it.
    Redirected,
    /// Clients connect to its port.
    Direct,
}

/// The names of the listeners that bind to ports.
pub(super) fn custom_names(view: &View<'_>) -> Vec<String> {
    served_ports(view)
        .iter()
        .filter(|port| port.binds_to_port)
        .map(custom_name)
        .collect()
}

/// Builds the listener of this name that binds to a port.
pub(super) fn build_custom(view: &View<'_>, name: &str) -> Option<Listener> {
    let ports = served_ports(view);
    let port = ports
        .iter()
        .find(|port| port.binds_to_port && custom_name(port) == name)?;
    let chains = inbound_chain::build(view, &Target::Served(port));
    Some(listener(
        view,
        name,
        &port.binds,
        port.target,
        Binding::Direct,
        chains,
    ))
}

/// The name of a listener that binds to a port.
fn custom_name(port: &ServedPort) -> String {
    listener_name(port.binds.first().map_or("", String::as_str), port.target)
}

/// Builds the listener that iptables redirects to.
pub(super) fn build(view: &View<'_>) -> Listener {
    let listen_port =
        u16::try_from(view.mesh().config.proxy_inbound_listen_port).unwrap_or_default();
    let ports = served_ports(view);
    let mut chains = vec![blackhole_chain(view, listen_port)];
    for target in unknown_targets(view) {
        chains.extend(inbound_chain::build(view, &target));
    }
    for port in ports.iter().filter(|port| !port.binds_to_port) {
        chains.extend(inbound_chain::build(view, &Target::Served(port)));
    }
    let binds: Vec<String> = wildcards(view.proxy().families())
        .iter()
        .map(|&bind| bind.to_owned())
        .collect();
    listener(
        view,
        VIRTUAL_INBOUND,
        &binds,
        listen_port,
        Binding::Redirected,
        chains,
    )
}

/// Targets for undeclared ports: for all of them, and for ports that only a policy lists.
fn unknown_targets(view: &View<'_>) -> Vec<Target<'static>> {
    let demanded = mtls::of_proxy(view);
    let served: BTreeSet<u16> = served_ports(view).iter().map(|port| port.target).collect();
    let mut targets = vec![Target::Unknown {
        port: 0,
        mtls: demanded.on_port(0),
    }];
    let only_policy = demanded
        .ports
        .iter()
        .filter(|(port, _)| !served.contains(port));
    targets.extend(only_policy.map(|(port, mode)| Target::Unknown {
        port: *port,
        mtls: *mode,
    }));
    targets
}

/// Drops connections to the listener's own port, which would loop forever.
fn blackhole_chain(view: &View<'_>, port: u16) -> FilterChain {
    let mut filters: Vec<Filter> = metadata_exchange(view).into_iter().collect();
    filters.extend(
        view.get(&MetricsFiltersOf::of_class(CLASS))
            .tcp
            .iter()
            .cloned(),
    );

    filters.push(tcp_filter(&tcp_proxy(BLACK_HOLE, BLACK_HOLE)));
    FilterChain {
        name: "virtualInbound-blackhole".to_owned(),
        filter_chain_match: Some(FilterChainMatch {
            destination_port: Some(u32::from(port)),
            ..FilterChainMatch::default()
        }),
        filters,
        ..FilterChain::default()
    }
}

/// The listener with these chains.
fn listener(
    view: &View<'_>,
    name: &str,
    binds: &[String],
    port: u16,
    binding: Binding,
    filter_chains: Vec<FilterChain>,
) -> Listener {
    let further = if view.mesh().settings.dual_stack {
        binds.get(1..).unwrap_or_default()
    } else {
        &[]
    };

    let is_transparent =
        binding == Binding::Redirected && interception(view) == Interception::Tproxy;
    let mut listener_filters: Vec<ListenerFilter> = Vec::new();
    if binding == Binding::Redirected {
        listener_filters.push(original_destination());
    }

    if is_transparent {
        listener_filters.push(original_source());
    }

    listener_filters.extend(inspectors::for_chains(&filter_chains));
    Listener {
        name: name.to_owned(),
        address: binds.first().map(|bind| listen_address(bind, port)),
        additional_addresses: additional_addresses(further, port),
        traffic_direction: TrafficDirection::Inbound.into(),
        continue_on_listener_filters_timeout: true,
        max_connections_to_accept_per_socket_event: accepts_per_event(view),
        connection_balance_config: balance(view, "INBOUND_LISTENER_EXACT_BALANCE"),
        transparent: is_transparent.then_some(true),
        access_log: view.get(&AccessLogsOf::of_class(CLASS)).listener.clone(),
        filter_chains,
        listener_filters,
        listener_filters_timeout: view
            .mesh()
            .config
            .protocol_detection_timeout
            .map(Duration::to_proto),
        ..Listener::default()
    }
}
