//! Decides which addresses count as one client.

use std::net::{IpAddr, Ipv6Addr};

/// The bits of an IPv6 address that one host can choose freely.
const HOST_BITS: u128 = u64::MAX as u128;

/// The address under which a client is counted.
///
/// A host with a global IPv6 address usually has a whole /64, which has more addresses than any
/// table can store: these count as one. Pods have addresses from a /64 of their node, usually
/// unique local ones (RFC 4193), and cannot choose them: each counts separately, as IPv4 addresses
/// do.
#[must_use]
pub fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !(v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local()) => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !HOST_BITS))
        }
        address @ (IpAddr::V4(_) | IpAddr::V6(_)) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_global_prefix_are_one_client() {
        for (address, counted) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::1", "2001:db8:1:2::"),
            ("fe80::1", "fe80::"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("fd00:10:244::5", "fd00:10:244::5"),
            ("::1", "::1"),
        ] {
            let [address, counted] = [address, counted].map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(client_key(address), counted);
            assert_eq!(client_key(counted), counted);
        }
    }
}
