//! Ranges of IP addresses.

use std::net::IpAddr;

/// A range of addresses: those that share the first bits with one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// An address of the range, as written.
    pub address: IpAddr,
    /// How many leading bits are shared.
    pub bits: u8,
}

impl Cidr {
    /// Reads `address/bits`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let canonical = bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
        let bits: u8 = bits.parse().ok().filter(|_| canonical)?;
        (bits <= width(address)).then_some(Self { address, bits })
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
        differ.checked_shr(u32::from(width(address) - self.bits)).unwrap_or(0) == 0
    }
}

/// How many bits the addresses of a family have.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_shares_its_leading_bits() {
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
    fn what_is_no_range_is_refused() {
        for text in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "x/8", "10.0.0.0/", "10.0.0.0/+8"] {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }
}
