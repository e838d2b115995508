//! Which addresses may be asked for keys: whoever writes a policy chooses the place, but must not reach with Navarch's hands
//! what only Navarch can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::api::cidr::Cidr;

/// Addresses at which clouds tell machines their credentials, beside those that are link-local.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Which addresses may be asked. Judged when connecting, by the address that is connected to: a name may mean another address
/// every time it is resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Whether Navarch's own machine may be asked.
    pub allow_loopback: bool,
    /// Further ranges that may not be.
    pub blocked: Vec<Cidr>,
}

impl AddressPolicy {
    /// Whether an address may be asked.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        // An IPv4 address in IPv6's clothes reaches the same machine.
        let address = address.to_canonical();
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let is_own = address.is_loopback() || address.is_unspecified();
        let is_blocked = self.blocked.iter().any(|range| range.contains(address));
        !is_link_local
            && !address.is_multicast()
            && !METADATA.contains(&address)
            && !is_blocked
            && (self.allow_loopback || !is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reached_that_only_we_can_reach() {
        let policy = AddressPolicy { allow_loopback: false, blocked: vec![Cidr::parse("10.96.0.0/16").unwrap()] };
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "100.100.100.200",
            "10.96.3.4",
            "224.0.0.1",
        ] {
            assert!(!policy.allows(bad.parse().unwrap()), "{bad}");
        }
        for good in ["10.97.0.1", "192.0.2.1", "2001:db8::1", "fd00::1"] {
            assert!(policy.allows(good.parse().unwrap()), "{good}");
        }
        assert!(
            AddressPolicy { allow_loopback: true, ..AddressPolicy::default() }.allows("127.0.0.1".parse().unwrap())
        );
    }
}
