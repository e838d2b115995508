//! Address ranges in the syntax of istio-iptables: `*`, or a list of CIDRs of both families.

use std::net::IpAddr;
use std::str::FromStr;

use super::families::IpFamily;

/// The ranges of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Whether the ranges cover all addresses.
    pub(super) all: bool,
    /// The ranges as written; empty for `*`.
    ranges: Vec<Range>,
}

/// One range. Host bits are kept as written, because the kernel's tools mask them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) address: IpAddr,
    /// The prefix length.
    pub(super) length: u8,
}

impl Ranges {
    /// Parses `*` or a comma-separated list; `None` if a part is not a CIDR.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self {
                all: true,
                ranges: Vec::new(),
            });
        }
        let ranges = list(text)
            .map(|part| part.parse().ok())
            .collect::<Option<Vec<_>>>()?;
        Some(Self { all: false, ranges })
    }

    pub(super) fn of(&self, family: IpFamily) -> impl Iterator<Item = Range> {
        self.ranges
            .iter()
            .copied()
            .filter(move |range| family.has(range.address))
    }

    /// Whether one of the ranges has a loopback address, in either family.
    pub(super) fn name_loopback(&self) -> bool {
        self.ranges.iter().any(|range| range.address.is_loopback())
    }
}

impl FromStr for Range {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = text.split_once('/').ok_or(())?;
        let address: IpAddr = address.parse().map_err(|_| ())?;
        // Like Go, rejects signs and leading zeros.
        let plain = length.bytes().all(|digit| digit.is_ascii_digit())
            && (length == "0" || !length.starts_with('0'));
        let length: u8 = length.parse().ok().filter(|_| plain).ok_or(())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if length > longest {
            Err(())
        } else {
            Ok(Self { address, length })
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// The parts of a comma-separated list, without empty ones.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidrs_are_split_by_family_and_keep_their_spelling() {
        let ranges = Ranges::parse("10.1.2.3/8,,2001:db8::/32,127.0.0.1/32").unwrap();
        assert_eq!(
            ranges
                .of(IpFamily::V4)
                .map(|range| range.to_string())
                .collect::<Vec<_>>(),
            ["10.1.2.3/8", "127.0.0.1/32"]
        );

        assert_eq!(
            ranges
                .of(IpFamily::V6)
                .map(|range| range.to_string())
                .collect::<Vec<_>>(),
            ["2001:db8::/32"]
        );

        assert!(ranges.name_loopback());
        assert!(Ranges::parse("*").unwrap().all);
        assert_eq!(Ranges::parse(""), Some(Ranges::default()));
    }

    #[test]
    fn values_that_are_not_cidrs_are_rejected() {
        for text in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "x/8",
            "10.0.0.0/8, 11.0.0.0/8",
        ] {
            assert_eq!(Ranges::parse(text), None, "{text}");
        }
    }
}
