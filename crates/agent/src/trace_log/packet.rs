//! Describes the start of a packet as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Protocol, source and destination, as far as they are in the packet.
#[must_use]
pub fn describe(packet: &[u8]) -> String {
    let read = match packet.first().map(|first| first >> 4) {
        Some(4) => v4(packet),
        Some(6) => v6(packet),
        Some(_) | None => None,
    };
    let Some((protocol, source, destination, rest)) = read else {
        return format!("{} bytes that are not an IP packet", packet.len());
    };

    let ports = || Some((port(rest, 0)?, port(rest, 2)?)).filter(|_| matches!(protocol, 6 | 17));
    let name = match protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        other => format!("protocol {other}"),
    };

    match ports() {
        Some((from, to)) => {
            format!(
                "{name} {} -> {}",
                SocketAddr::new(source, from),
                SocketAddr::new(destination, to)
            )
        }
        None => format!("{name} {source} -> {destination}"),
    }
}

/// Protocol, source, destination, and the bytes after the header.
type Header<'a> = (u8, IpAddr, IpAddr, &'a [u8]);

/// Parses an IPv4 header.
fn v4(packet: &[u8]) -> Option<Header<'_>> {
    let length = usize::from(packet.first()? & 0xf) * 4;
    let address = |from: usize| {
        packet
            .get(from..)?
            .first_chunk::<4>()
            .map(|bytes| Ipv4Addr::from(*bytes).into())
    };
    Some((
        *packet.get(9)?,
        address(12)?,
        address(16)?,
        packet.get(length.max(20)..).unwrap_or_default(),
    ))
}

/// Parses an IPv6 header; extension headers are not parsed.
fn v6(packet: &[u8]) -> Option<Header<'_>> {
    let address = |from: usize| {
        packet
            .get(from..)?
            .first_chunk::<16>()
            .map(|bytes| Ipv6Addr::from(*bytes).into())
    };
    Some((
        *packet.get(6)?,
        address(8)?,
        address(24)?,
        packet.get(40..).unwrap_or_default(),
    ))
}

/// A port at an offset.
fn port(bytes: &[u8], place: usize) -> Option<u16> {
    bytes
        .get(place..)?
        .first_chunk()
        .map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_and_ipv6_packets_are_described_with_ports() {
        let mut packet = vec![0; 24];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        packet[20..24].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        assert_eq!(describe(&packet), "tcp 10.0.0.1:40000 -> 10.0.0.2:80");
        assert_eq!(describe(&packet[..20]), "tcp 10.0.0.1 -> 10.0.0.2");

        packet[9] = 1;
        assert_eq!(describe(&packet), "icmp 10.0.0.1 -> 10.0.0.2");
        let mut packet = vec![0; 44];
        packet[0] = 0x60;
        packet[6] = 17;
        packet[23] = 1;
        packet[39] = 2;
        packet[40..44].copy_from_slice(&[0, 53, 0, 54]);

        assert_eq!(describe(&packet), "udp [::1]:53 -> [::2]:54");

        for length in 0..20 {
            assert!(
                describe(&packet[..length]).contains("not an IP packet"),
                "{length}"
            );
        }
    }
}
