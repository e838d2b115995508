//! The pod's addresses and their families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// As the kernel has it, such as `eth0`.
    pub name: String,
    /// `IFF_UP`.
    pub up: bool,
    /// `IFF_LOOPBACK`.
    pub loopback: bool,
    /// IPv4 and IPv6 in the kernel's order, link-local ones included.
    pub addresses: Vec<IpAddr>,
}

/// The addresses of the pod, its main address first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(pub Vec<IpAddr>);

/// The families of the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMode {
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
    /// Both families.
    Dual,
}

impl Addresses {
    /// The addresses: `instance` first (`INSTANCE_IP`), then those of all interfaces that are up
    /// and not excluded by name. Loopback if there are none.
    #[must_use]
    pub fn find(instance: Option<IpAddr>, interfaces: &[Interface], excluded: &[&str]) -> Self {
        let up = interfaces
            .iter()
            .filter(|interface| interface.up && !interface.loopback);
        let mut own: Vec<_> = up
            .flat_map(|interface| usable(&interface.addresses))
            .collect();
        if own.is_empty() {
            own = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }

        let barred = interfaces
            .iter()
            .filter(|interface| excluded.contains(&interface.name.as_str()));
        let barred: Vec<_> = barred
            .flat_map(|interface| usable(&interface.addresses))
            .chain(instance)
            .collect();
        own.retain(|address| !barred.contains(address));

        let mut all: Vec<IpAddr> = Vec::new();

        for address in instance.into_iter().chain(own) {
            if !all.contains(&address) {
                all.push(address);
            }
        }

        Self(all)
    }

    /// The families of the addresses.
    #[must_use]
    pub fn mode(&self) -> AddressMode {
        let of_v4 = self.0.iter().filter(|address| address.is_ipv4()).count();
        match of_v4 {
            all if all == self.0.len() => AddressMode::V4,
            0 => AddressMode::V6,
            _ => AddressMode::Dual,
        }
    }

    /// Whether the first address is IPv6.
    #[must_use]
    pub fn first_is_v6(&self) -> bool {
        self.0.first().is_some_and(IpAddr::is_ipv6)
    }
}

impl std::fmt::Display for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<_> = self.0.iter().map(IpAddr::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

/// The addresses that are reachable for others.
fn usable(addresses: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    addresses
        .iter()
        .map(IpAddr::to_canonical)
        .filter(|address| {
            let link_local = match address {
                IpAddr::V4(address) => address.is_link_local(),
                IpAddr::V6(address) => address.is_unicast_link_local(),
            };
            !address.is_loopback()
                && !address.is_unspecified()
                && !address.is_multicast()
                && !link_local
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        Interface {
            name: name.to_owned(),
            up: true,
            loopback: name == "lo",
            addresses,
        }
    }

    #[test]
    fn the_pods_address_is_first_and_excluded_interfaces_are_omitted() {
        let interfaces = [
            interface("lo", &["127.0.0.1", "::6"]),
            interface("eth0", &["10.0.0.2", "10.0.0.1", "fe80::1", "fd00::1"]),
            interface("net1", &["192.168.0.1"]),
        ];
        let addresses = Addresses::find("10.0.0.1".parse().ok(), &interfaces, &["net1"]);
        assert_eq!(addresses.to_string(), "10.0.0.1,10.0.0.2,fd00::1");
        assert_eq!(addresses.mode(), AddressMode::Dual);
        assert_eq!(Addresses::find(None, &[], &[]).to_string(), "127.0.0.1,::1");
    }
}
