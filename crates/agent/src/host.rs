//! Information about the machine: interfaces, resolvers, users.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use super::iptables::HostFacts;
use super::node::Interface;
use navarch_base::regular_file;

/// The file with the resolvers.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The interfaces that have addresses, in the kernel's order.
#[must_use]
pub fn interfaces() -> Vec<Interface> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut interfaces: Vec<Interface> = Vec::new();

    for entry in getifaddrs().into_iter().flatten() {
        let Some(address) = entry.address.as_ref().and_then(ip) else {
            continue;
        };

        let place = *places
            .entry(entry.interface_name.clone())
            .or_insert(interfaces.len());
        if place == interfaces.len() {
            interfaces.push(Interface {
                name: entry.interface_name,
                up: entry.flags.contains(InterfaceFlags::IFF_UP),
                loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
        }

        if let Some(interface) = interfaces.get_mut(place) {
            interface.addresses.push(address);
        }
    }

    interfaces
}

/// The IP address of a socket address, if it is one.
fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| IpAddr::V6(address.ip()))
    })
}

/// The information that istio-iptables needs. `user` is the name of Envoy's user.
#[must_use]
pub fn facts(user: &str, resolv_conf: &Path) -> HostFacts {
    let user = nix::unistd::User::from_name(user).ok().flatten();
    let addresses = getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.address.as_ref().and_then(ip));
    HostFacts {
        addresses: addresses.collect(),
        name_servers: regular_file::read_text(resolv_conf)
            .ok()
            .map(|text| name_servers(&text)),
        proxy_user: user.map(|user| user.uid.as_raw()),
    }
}

/// The name servers of a `resolv.conf`.
#[must_use]
pub fn name_servers(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver"))
            .then(|| words.next().map(str::to_owned))
            .flatten()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn name_servers_are_found_among_other_lines() {
        assert_eq!(
            name_servers(
                "# c\nsearch a b\nnameserver 10.0.0.1\nnameserver\nnameserver fd00::a x\n"
            ),
            ["10.0.0.1", "fd00::a"]
        );
    }

    #[test]
    fn every_machine_has_loopback() {
        assert!(interfaces().iter().any(|interface| interface.loopback
            && interface.addresses.contains(&Ipv4Addr::LOCALHOST.into())));
    }
}
