//! The two families of addresses, each with its own tables in the kernel.

use std::net::IpAddr;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, kept by `iptables`.
    V4,
    /// IPv6, kept by `ip6tables`.
    V6,
}

impl Family {
    /// Whether an address is of this family.
    #[must_use]
    pub fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// The length of a prefix that holds a single address.
    pub(super) fn full_length(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The source that Envoy's inbound connections to the application have.
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
