//! Selection of the listener for a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use navarch_proto::envoy::config::core::v3::{Address, address, socket_address};
use navarch_proto::envoy::config::listener::v3::Listener;

use super::{Connection, Entry};

/// The internal listener behind the HBONE listener of a waypoint.
const MAIN: &str = "main_internal";

/// The listener that takes a connection.
///
/// Redirected connections arrive at the listener of their direction, which hands them to that of
/// the original destination, if there is one: of its address and port, else of its port.
pub(super) fn find<'a>(
    listeners: &'a [Arc<Listener>],
    connection: &Connection,
) -> Option<&'a Listener> {
    let named = |name: &str| all(listeners).find(|listener| listener.name == name);
    match connection.entry {
        Entry::Inbound => {
            named("virtualInbound").or_else(|| bound(listeners, connection.destination))
        }
        Entry::Direct => bound(listeners, connection.destination),
        Entry::Tunnel => named(MAIN),
        Entry::Outbound => {
            let outbound = all(listeners).filter(|listener| !listener.name.starts_with("virtual"));
            let outbound: Vec<&Listener> = outbound.collect();
            best(&outbound, connection.destination).or_else(|| named("virtualOutbound"))
        }
    }
}

/// The listener that is bound to an address and port.
fn bound(listeners: &[Arc<Listener>], to: SocketAddr) -> Option<&Listener> {
    best(&all(listeners).collect::<Vec<_>>(), to)
}

fn all(listeners: &[Arc<Listener>]) -> impl Iterator<Item = &Listener> {
    listeners.iter().map(|listener| &**listener)
}

/// The listener of an address and port, else of all addresses and the port.
fn best<'a>(listeners: &[&'a Listener], to: SocketAddr) -> Option<&'a Listener> {
    let exact = listeners
        .iter()
        .find(|listener| addresses(listener).any(|own| own == to));
    let any = |own: SocketAddr| own.ip().is_unspecified() && own.port() == to.port();
    let family = |own: SocketAddr| any(own) && own.is_ipv4() == to.is_ipv4();
    let wildcard = listeners
        .iter()
        .find(|listener| addresses(listener).any(family));
    exact
        .or(wildcard)
        .or_else(|| {
            listeners
                .iter()
                .find(|listener| addresses(listener).any(any))
        })
        .copied()
}

/// The addresses that a listener is bound to.
fn addresses(listener: &Listener) -> impl Iterator<Item = SocketAddr> {
    let more = listener
        .additional_addresses
        .iter()
        .filter_map(|more| more.address.as_ref());
    listener
        .address
        .iter()
        .chain(more)
        .filter_map(socket)
        .collect::<Vec<_>>()
        .into_iter()
}

pub(super) fn socket(address: &Address) -> Option<SocketAddr> {
    let address::Address::SocketAddress(socket) = address.address.as_ref()? else {
        return None;
    };
    let ip: IpAddr = socket.address.parse().ok()?;
    match socket.port_specifier.as_ref()? {
        socket_address::PortSpecifier::PortValue(port) => {
            Some(SocketAddr::new(ip, u16::try_from(*port).ok()?))
        }
        socket_address::PortSpecifier::NamedPort(_) => None,
    }
}
