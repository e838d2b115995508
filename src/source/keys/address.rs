//! Which addresses may be asked for keys: whoever writes a policy chooses the place, but must not reach with Navarch's hands
//! what only Navarch can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Further ranges that may not be: an address and how many bits of it count.
    pub blocked: Vec<(IpAddr, u8)>,
}

impl AddressPolicy {
    /// Reads ranges, a list with commas such as `10.0.0.0/8,fd00::/8`. `None` if one is none.
    #[must_use]
    pub fn parse_ranges(text: &str) -> Option<Vec<(IpAddr, u8)>> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (address, bits) = part.split_once('/')?;
                let address: IpAddr = address.parse().ok()?;
                let bits: u8 = bits.parse().ok()?;
                (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
            })
            .collect()
    }

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
        let is_blocked = self.blocked.iter().any(|(range, bits)| covers(*range, *bits, address));
        !is_link_local
            && !address.is_multicast()
            && !METADATA.contains(&address)
            && !is_blocked
            && (self.allow_loopback || !is_own)
    }
}

/// Whether a range holds an address.
fn covers(range: IpAddr, bits: u8, address: IpAddr) -> bool {
    match (range, address) {
        (IpAddr::V4(range), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            range.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(range), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            range.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reached_that_only_we_can_reach() {
        let policy =
            AddressPolicy { allow_loopback: false, blocked: vec![(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0)), 16)] };
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

    #[test]
    fn ranges_are_read_in_full_or_not_at_all() {
        assert_eq!(AddressPolicy::parse_ranges("10.0.0.0/8, fd00::/8").map(|ranges| ranges.len()), Some(2));
        assert_eq!(AddressPolicy::parse_ranges(""), Some(Vec::new()));
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/8,x"] {
            assert_eq!(AddressPolicy::parse_ranges(bad), None, "{bad}");
        }
    }
}
