//! Address ranges as users write them and Envoy matches them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use navarch_proto::envoy::config::core::v3::CidrRange;

/// An address with the length of its network part. The address keeps the bits beyond that length, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// How many bits of it count.
    pub bits: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/8`, or an address, which stands for itself alone.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Some((address, bits)) = text.split_once('/') else {
            let address: IpAddr = text.parse().ok()?;
            return Some(Self { address, bits: length_of(address) });
        };
        let address: IpAddr = address.parse().ok()?;
        let is_plain = !bits.starts_with('+') && (bits == "0" || !bits.starts_with('0'));
        let bits: u8 = bits.parse().ok().filter(|bits| is_plain && *bits <= length_of(address))?;
        Some(Self { address, bits })
    }

    /// The same range with the bits that do not count cleared: equal ranges are equal then.
    #[must_use]
    pub fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }

    /// Envoy's message.
    #[must_use]
    pub fn to_proto(self) -> CidrRange {
        CidrRange { address_prefix: self.address.to_string(), prefix_len: Some(u32::from(self.bits)) }
    }
}

/// How many bits an address has.
fn length_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lone_addresses_are_read() {
        assert_eq!(Cidr::parse("10.1.2.3/8").unwrap().to_proto().address_prefix, "10.1.2.3");
        assert_eq!(Cidr::parse("10.1.2.3").unwrap().bits, 32);
        assert_eq!(Cidr::parse("2001:db8::1").unwrap().bits, 128);
        for text in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "10.0.0.0/+8", "host", "*"] {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }

    #[test]
    fn masking_makes_equal_ranges_equal() {
        let masked = |text| Cidr::parse(text).unwrap().masked();
        assert_eq!(masked("1.2.3.4/8"), masked("1.5.6.7/8"));
        assert_eq!(masked("1.2.3.4/0").address.to_string(), "0.0.0.0");
        assert_eq!(masked("2001:db8::1/32").address.to_string(), "2001:db8::");
        assert_eq!(masked("1.2.3.4/32").address.to_string(), "1.2.3.4");
    }
}
