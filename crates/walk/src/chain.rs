//! Selection of the filter chain of a listener for a connection.

use std::net::IpAddr;

use navarch_proto::envoy::config::core::v3::CidrRange;
use navarch_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

use super::{Connection, matcher};

/// How specifically a chain matches one criterion of a connection; `None` if it does not match.
type Fit = Option<u32>;

/// The chain for a connection: criterion by criterion, only the most specific chains are kept;
/// dropped ones are not reconsidered. Falls back to the default chain.
pub(super) fn find<'a>(listener: &'a Listener, connection: &Connection) -> Option<&'a FilterChain> {
    if let Some(tree) = &listener.filter_chain_matcher {
        return matcher::find(listener, tree, connection);
    }

    let nothing = FilterChainMatch::default();
    let mut left: Vec<&FilterChain> = listener.filter_chains.iter().collect();
    let fits: [fn(&FilterChainMatch, &Connection) -> Fit; 6] = [
        port_fit,
        address_fit,
        name_fit,
        transport_fit,
        protocol_fit,
        source_fit,
    ];

    for fit in fits {
        let of = |chain: &FilterChain| {
            fit(
                chain.filter_chain_match.as_ref().unwrap_or(&nothing),
                connection,
            )
        };
        let best = left.iter().filter_map(|chain| of(chain)).max();
        left.retain(|chain| best.is_some() && of(chain) == best);
    }

    left.first()
        .copied()
        .or(listener.default_filter_chain.as_ref())
}

/// The destination's port.
fn port_fit(wanted: &FilterChainMatch, connection: &Connection) -> Fit {
    match wanted.destination_port {
        None => Some(0),
        Some(port) => (port == u32::from(connection.destination.port())).then_some(1),
    }
}

/// The destination's address: the narrower range fits better.
fn address_fit(wanted: &FilterChainMatch, connection: &Connection) -> Fit {
    ranges_fit(&wanted.prefix_ranges, connection.destination.ip())
}

/// The client's address.
fn source_fit(wanted: &FilterChainMatch, connection: &Connection) -> Fit {
    match connection.source {
        None => wanted.source_prefix_ranges.is_empty().then_some(0),
        Some(source) => ranges_fit(&wanted.source_prefix_ranges, source),
    }
}

/// The longest prefix of the ranges that contain an address; an empty list contains all.
fn ranges_fit(ranges: &[CidrRange], ip: IpAddr) -> Fit {
    if ranges.is_empty() {
        return Some(0);
    }
    ranges
        .iter()
        .filter(|range| contains(range, ip))
        .map(|range| 1 + range.prefix_len.unwrap_or_default())
        .max()
}

/// Whether a range holds an address.
pub(super) fn contains(range: &CidrRange, ip: IpAddr) -> bool {
    range_fit(
        &range.address_prefix,
        range.prefix_len.unwrap_or_default(),
        ip,
    )
    .is_some()
}

/// The prefix length of a range that contains an address.
pub(super) fn range_fit(start: &str, length: u32, ip: IpAddr) -> Fit {
    let same = |a: u128, b: u128, bits: u32| {
        length == 0 || (length <= bits && (a ^ b) >> (bits - length) == 0)
    };
    let contains = match (start.parse::<IpAddr>(), ip) {
        (Ok(IpAddr::V4(start)), IpAddr::V4(ip)) => {
            same(u128::from(start.to_bits()), u128::from(ip.to_bits()), 32)
        }
        (Ok(IpAddr::V6(start)), IpAddr::V6(ip)) => same(start.to_bits(), ip.to_bits(), 128),
        (Ok(IpAddr::V4(_) | IpAddr::V6(_)) | Err(_), _) => false,
    };
    contains.then_some(length)
}

/// The SNI: an exact match is the most specific, then the longest wildcard.
fn name_fit(wanted: &FilterChainMatch, connection: &Connection) -> Fit {
    if wanted.server_names.is_empty() {
        return Some(0);
    }
    let sni = connection
        .tls
        .as_ref()
        .map(|tls| tls.sni.to_ascii_lowercase())?;
    let fits = wanted
        .server_names
        .iter()
        .filter_map(|name| match name.strip_prefix('*') {
            None => (*name == sni).then_some(u32::MAX),
            Some(suffix) => sni
                .ends_with(suffix)
                .then(|| u32::try_from(suffix.len()).unwrap_or(u32::MAX - 1)),
        });
    fits.max()
}

/// The transport protocol: TLS or not.
fn transport_fit(wanted: &FilterChainMatch, connection: &Connection) -> Fit {
    let shown = if connection.tls.is_some() {
        "tls"
    } else {
        "raw_buffer"
    };
    match wanted.transport_protocol.as_str() {
        "" => Some(0),
        wanted => (wanted == shown).then_some(1),
    }
}

/// The application protocol: from ALPN, where the one that the client prefers fits better, or of
/// plain HTTP.
fn protocol_fit(wanted: &FilterChainMatch, connection: &Connection) -> Fit {
    if wanted.application_protocols.is_empty() {
        return Some(0);
    }
    let plain = ["http/1.1".to_owned()];
    let shown: &[String] = match (&connection.tls, &connection.http) {
        (Some(tls), _) => &tls.alpn,
        (None, Some(_)) => &plain,
        (None, None) => &[],
    };
    let preferred = shown
        .iter()
        .position(|protocol| wanted.application_protocols.contains(protocol))?;
    Some(u32::try_from(shown.len() - preferred).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Tls};

    #[test]
    fn the_protocol_that_the_client_prefers_selects_the_chain() {
        let chain = |name: &str, protocols: &[&str]| FilterChain {
            name: name.to_owned(),
            filter_chain_match: Some(FilterChainMatch {
                application_protocols: protocols
                    .iter()
                    .map(|&protocol| protocol.to_owned())
                    .collect(),
                ..FilterChainMatch::default()
            }),
            ..FilterChain::default()
        };
        let listener = Listener {
            filter_chains: vec![
                chain("any", &[]),
                chain("tcp", &["istio-peer-exchange", "istio"]),
                chain("http", &["istio-http/1.1"]),
            ],
            ..Listener::default()
        };

        for (alpn, expected) in [
            (vec!["istio-http/1.1", "istio"], "http"),
            (vec!["istio", "istio-http/1.1"], "tcp"),
            (vec!["h2"], "any"),
            (vec![], "any"),
        ] {
            let connection = Connection {
                entry: Entry::Inbound,
                destination: "10.0.0.1:80".parse().unwrap(),
                source: None,
                tls: Some(Tls {
                    sni: String::new(),
                    alpn: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
                }),
                http: None,
            };
            let found = find(&listener, &connection).unwrap();
            assert_eq!(found.name, expected, "{alpn:?}");
        }
    }

    /// The chain of two that takes TLS for a name.
    fn chosen(first: &str, second: &str, sni: &str) -> Option<String> {
        let chain = |name: &str| FilterChain {
            name: name.to_owned(),
            filter_chain_match: Some(FilterChainMatch {
                server_names: vec![name.to_owned()],
                ..FilterChainMatch::default()
            }),
            ..FilterChain::default()
        };

        let listener = Listener {
            filter_chains: vec![chain(first), chain(second)],
            ..Listener::default()
        };
        let connection = Connection {
            entry: Entry::Direct,
            destination: "10.0.0.1:443".parse().unwrap(),
            source: None,
            tls: Some(Tls {
                sni: sni.to_owned(),
                alpn: Vec::new(),
            }),
            http: None,
        };

        find(&listener, &connection).map(|chain| chain.name.clone())
    }

    #[test]
    fn the_most_specific_server_name_is_selected() {
        assert_eq!(
            chosen("*.example", "*.a.example", "x.a.example").as_deref(),
            Some("*.a.example")
        );
        assert_eq!(
            chosen("*.example", "a.example", "a.example").as_deref(),
            Some("a.example")
        );
        assert_eq!(chosen("*.example", "a.example", "other"), None);
    }

    #[test]
    fn cidr_ranges_contain_addresses_with_their_prefix() {
        let range = |start: &str, length| CidrRange {
            address_prefix: start.to_owned(),
            prefix_len: Some(length),
        };
        assert!(contains(
            &range("10.1.0.0", 16),
            "10.1.2.3".parse().unwrap()
        ));
        assert!(!contains(
            &range("10.1.0.0", 16),
            "10.2.2.3".parse().unwrap()
        ));
        assert!(contains(&range("fd00::", 8), "fd00::1".parse().unwrap()));
        assert!(contains(&range("0.0.0.0", 0), "1.2.3.4".parse().unwrap()));
    }
}
