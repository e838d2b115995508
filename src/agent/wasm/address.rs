//! Addresses that are never asked for a module.

use std::net::{IpAddr, Ipv6Addr};

use crate::api::cidr::Cidr;

/// Where Alibaba's machines are told their credentials.
const ALIBABA: [u8; 4] = [100, 100, 100, 200];
/// The first parts of where Amazon's are, over IPv6.
const AMAZON: [u16; 2] = [0xfd00, 0x0ec2];
/// The name under which Google's are.
const GOOGLE: &str = "metadata.google.internal";

/// Why an address is not asked.
pub(super) fn blocked(ip: IpAddr, further: &[Cidr]) -> Option<&'static str> {
    let ip = ip.to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let metadata = match ip {
        IpAddr::V4(ip) => ip.octets() == ALIBABA,
        IpAddr::V6(ip) => ip.segments().starts_with(&AMAZON),
    };
    match (link_local, metadata) {
        (true, _) => Some("it is link-local, where machines are told their credentials"),
        (_, true) => Some("machines are told their credentials there"),
        _ if further.iter().any(|range| range.contains(ip)) => Some("its range is blocked"),
        _ => None,
    }
}

/// Whether the host of a registry's token service is none that a registry may point to: it is not this machine or network,
/// unless the registry is there itself.
pub(super) fn is_private(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = host.parse::<IpAddr>() {
        return match ip.to_canonical() {
            IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
            IpAddr::V6(ip) => {
                ip.is_unique_local()
                    || ip.is_unicast_link_local()
                    || matches!(ip, Ipv6Addr::LOCALHOST | Ipv6Addr::UNSPECIFIED)
            }
        };
    }
    host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(GOOGLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_never_asked_and_private_networks_are() {
        let range = Cidr::parse("10.1.0.0/16").unwrap();
        for (ip, bad) in [
            ("169.254.169.254", true),
            ("::ffff:169.254.169.254", true),
            ("fe80::1", true),
            ("100.100.100.200", true),
            ("fd00:ec2::254", true),
            ("10.1.2.3", true),
            ("10.2.2.3", false),
            ("127.0.0.1", false),
            ("93.184.216.34", false),
        ] {
            assert_eq!(blocked(ip.parse().unwrap(), &[range]).is_some(), bad, "{ip}");
        }
        for (host, private) in [("[::1]", true), ("localhost", true), ("192.168.1.1", true), ("auth.example", false)] {
            assert_eq!(is_private(host), private, "{host}");
        }
    }
}
