//! Filter chain matchers: by address and port, then by protocol.

use std::collections::BTreeMap;

use navarch_proto::any::pack;
use navarch_proto::envoy::extensions::matching::common_inputs::network::v3::{
    ApplicationProtocolInput, DestinationIpInput, DestinationPortInput, FilterStateInput,
};
use navarch_proto::xds::core::v3::{CidrRange, TypedExtensionConfig};
use navarch_proto::xds::r#type::matcher::v3::ip_matcher::IpRangeMatcher;
use navarch_proto::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use navarch_proto::xds::r#type::matcher::v3::matcher::{
    MatcherTree, MatcherType, OnMatch, on_match,
};
use navarch_proto::xds::r#type::matcher::v3::{IpMatcher, Matcher};
use prost::{Message, Name};

use crate::filters::tunnel::{AUTHORITY, SOURCE};
use navarch_base::cidr::Cidr;
use navarch_push::view::View;

/// The inspector's results for HTTP.
const HTTP: [&str; 2] = ["'h2c'", "'http/1.1'"];
/// The result for HTTP/1.0, if enabled.
const HTTP_10: &str = "'http/1.0'";

fn typed<M: Message + Name>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(pack(config)),
    }
}

/// Selects the chain of this name.
pub(super) fn chain(name: &str) -> OnMatch {
    let action = typed(name, &name.to_owned());
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(action)),
        ..OnMatch::default()
    }
}

/// Continues with another matcher.
pub(super) fn then(matcher: Matcher) -> OnMatch {
    OnMatch {
        on_match: Some(on_match::OnMatch::Matcher(Box::new(matcher))),
        ..OnMatch::default()
    }
}

/// Separates HTTP from other protocols.
pub(super) fn by_protocol(view: &View<'_>, http: &str, tcp: &str) -> Matcher {
    let also = view.mesh().settings.http10.then_some(HTTP_10);
    let map = HTTP
        .into_iter()
        .chain(also)
        .map(|spoken| (spoken.to_owned(), chain(http)))
        .collect();
    let input = typed("application-protocol", &ApplicationProtocolInput {});
    Matcher {
        on_no_match: Some(Box::new(chain(tcp))),
        ..exact(input, map)
    }
}

pub(super) fn by_port(map: BTreeMap<String, OnMatch>) -> Matcher {
    exact(typed("port", &DestinationPortInput {}), map)
}

/// Matches the requested host and port, or falls back to `otherwise`.
pub(super) fn by_authority(map: BTreeMap<String, OnMatch>, otherwise: Matcher) -> Matcher {
    let input = typed(
        "authority-filter-state",
        &FilterStateInput {
            key: AUTHORITY.to_owned(),
            ..FilterStateInput::default()
        },
    );
    Matcher {
        on_no_match: Some(Box::new(then(otherwise))),
        ..exact(input, map)
    }
}

/// Matches the source of a connection, which determines the policies that were already applied.
pub(super) fn by_source(map: BTreeMap<String, OnMatch>, otherwise: OnMatch) -> Matcher {
    let state = FilterStateInput {
        key: SOURCE.to_owned(),
        ..FilterStateInput::default()
    };
    let input = typed("request-source-filter-state", &state);
    Matcher {
        on_no_match: Some(Box::new(otherwise)),
        ..exact(input, map)
    }
}

/// Matches the address.
pub(super) fn by_address(ranges: Vec<IpRangeMatcher>) -> Matcher {
    let matcher = IpMatcher {
        range_matchers: ranges,
    };
    tree(
        typed("ip", &DestinationIpInput {}),
        TreeType::CustomMatch(typed("ip", &matcher)),
    )
}

/// The match of connections to these addresses.
pub(super) fn to_addresses<'a>(
    addresses: impl Iterator<Item = &'a str>,
    on_match: OnMatch,
) -> IpRangeMatcher {
    IpRangeMatcher {
        ranges: addresses.filter_map(range).collect(),
        on_match: Some(on_match),
        ..IpRangeMatcher::default()
    }
}

/// An address or range of addresses.
fn range(text: &str) -> Option<CidrRange> {
    let Cidr { address, bits } = Cidr::parse_range_or_address(text)?;
    Some(CidrRange {
        address_prefix: address.to_string(),
        prefix_len: Some(u32::from(bits)),
    })
}

/// Matches one exact text.
fn exact(input: TypedExtensionConfig, map: BTreeMap<String, OnMatch>) -> Matcher {
    tree(input, TreeType::ExactMatchMap(MatchMap { map }))
}

fn tree(input: TypedExtensionConfig, kind: TreeType) -> Matcher {
    let tree = MatcherTree {
        input: Some(input),
        tree_type: Some(kind),
    };
    Matcher {
        on_no_match: None,
        matcher_type: Some(MatcherType::MatcherTree(tree)),
    }
}
