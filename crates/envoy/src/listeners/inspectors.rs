//! The inspectors that an inbound listener needs, and the ports on which they are disabled.
//!
//! An inspector waits for the client's first bytes. On ports where the server sends first, that
//! would never end, so it is disabled if no filter chain matches on its result.

use std::collections::{BTreeMap, BTreeSet};

use navarch_proto::envoy::config::listener::v3::listener_filter_chain_match_predicate::{
    MatchSet, Rule,
};
use navarch_proto::envoy::config::listener::v3::{
    FilterChain, ListenerFilter, ListenerFilterChainMatchPredicate,
};
use navarch_proto::envoy::r#type::v3::Int32Range;

use super::filter_chain::TLS;
use crate::filters::listener::{http_inspector, tls_inspector};
use navarch_push::view::View;

/// The inspection that the chains of one port need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    /// Detection of TLS.
    tls: bool,
    /// Detection of plain HTTP.
    http: bool,
}

/// The HTTP inspector's names of plain HTTP. HTTP/1.0 is left to TCP unless enabled.
pub(super) fn plaintext_http(view: &View<'_>) -> Vec<String> {
    let all = ["http/1.0", "http/1.1", "h2c"];
    let first = usize::from(!view.mesh().settings.http10);
    all.iter()
        .skip(first)
        .map(|&protocol| protocol.to_owned())
        .collect()
}

/// The inspectors that these chains need. The TLS inspector comes first: the other one ignores TLS.
pub(super) fn for_chains(chains: &[FilterChain]) -> Vec<ListenerFilter> {
    // Port 0 means all ports without their own chain.
    let mut ports: BTreeMap<u32, Needs> = BTreeMap::new();
    for matched in chains
        .iter()
        .map(|chain| chain.filter_chain_match.clone().unwrap_or_default())
    {
        let needs = ports
            .entry(matched.destination_port.unwrap_or_default())
            .or_default();
        needs.tls |= matched.transport_protocol == TLS;
        needs.http |= matched
            .application_protocols
            .iter()
            .any(|protocol| protocol == "http/1.1" || protocol == "h2c");
    }

    let mut filters = Vec::new();

    if ports.values().any(|needs| needs.tls) {
        filters.push(ListenerFilter {
            filter_disabled: tls_disabled(&ports),
            ..tls_inspector()
        });
    }

    if ports.values().any(|needs| needs.http) {
        let disabled = on_ports(
            ports
                .iter()
                .filter(|(_, needs)| !needs.http)
                .map(|(port, _)| *port),
        );
        filters.push(ListenerFilter {
            filter_disabled: disabled,
            ..http_inspector()
        });
    }

    filters
}

/// Where the TLS inspector is disabled: on single ports if it is enabled for the others, else
/// everywhere except on single ports.
fn tls_disabled(ports: &BTreeMap<u32, Needs>) -> Option<ListenerFilterChainMatchPredicate> {
    let named = || ports.iter().filter(|(port, _)| **port != 0);
    if ports.get(&0).is_some_and(|rest| rest.tls) {
        return on_ports(
            named()
                .filter(|(_, needs)| !needs.tls)
                .map(|(port, _)| *port),
        );
    }
    let on = on_ports(
        named()
            .filter(|(_, needs)| needs.tls)
            .map(|(port, _)| *port),
    )?;
    Some(ListenerFilterChainMatchPredicate {
        rule: Some(Rule::NotMatch(Box::new(on))),
    })
}

/// Matches connections to these ports; `None` if empty.
pub(crate) fn on_ports(
    ports: impl Iterator<Item = u32>,
) -> Option<ListenerFilterChainMatchPredicate> {
    let ports: BTreeSet<i32> = ports.filter_map(|port| i32::try_from(port).ok()).collect();
    let mut rules: Vec<ListenerFilterChainMatchPredicate> = ports
        .into_iter()
        .map(|port| ListenerFilterChainMatchPredicate {
            rule: Some(Rule::DestinationPortRange(Int32Range {
                start: port,
                end: port.saturating_add(1),
            })),
        })
        .collect();
    if rules.len() < 2 {
        return rules.pop();
    }
    Some(ListenerFilterChainMatchPredicate {
        rule: Some(Rule::OrMatch(MatchSet { rules })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use navarch_proto::envoy::config::listener::v3::FilterChainMatch;

    fn chain(port: u32, transport: &str, application: &str) -> FilterChain {
        FilterChain {
            filter_chain_match: Some(FilterChainMatch {
                destination_port: (port != 0).then_some(port),
                transport_protocol: transport.to_owned(),
                application_protocols: vec![application.to_owned()],
                ..FilterChainMatch::default()
            }),
            ..FilterChain::default()
        }
    }

    #[test]
    fn inspectors_are_off_on_ports_that_need_none() {
        let filters = for_chains(&[
            chain(0, "tls", ""),
            chain(0, "", "h2c"),
            chain(80, "tls", ""),
            chain(90, "", ""),
        ]);
        let disabled: Vec<_> = filters
            .iter()
            .map(|filter| filter.filter_disabled.clone())
            .collect();
        assert_eq!(
            disabled,
            [on_ports([90].into_iter()), on_ports([80, 90].into_iter())]
        );
    }

    #[test]
    fn inspectors_are_on_for_single_ports_when_the_rest_needs_none() {
        let filters = for_chains(&[chain(0, "", ""), chain(80, "tls", "")]);
        let Some(Rule::NotMatch(on)) = filters[0].filter_disabled.clone().unwrap().rule else {
            panic!("a negation")
        };
        assert_eq!(Some(*on), on_ports([80].into_iter()));
    }

    #[test]
    fn nothing_is_inspected_without_need() {
        assert_eq!(for_chains(&[chain(80, "raw_buffer", "")]), []);
    }
}
