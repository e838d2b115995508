//! LDS: sidecar and gateway listeners.
//!
//! ```text
//! scope ──▶ outbound plan ──▶ one outbound listener ◀── VirtualServices, DestinationRules of its services
//! targets, Sidecar ──▶ inbound plan ──▶ virtualInbound, listeners that bind to ports ◀── PeerAuthentications
//! ```

pub(super) mod address;
mod destination;
mod filter_chain;
mod gateway;
mod hbone_inbound;
mod http_proxy;
mod inbound_chain;
mod inbound_match;
mod inbound_plan;
mod inspectors;
mod l4_chains;
mod outbound;
mod outbound_plan;
mod overlap;
mod patched;
mod tunnel_end;
mod tunnels;
mod virtual_inbound;
mod virtual_outbound;
mod waypoint;

use bytes::Bytes;
use navarch_proto::envoy::config::core::v3::TrafficDirection;
use navarch_proto::envoy::config::core::v3::address::Address;
use navarch_proto::envoy::config::listener::v3::Listener;

use super::build::{MAX_UNIX_PATH, encode};
use super::hbone;
use address::{Interception, VIRTUAL_INBOUND, interception};
pub(super) use destination::apply_rule;
pub(super) use inspectors::on_ports;
use navarch_api::names::ResourceName;
use navarch_push::proxy::ProxyKind;
use navarch_push::view::View;

/// The names of all listeners of the proxy.
pub(super) fn names(view: &View<'_>) -> Vec<ResourceName> {
    let names = patched::names(view).unwrap_or_else(|| generated_names(view));
    names.iter().map(ResourceName::new).collect()
}

/// The names of all listeners that are generated for the proxy.
fn generated_names(view: &View<'_>) -> Vec<String> {
    match view.proxy().kind() {
        ProxyKind::Sidecar => sidecar_names(view)
            .into_iter()
            .chain(tunnel_name(view))
            .collect(),
        ProxyKind::Router => {
            let mut names = gateway::names(view);
            if !names.is_empty() && hbone::leaves_network(view) {
                names.extend([hbone::INNER, hbone::OUTER].map(str::to_owned));
            }
            names.extend(tunnel_name(view));
            names
        }
        ProxyKind::Waypoint => crate::waypoint::listener_names(view)
            .into_iter()
            .chain(passthrough_names(view))
            .collect(),
        ProxyKind::Ztunnel | ProxyKind::AgentGateway => Vec::new(),
    }
}

/// The name of the listener that originates tunnels, for proxies of workloads and gateways that
/// send HBONE.
fn tunnel_name(view: &View<'_>) -> Option<String> {
    view.mesh()
        .settings
        .hbone
        .sends
        .then(|| hbone::ORIGINATE.to_owned())
}

pub(super) fn resource(name: &ResourceName, view: &View<'_>) -> Option<Bytes> {
    let mut listener = patched::build(view, name.as_str())?;
    overlap::part(view, &mut listener);
    Some(encode(&listener))
}

/// Builds the generated listener of this name.
fn build(name: &str, view: &View<'_>) -> Option<Listener> {
    let kind = view.proxy().kind();
    let listener = match kind {
        ProxyKind::Sidecar | ProxyKind::Router if name == hbone::ORIGINATE => {
            tunnel_name(view).map(|_| tunnels::originate(view))
        }
        ProxyKind::Sidecar => sidecar_listener(name, view),
        ProxyKind::Router if name == hbone::INNER => {
            hbone::leaves_network(view).then(|| tunnels::inner(view))
        }
        ProxyKind::Router if name == hbone::OUTER => {
            hbone::leaves_network(view).then(|| tunnels::outer(view))
        }
        ProxyKind::Router => gateway::build(view, name),
        ProxyKind::Waypoint => waypoint_listener(name, view),
        ProxyKind::Ztunnel | ProxyKind::AgentGateway => None,
    }?;

    if let Some(Address::Pipe(pipe)) = listener
        .address
        .as_ref()
        .and_then(|own| own.address.as_ref())
        && pipe.path.len() > MAX_UNIX_PATH
    {
        view.remark(format!(
            "Sidecar: the listener {name} is ignored: its path has more than {MAX_UNIX_PATH} bytes"
        ));
        return None;
    }

    Some(listener)
}

/// The names of the listeners of a gateway between networks that pass TLS through.
fn passthrough_names(view: &View<'_>) -> Vec<String> {
    if hbone::joins_networks(view) {
        gateway::names(view)
    } else {
        Vec::new()
    }
}

/// The names of a sidecar's listeners, each once.
fn sidecar_names(view: &View<'_>) -> Vec<String> {
    // Without a redirection port sidecars have no listeners.
    if view.mesh().config.proxy_listen_port <= 0 {
        return Vec::new();
    }

    let mut names: Vec<String> = outbound_plan::plan(view).keys().cloned().collect();
    names.extend(http_proxy::name(view));

    if interception(view) != Interception::None {
        names.extend([
            virtual_outbound::NAME.to_owned(),
            VIRTUAL_INBOUND.to_owned(),
        ]);
    }

    names.extend(virtual_inbound::custom_names(view));
    if hbone::is_taken_by_sidecar(view) {
        names.extend([hbone::TERMINATE, hbone::MAIN].map(str::to_owned));
    }

    names.sort_unstable();
    names.dedup();
    names
}

fn sidecar_listener(name: &str, view: &View<'_>) -> Option<Listener> {
    if view.mesh().config.proxy_listen_port <= 0 {
        return None;
    }

    match name {
        virtual_outbound::NAME if interception(view) != Interception::None => {
            Some(virtual_outbound::build(view))
        }
        VIRTUAL_INBOUND if interception(view) != Interception::None => {
            Some(virtual_inbound::build(view))
        }
        hbone::TERMINATE if hbone::is_taken_by_sidecar(view) => Some(tunnel_end::build(view)),
        hbone::MAIN if hbone::is_taken_by_sidecar(view) => Some(hbone_inbound::build(view)),
        _ => {
            if let Some(planned) = outbound_plan::planned(view, name) {
                return Some(outbound::build(view, name, &planned));
            }
            if http_proxy::name(view).as_deref() == Some(name) {
                return http_proxy::build(view, name);
            }
            virtual_inbound::build_custom(view, name)
        }
    }
}

fn waypoint_listener(name: &str, view: &View<'_>) -> Option<Listener> {
    let joins = hbone::joins_networks(view);
    Some(match name {
        hbone::TERMINATE => tunnel_end::build(view),
        hbone::MAIN => waypoint::main_internal(view),
        hbone::ORIGINATE if !joins => tunnels::originate(view),
        hbone::FORWARD if joins => tunnels::forward(view),
        hbone::INNER if hbone::leaves_network(view) => tunnels::inner(view),
        hbone::OUTER if hbone::leaves_network(view) => tunnels::outer(view),
        _ if joins => {
            let direction = TrafficDirection::Inbound.into();
            return gateway::build(view, name).map(|built| Listener {
                traffic_direction: direction,
                ..built
            });
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
