//! Ranges of IP addresses as users write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses with a common prefix. The address keeps its host bits, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// The address as written.
    pub address: IpAddr,
    /// The prefix length.
    pub bits: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/8`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let is_plain = !bits.starts_with('+') && (bits == "0" || !bits.starts_with('0'));
        let bits: u8 = bits
            .parse()
            .ok()
            .filter(|bits| is_plain && *bits <= width(address))?;
        Some(Self { address, bits })
    }

    /// The range of one address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        Self {
            address,
            bits: width(address),
        }
    }

    /// Reads `10.0.0.0/8`, or an address, which is a range of one.
    #[must_use]
    pub fn parse_range_or_address(text: &str) -> Option<Self> {
        match text.parse::<IpAddr>() {
            Ok(address) => Some(Self::single(address)),
            Err(_) => Self::parse(text),
        }
    }

    /// Reads a list with commas such as `10.0.0.0/8, fd00::/8`.
    ///
    /// # Errors
    /// The first part that is not a range.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, &str> {
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        parts.map(|part| Self::parse(part).ok_or(part)).collect()
    }

    /// Whether the range holds one address only.
    #[must_use]
    pub fn is_single(self) -> bool {
        self.bits == width(self.address)
    }

    /// Whether an address is in the range.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let differ = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()),
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        differ
            .checked_shr(u32::from(width(address) - self.bits))
            .unwrap_or(0)
            == 0
    }

    /// The same range with cleared host bits, so that equal ranges compare equal.
    #[must_use]
    pub fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.bits))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }
}

/// The number of bits of an address of this family.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lone_addresses_are_read() {
        let read = |text| Cidr::parse_range_or_address(text);
        assert_eq!(read("10.1.2.3/8").unwrap().address.to_string(), "10.1.2.3");
        assert_eq!(read("10.1.2.3").unwrap().bits, 32);
        assert_eq!(read("2001:db8::1").unwrap().bits, 128);
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "host",
            "*",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_cidrs_are_rejected() {
        for text in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "x/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
        ] {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }

    #[test]
    fn lists_are_read_in_full_or_not_at_all() {
        assert_eq!(
            Cidr::parse_list("10.0.0.0/8, fd00::/8").map(|ranges| ranges.len()),
            Ok(2)
        );
        assert_eq!(Cidr::parse_list(""), Ok(Vec::new()));
        for (text, bad) in [
            ("10.0.0.0", "10.0.0.0"),
            ("10.0.0.0/33", "10.0.0.0/33"),
            ("x/8", "x/8"),
            ("10.0.0.0/8,x", "x"),
        ] {
            assert_eq!(Cidr::parse_list(text), Err(bad));
        }
    }

    #[test]
    fn a_cidr_contains_addresses_with_its_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let range = Cidr::parse("10.1.0.0/16").unwrap();
        assert!(range.contains(ip("10.1.255.1")));
        assert!(!range.contains(ip("10.2.0.1")));
        assert!(!range.contains(ip("2001:db8::1")));
        assert!(Cidr::parse("0.0.0.0/0").unwrap().contains(ip("255.0.0.1")));
        assert!(Cidr::parse("::/0").unwrap().contains(ip("ffff::1")));
        assert!(Cidr::parse("2001:db8::7/128").unwrap().is_single());
    }

    #[test]
    fn masking_makes_equal_ranges_equal() {
        let masked = |text| Cidr::parse_range_or_address(text).unwrap().masked();
        assert_eq!(masked("1.2.3.4/8"), masked("1.5.6.7/8"));
        assert_eq!(masked("1.2.3.4/0").address.to_string(), "0.0.0.0");
        assert_eq!(masked("2001:db8::1/32").address.to_string(), "2001:db8::");
        assert_eq!(masked("1.2.3.4/32").address.to_string(), "1.2.3.4");
    }
}
