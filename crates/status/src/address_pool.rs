//! Allocation of unique addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use navarch_base::cidr::Cidr;

/// An address range such as `240.240.0.0/16`. Its address is the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(Cidr);

/// Allocates the addresses of a range in order; a released address is not reused at once.
#[derive(Clone, Debug)]
pub(super) struct AddressPool {
    range: Range,
    /// Offset of the next search.
    next: u128,
}

impl Range {
    /// Istio's range of IPv4 addresses: reserved and not routed.
    pub const IPV4: Self = Self(Cidr {
        address: IpAddr::V4(Ipv4Addr::new(240, 240, 0, 0)),
        bits: 16,
    });
    /// Istio's range of IPv6 addresses: for benchmarks and not routed.
    pub const IPV6: Self = Self(Cidr {
        address: IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0)),
        bits: 48,
    });

    /// Parses `address/prefix`; the host bits are cleared.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Cidr::parse(text).map(|range| Self(range.masked()))
    }

    /// Whether an address is in the range.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    fn first(self) -> IpAddr {
        self.0.address
    }

    /// The number of addresses; `u128::MAX` for the whole of IPv6.
    fn size(self) -> u128 {
        1_u128
            .checked_shl(width(self.first()) - u32::from(self.0.bits))
            .unwrap_or(u128::MAX)
    }
}

impl AddressPool {
    /// All addresses of a range except the first.
    pub(super) fn new(range: Range) -> Self {
        Self { range, next: 1 }
    }

    /// The next free address; `None` if all are taken.
    pub(super) fn take(&mut self, is_taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let size = self.range.size();
        let first = number(self.range.first());
        let from_next = (self.next.max(1)..size).chain(1..self.next.min(size));
        let free = |distance: &u128| !is_taken(of_number(first + distance, self.range.first()));
        let found = from_next.into_iter().find(free)?;
        self.next = found + 1;
        Some(of_number(first + found, self.range.first()))
    }
}

/// The number of bits of an address.
fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Converts a number to an address of the family of `like`.
fn of_number(number: u128, like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        // Numbers of IPv4 addresses come from IPv4 ranges.
        Ipv4Addr::from(u32::try_from(number).unwrap_or_default()).into()
    } else {
        Ipv6Addr::from(number).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_are_allocated_in_order_until_the_range_is_exhausted() {
        let range = Range::parse("10.0.0.9/29").unwrap();
        let mut pool = AddressPool::new(range);
        let mut taken = BTreeSet::from(["10.0.0.10".parse::<IpAddr>().unwrap()]);
        let mut given = Vec::new();

        while let Some(address) = pool.take(|address| taken.contains(&address)) {
            assert!(range.contains(address));
            taken.insert(address);
            given.push(address.to_string());
        }

        assert_eq!(
            given,
            [
                "10.0.0.9",
                "10.0.0.11",
                "10.0.0.12",
                "10.0.0.13",
                "10.0.0.14",
                "10.0.0.15"
            ]
        );

        let back = "10.0.0.12".parse().unwrap();
        taken.remove(&back);
        assert_eq!(pool.take(|address| taken.contains(&address)), Some(back));
    }

    #[test]
    fn the_usual_ranges_start_where_istios_do() {
        let first = |range| AddressPool::new(range).take(|_| false).unwrap().to_string();
        assert_eq!(
            (first(Range::IPV4), first(Range::IPV6)),
            ("240.240.0.1".to_owned(), "2001:2::1".to_owned())
        );
        assert_eq!(Range::parse("240.240.0.0/16"), Some(Range::IPV4));
        assert!(!Range::IPV4.contains("240.241.0.0".parse().unwrap()));
        assert!(!Range::IPV6.contains("240.240.0.1".parse().unwrap()));
        assert_eq!(Range::parse("1.2.3.4/33"), None);
    }
}
