//! Destination rules against server-side request forgery: the author of a policy or a module's URL
//! chooses the address, but must not gain access to addresses that only this process can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use navarch_base::cidr::Cidr;

/// Addresses of cloud metadata servers with credentials, besides link-local ones.
const METADATA: [Cidr; 5] = [
    single(IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200))),
    single(IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16))),
    single(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192))),
    single(IpAddr::V6(Ipv6Addr::new(
        0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254,
    ))),
    // Amazon's range, for instance metadata and pod identity.
    Cidr {
        address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0)),
        bits: 32,
    },
];
/// The host of Google's metadata server.
const GOOGLE: &str = "metadata.google.internal";

/// A range of one address.
const fn single(address: IpAddr) -> Cidr {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    Cidr { address, bits }
}

/// The addresses that may be connected to. The rules apply to the connected address, as a name may
/// resolve to another address every time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    /// Whether loopback is allowed.
    pub allow_loopback: bool,
    /// Further blocked ranges.
    pub blocked: Vec<Cidr>,
}

impl AddressPolicy {
    /// Why an address may not be connected to; `None` if it may.
    #[must_use]
    pub fn denial(&self, address: IpAddr) -> Option<&'static str> {
        TranslatedAddresses::of(address)
            .iter()
            .find_map(|meaning| self.denial_of(meaning))
    }

    /// Whether an address may be connected to.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        self.denial(address).is_none()
    }

    /// As `denial`, without embedded addresses.
    fn denial_of(&self, address: IpAddr) -> Option<&'static str> {
        let is_own = address.is_loopback() || address.is_unspecified();
        if is_link_local(address) {
            Some("it is a link-local address, which can serve credentials of the machine")
        } else if METADATA.iter().any(|range| range.contains(address)) {
            Some("it can serve credentials of the machine")
        } else if address.is_multicast() {
            Some("it is a multicast address")
        } else if is_own && !self.allow_loopback {
            Some("it is an address of this machine")
        } else if self.blocked.iter().any(|range| range.contains(address)) {
            Some("it is in a blocked range")
        } else {
            None
        }
    }
}

/// Whether a host, by its form, can only be on this machine or its network.
#[must_use]
pub fn is_private(host: &str) -> bool {
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .trim_end_matches('.');
    if let Ok(address) = host.parse::<IpAddr>() {
        return TranslatedAddresses::of(address)
            .iter()
            .any(|meaning| match meaning {
                IpAddr::V4(ip) => {
                    ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()
                }
                IpAddr::V6(ip) => {
                    ip.is_unique_local()
                        || ip.is_unicast_link_local()
                        || ip.is_loopback()
                        || ip.is_unspecified()
                }
            });
    }

    host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(GOOGLE) || is_number(host)
}

/// Whether resolvers parse a host as an IPv4 address in numeric form: `2130706433`, `127.1`,
/// `0x7f.1`.
fn is_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hex {
        Some(hex) => hex.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|digit| digit.is_ascii_digit()),
    }
}

/// Whether an address is link-local.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// An address, and the IPv4 addresses that it reaches if networks translate or tunnel it.
struct TranslatedAddresses {
    own: IpAddr,
    embedded: [Option<Ipv4Addr>; 4],
}

impl TranslatedAddresses {
    fn of(address: IpAddr) -> Self {
        let own = address.to_canonical();
        let embedded = match own {
            IpAddr::V4(_) => [None; 4],
            IpAddr::V6(address) => embedded(address),
        };
        Self { own, embedded }
    }

    fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        std::iter::once(self.own).chain(
            self.embedded
                .iter()
                .flatten()
                .map(|address| IpAddr::V4(*address)),
        )
    }
}

/// The IPv4 addresses that an IPv6 address may embed.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [_, _, a, b, c, d, e, f, _, g, h, i, j, k, l, m] = address.octets();
    let last = Ipv4Addr::new(j, k, l, m);

    match address.segments() {
        // IPv4-compatible (RFC 4291), without :: and ::1, and IPv4-translated (RFC 7915, RFC 2765).
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => [Some(last), None, None, None],
        [0, 0, 0, 0, 0xffff, 0, _, _] => [Some(last), None, None, None],
        // NAT64 with the well-known prefix (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => [Some(last), None, None, None],
        // NAT64 with a network's own prefix (RFC 8215), whose length is unknown. Zeros are the
        // remainder of another length, not an address.
        [0x64, 0xff9b, 1, ..] => {
            let all = [
                last,
                Ipv4Addr::new(e, f, g, h), // 64:ff9b:1::/48
                Ipv4Addr::new(f, g, h, i), // /56
                Ipv4Addr::new(g, h, i, j), // /64
            ];
            all.map(|address| Some(address).filter(|address| !address.is_unspecified()))
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(Ipv4Addr::new(a, b, c, d)), None, None, None],
        _ => [None; 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reached_that_only_this_process_can_reach() {
        let policy = AddressPolicy {
            allow_loopback: false,
            blocked: vec![Cidr::parse("10.96.0.0/16").unwrap()],
        };

        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::10.96.3.4",
            "64:ff9b::127.0.0.1",
            // The same address by prefixes of 48, 56, 64 and 96 bits.
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2002:7f00:1::",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "10.96.3.4",
            "224.0.0.1",
            "ff02::1",
        ] {
            assert!(!policy.allows(bad.parse().unwrap()), "{bad}");
        }

        for good in [
            "10.97.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "fd00::1",
            "fd20:ce::1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:1:808:8:800::",
            "2002:808:808::1",
        ] {
            assert!(policy.allows(good.parse().unwrap()), "{good}");
        }
    }

    #[test]
    fn allowing_this_machine_allows_no_other_address() {
        let policy = AddressPolicy {
            allow_loopback: true,
            ..AddressPolicy::default()
        };
        assert!(
            policy.allows("127.0.0.1".parse().unwrap()) && policy.allows("::1".parse().unwrap())
        );
        assert!(!policy.allows("64:ff9b::169.254.169.254".parse().unwrap()));
    }

    #[test]
    fn hosts_of_this_machine_and_network_are_recognized_in_every_notation() {
        for host in [
            "[::1]",
            "localhost",
            "LOCALHOST.",
            "192.168.1.1",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "2130706433",
            "127.1",
            "0x7f000001",
            "metadata.google.internal",
            "fd00::1",
        ] {
            assert!(is_private(host), "{host}");
        }

        for host in [
            "auth.example",
            "8.8.8.8",
            "0x.example",
            "cafe",
            "[2001:db8::1]",
        ] {
            assert!(!is_private(host), "{host}");
        }
    }
}
