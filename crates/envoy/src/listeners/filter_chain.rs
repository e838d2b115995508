//! Filter chains before conversion to Envoy messages: their match criteria, and conflicts between
//! chains.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use navarch_proto::envoy::config::core::v3::Metadata;
use navarch_proto::envoy::config::listener::v3::{Filter, FilterChainMatch};

use crate::cidr;
use navarch_base::cidr::Cidr;

/// The transport protocol of plain text.
pub(crate) const RAW_BUFFER: &str = "raw_buffer";
/// The transport protocol of TLS.
pub(crate) const TLS: &str = "tls";

/// A filter chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chain {
    /// SNI names, one of which must match; `*` matches any, including none.
    pub(crate) sni: Vec<String>,
    /// Ranges, one of which must contain the destination.
    pub(crate) cidrs: Vec<String>,
    /// Application protocols, one of which must match.
    pub(crate) application_protocols: Vec<String>,
    /// The transport protocol; empty means any.
    pub(crate) transport_protocol: &'static str,
    /// Metadata with its source object.
    pub(crate) metadata: Option<Metadata>,
    /// The filters, the last of which is terminal.
    pub(crate) filters: Vec<Filter>,
}

impl Chain {
    /// Whether it matches every connection.
    pub(crate) fn matches_all(&self) -> bool {
        self.any_sni()
            && self.application_protocols.is_empty()
            && self.transport_protocol.is_empty()
            && self.cidrs.is_empty()
    }

    /// Its match: Envoy rejects a listener with two chains with equal matches.
    fn key(&self) -> ChainKey {
        let names = self.sni_set().into_iter().map(str::to_owned).collect();
        (
            self.transport_protocol,
            self.application_protocols.clone(),
            names,
            self.range_set(),
        )
    }

    /// The Envoy match; `None` if it matches every connection.
    pub(crate) fn to_match(&self) -> Option<FilterChainMatch> {
        if self.matches_all() {
            return None;
        }

        let mut server_names = if self.any_sni() {
            Vec::new()
        } else {
            self.sni.clone()
        };

        server_names.sort_unstable();
        let mut cidrs: Vec<&String> = self.cidrs.iter().collect();
        cidrs.sort_unstable();
        let ranges = cidrs.into_iter().filter_map(|text| range_of(text));

        Some(FilterChainMatch {
            server_names,
            prefix_ranges: ranges.map(cidr::to_proto).collect(),
            application_protocols: self.application_protocols.clone(),
            transport_protocol: self.transport_protocol.to_owned(),
            ..FilterChainMatch::default()
        })
    }

    /// Whether SNI is not matched.
    fn any_sni(&self) -> bool {
        self.sni.is_empty() || self.sni.iter().any(|name| name == "*")
    }

    /// Its SNI names.
    fn sni_set(&self) -> BTreeSet<&str> {
        self.sni
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "*")
            .collect()
    }

    /// Its address ranges.
    fn range_set(&self) -> BTreeSet<Cidr> {
        self.cidrs
            .iter()
            .filter_map(|text| range_of(text))
            .map(Cidr::masked)
            .collect()
    }
}

/// The range of a text; `None` for one that starts at `0.0.0.0`, which means no address at all.
fn range_of(text: &str) -> Option<Cidr> {
    Cidr::parse_range_or_address(text)
        .filter(|range| range.address != IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// The match of a chain: transport protocol, application protocols, SNI names, ranges.
type ChainKey = (&'static str, Vec<String>, BTreeSet<String>, BTreeSet<Cidr>);

/// Chains with distinct matches, except the initial ones.
#[derive(Debug)]
pub(crate) struct Merged {
    chains: Vec<Chain>,
    keys: BTreeSet<ChainKey>,
}

impl Merged {
    pub(crate) fn new(chains: Vec<Chain>) -> Self {
        Self {
            keys: chains.iter().map(Chain::key).collect(),
            chains,
        }
    }

    /// Appends the chains that do not conflict with an earlier one: the first service of a range
    /// keeps it. Returns whether any conflicts.
    pub(crate) fn add(&mut self, incoming: Vec<Chain>) -> bool {
        let mut conflicts = false;
        for chain in incoming {
            match self.keys.insert(chain.key()) {
                true => self.chains.push(chain),
                false => conflicts = true,
            }
        }
        conflicts
    }

    pub(crate) fn into_chains(self) -> Vec<Chain> {
        self.chains
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sni: &[&str], cidrs: &[&str]) -> Chain {
        Chain {
            sni: sni.iter().map(|name| (*name).to_owned()).collect(),
            cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
            ..Chain::default()
        }
    }

    #[test]
    fn a_star_among_names_matches_any_name() {
        assert!(of(&["*", "shop.example"], &[]).matches_all());
        assert!(!of(&["*"], &["10.0.0.0/8"]).matches_all());
        assert_eq!(
            of(&["*", "b"], &["10.0.0.0/8"])
                .to_match()
                .unwrap()
                .server_names,
            Vec::<String>::new()
        );
        assert_eq!(
            of(&["b", "a"], &[]).to_match().unwrap().server_names,
            ["a", "b"]
        );
    }

    #[test]
    fn equal_ranges_written_differently_conflict() {
        assert_eq!(of(&[], &["1.2.3.4/8"]).key(), of(&[], &["1.5.6.7/8"]).key());
        assert_eq!(of(&["a", "b"], &[]).key(), of(&["b", "a", "*"], &[]).key());
        assert_ne!(of(&["a"], &[]).key(), of(&["a"], &["10.0.0.0/8"]).key());
    }

    #[test]
    fn the_first_of_conflicting_chains_stays() {
        let mut chains = Merged::new(vec![of(&["a"], &[])]);
        assert!(chains.add(vec![
            of(&["a"], &["0.0.0.0/0"]),
            of(&["b"], &[]),
            of(&["b"], &[])
        ]));
        assert!(!chains.add(vec![of(&["c"], &[])]));
        assert_eq!(
            chains.into_chains(),
            [of(&["a"], &[]), of(&["b"], &[]), of(&["c"], &[])]
        );
    }
}
