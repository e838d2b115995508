//! Filter chains that match the same connections: Envoy rejects a listener with two of them.
//!
//! Server names are compared case-insensitively, as in Envoy. The first chain keeps the common
//! criteria.

use std::collections::HashSet;

use navarch_proto::envoy::config::core::v3::CidrRange;
use navarch_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener, filter};
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use navarch_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use prost::Message;
use prost_types::value::Kind;

use navarch_base::cidr::Cidr;
use navarch_push::view::View;

/// A criterion that only one chain may match.
type Key = (String, String, Vec<u8>);

/// Removes from each chain the criteria of earlier chains, and chains without remaining criteria,
/// with a remark.
pub(super) fn part(view: &View<'_>, listener: &mut Listener) {
    let mut taken: HashSet<Key> = HashSet::new();
    let name = listener.name.clone();
    listener.filter_chains.retain_mut(|chain| {
        let mut lost = Vec::new();
        let stays = claim(chain, &mut taken, &mut lost);
        if !lost.is_empty() {
            let owner = object(chain).map(|path| format!(" of {path}"));
            let owner = owner.or_else(|| Some(format!(" to {}", cluster(chain)?))).unwrap_or_default();
            let what = if stays { format!("no longer matches {}", lost.join(", ")) } else { "is ignored".to_owned() };
            view.remark(format!(
                "listener {name}: a filter chain{owner} {what}: an earlier filter chain has the same match"
            ));
        }
        stays
    });
}

/// Reserves the unreserved criteria for a chain; the others are added to `lost`. Returns whether
/// any are left.
fn claim(chain: &mut FilterChain, taken: &mut HashSet<Key>, lost: &mut Vec<String>) -> bool {
    let Some(matched) = &mut chain.filter_chain_match else {
        return true;
    };

    let rest = without_lists(matched);
    let protocols = if matched.application_protocols.is_empty() {
        vec![String::new()]
    } else {
        matched.application_protocols.clone()
    };

    let mut take = |name: &str, ranges: &[String]| {
        let keys = ranges.iter().flat_map(|range| {
            let text = format!("{}|{range}", name.to_ascii_lowercase());
            protocols
                .iter()
                .map(move |protocol| (text.clone(), protocol.clone()))
        });

        let keys: Vec<Key> = keys
            .map(|(text, protocol)| (text, protocol, rest.clone()))
            .collect();
        let is_free = keys.iter().all(|key| !taken.contains(key));
        if is_free {
            taken.extend(keys);
        }

        is_free
    };

    let mut keep = |is_free: bool, what: String| {
        if !is_free {
            lost.push(what);
        }
        is_free
    };

    if matched.server_names.is_empty() && matched.prefix_ranges.is_empty() {
        return keep(take("", &[String::new()]), "the rest".to_owned());
    }

    if matched.server_names.is_empty() {
        matched.prefix_ranges.retain(|range| {
            let text = masked(range);
            keep(take("", std::slice::from_ref(&text)), text)
        });
        return !matched.prefix_ranges.is_empty();
    }

    let mut ranges: Vec<String> = matched.prefix_ranges.iter().map(masked).collect();
    ranges.sort_unstable();
    ranges.dedup();
    if ranges.is_empty() {
        ranges.push(String::new());
    }

    matched
        .server_names
        .retain(|name| keep(take(name, &ranges), name.clone()));
    !matched.server_names.is_empty()
}

/// The encoded match without its lists of names, ranges and protocols.
fn without_lists(matched: &FilterChainMatch) -> Vec<u8> {
    let rest = FilterChainMatch {
        server_names: Vec::new(),
        prefix_ranges: Vec::new(),
        application_protocols: Vec::new(),
        ..matched.clone()
    };
    rest.encode_to_vec()
}

/// The range with masked host bits, as Envoy compares it.
fn masked(range: &CidrRange) -> String {
    let text = format!(
        "{}/{}",
        range.address_prefix,
        range.prefix_len.unwrap_or_default()
    );
    Cidr::parse_range_or_address(&text)
        .map(Cidr::masked)
        .map_or(text, |range| format!("{}/{}", range.address, range.bits))
}

/// The cluster of a TCP chain, if it has exactly one.
fn cluster(chain: &FilterChain) -> Option<String> {
    let Some(filter::ConfigType::TypedConfig(any)) = &chain.filters.last()?.config_type else {
        return None;
    };
    let is_proxy = any.type_url.ends_with(".tcp_proxy.v3.TcpProxy");
    let proxy = is_proxy
        .then(|| TcpProxy::decode(any.value.as_slice()).ok())
        .flatten()?;
    match proxy.cluster_specifier? {
        ClusterSpecifier::Cluster(cluster) => Some(cluster),
        ClusterSpecifier::WeightedClusters(_) => None,
    }
}

/// The source object of a chain, from its metadata.
fn object(chain: &FilterChain) -> Option<String> {
    let fields = chain.metadata.as_ref()?.filter_metadata.get("istio")?;
    match &fields.fields.get("config")?.kind {
        Some(Kind::StringValue(path)) => Some(path.clone()),
        Some(
            Kind::NullValue(_)
            | Kind::NumberValue(_)
            | Kind::BoolValue(_)
            | Kind::StructValue(_)
            | Kind::ListValue(_),
        )
        | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(names: &[&str], ranges: &[(&str, u32)]) -> FilterChain {
        let range = |(address, length): &(&str, u32)| CidrRange {
            address_prefix: (*address).to_owned(),
            prefix_len: Some(*length),
        };
        let matched = FilterChainMatch {
            server_names: names.iter().map(|&name| name.to_owned()).collect(),
            prefix_ranges: ranges.iter().map(range).collect(),
            ..FilterChainMatch::default()
        };
        FilterChain {
            filter_chain_match: Some(matched),
            ..FilterChain::default()
        }
    }

    /// What is left of chains, and what was lost.
    fn parted(chains: &[FilterChain]) -> (Vec<FilterChain>, Vec<String>) {
        let mut taken = HashSet::new();
        let mut lost = Vec::new();
        let mut chains = chains.to_vec();
        chains.retain_mut(|chain| claim(chain, &mut taken, &mut lost));
        (chains, lost)
    }

    #[test]
    fn names_go_to_the_first_without_regard_to_case() {
        let (left, lost) = parted(&[
            chain(&["a", "b"], &[]),
            chain(&["B", "c", "C"], &[]),
            chain(&["A"], &[]),
        ]);
        assert_eq!(left, [chain(&["a", "b"], &[]), chain(&["c"], &[])]);
        assert_eq!(lost, ["B", "C", "A"]);
    }

    #[test]
    fn ranges_are_compared_without_their_hosts() {
        let (left, lost) = parted(&[
            chain(&[], &[("10.0.0.0", 8), ("10.1.0.0", 8)]),
            chain(&[], &[("10.9.9.9", 8)]),
        ]);
        assert_eq!(left, [chain(&[], &[("10.0.0.0", 8)])]);
        assert_eq!(lost.len(), 2);
    }

    #[test]
    fn one_name_under_different_ranges_is_no_conflict() {
        let chains = [
            chain(&["a"], &[("10.0.0.0", 8)]),
            chain(&["a"], &[("11.0.0.0", 8)]),
            chain(&["a"], &[]),
        ];
        assert_eq!(parted(&chains).0, chains);
    }
}
