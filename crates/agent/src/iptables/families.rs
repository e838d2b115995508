//! The two address families; the kernel has separate tables for each.

use std::net::IpAddr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4, with the program `iptables`.
    V4,
    /// IPv6, with the program `ip6tables`.
    V6,
}

impl IpFamily {
    /// Whether an address belongs to this family.
    #[must_use]
    pub fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// The prefix length of a single address.
    pub(super) fn full_length(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The source address of Envoy's inbound connections to the application.
    pub(super) fn inbound_source(self) -> &'static str {
        match self {
            Self::V4 => "127.0.0.6/32",
            Self::V6 => "::6/128",
        }
    }

    /// The program that changes this family's tables.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }
}
