//! Network setup besides rules: the routes for TPROXY, and the source address of Envoy's
//! connections to the pod.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;

use super::capture::{Capture, Mode};
use super::families::IpFamily;
use super::netlink::Netlink;

/// The source address of Envoy's IPv6 connections to the pod, as of `127.0.0.6`. IPv4 needs none,
/// because the loopback device has all of 127.0.0.0/8.
const INBOUND_SOURCE: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// Why addresses or routes could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// A number is not one.
    #[error("--{name}={value:?} is not a number")]
    Number {
        /// The flag with the number.
        name: &'static str,
        /// The value of the flag.
        value: String,
    },
    /// The namespace has no loopback device, or the kernel has no netlink.
    #[error("failed to prepare routes")]
    Prepare(#[source] io::Error),
    /// The kernel rejected an object.
    #[error("failed to add {object}")]
    Add {
        /// The object, as `ip` names it.
        object: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Adds routes and addresses. Existing ones are not changed.
pub(super) fn configure(capture: &Capture) -> Result<(), RouteError> {
    let tproxy = capture.mode == Mode::Tproxy && !capture.inbound_ports.is_empty();
    if !capture.ipv6 && !tproxy {
        return Ok(());
    }

    let loopback = if_nametoindex("lo").map_err(|error| RouteError::Prepare(error.into()))?;
    let mut netlink = Netlink::open().map_err(RouteError::Prepare)?;
    if capture.ipv6 {
        let message = address(INBOUND_SOURCE, loopback);
        let object = || format!("address {INBOUND_SOURCE} dev lo");
        netlink
            .add(message)
            .map_err(|source| failed(object(), source))?;
    }

    if !tproxy {
        return Ok(());
    }

    let mark = number("istio-inbound-tproxy-mark", &capture.tproxy_mark)?;
    let table = number("istio-inbound-tproxy-route-table", &capture.tproxy_table)?;

    for family in capture.families() {
        let rule_text = || format!("{family:?} rule fwmark {mark} lookup {table}");
        add_rule(&mut netlink, family, mark, table)
            .map_err(|source| failed(rule_text(), source))?;
        let route_text = || format!("{family:?} route local default dev lo table {table}");
        netlink
            .add(route(family, table, loopback))
            .map_err(|source| failed(route_text(), source))?;
    }

    Ok(())
}

/// The error about an object.
fn failed(object: String, source: io::Error) -> RouteError {
    RouteError::Add { object, source }
}

/// Adds the rule for marked packets unless it exists: the kernel gives each rule a priority of its
/// own, so that it does not find them equal.
fn add_rule(netlink: &mut Netlink, family: IpFamily, mark: u32, table: u32) -> io::Result<()> {
    let is_it = |rule: RuleMessage| {
        let has = |wanted: RuleAttribute| rule.attributes.contains(&wanted);
        rule.header.action == RuleAction::ToTable
            && has(RuleAttribute::FwMark(mark))
            && has(RuleAttribute::Table(table))
    };
    if netlink
        .rules(address_family(family))?
        .into_iter()
        .any(is_it)
    {
        return Ok(());
    }
    netlink.add(rule(family, mark, table))
}

/// Reads a number, decimal as in pilot-agent.
fn number(name: &'static str, value: &str) -> Result<u32, RouteError> {
    value.parse().map_err(|_| RouteError::Number {
        name,
        value: value.to_owned(),
    })
}

/// An address with all its bits as prefix: `ip -6 addr add ADDRESS/128 dev INDEX`.
fn address(address: Ipv6Addr, index: u32) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = 128;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V6(address)),
        AddressAttribute::Address(IpAddr::V6(address)),
    ];
    RouteNetlinkMessage::NewAddress(message)
}

/// Marked packets are routed by a table: `ip rule add fwmark MARK lookup TABLE`.
fn rule(family: IpFamily, mark: u32, table: u32) -> RouteNetlinkMessage {
    let mut message = RuleMessage::default();
    message.header.family = address_family(family);
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![RuleAttribute::FwMark(mark), RuleAttribute::Table(table)];
    RouteNetlinkMessage::NewRule(message)
}

/// All packets of a table are for this machine: `ip route add local default dev INDEX table
/// TABLE`.
fn route(family: IpFamily, table: u32, index: u32) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = address_family(family);
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = RouteScope::Host;
    message.header.kind = RouteType::Local;
    message.attributes = vec![RouteAttribute::Oif(index), RouteAttribute::Table(table)];
    RouteNetlinkMessage::NewRoute(message)
}

/// The kernel's name of a family.
fn address_family(family: IpFamily) -> AddressFamily {
    match family {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_is_no_number_is_named() {
        let error = number("istio-inbound-tproxy-mark", "0x539").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--istio-inbound-tproxy-mark=\"0x539\" is not a number"
        );
        assert_eq!(number("istio-inbound-tproxy-mark", "1337").unwrap(), 1337);
    }
}
