//! Selection of a filter chain by a listener's matcher tree: by address, port and protocol, as in
//! waypoints.

use navarch_proto::envoy::config::listener::v3::{FilterChain, Listener};
use navarch_proto::xds::core::v3::TypedExtensionConfig;
use navarch_proto::xds::r#type::matcher::v3::matcher::matcher_tree::TreeType;
use navarch_proto::xds::r#type::matcher::v3::matcher::{
    MatcherTree, MatcherType, OnMatch, on_match,
};
use navarch_proto::xds::r#type::matcher::v3::{IpMatcher, Matcher};
use prost::Message as _;

use super::Connection;
use super::chain::range_fit;

/// The chain that a listener's matcher selects for a connection, else the default one.
pub(super) fn find<'a>(
    listener: &'a Listener,
    tree: &Matcher,
    connection: &Connection,
) -> Option<&'a FilterChain> {
    let named = chain_name(tree, connection);
    let named = named.and_then(|name| {
        listener
            .filter_chains
            .iter()
            .find(|chain| chain.name == name)
    });
    named.or(listener.default_filter_chain.as_ref())
}

fn chain_name(matcher: &Matcher, connection: &Connection) -> Option<String> {
    let found = match matcher.matcher_type.as_ref() {
        Some(MatcherType::MatcherTree(tree)) => in_tree(tree, connection),
        // Navarch does not generate matcher lists.
        Some(MatcherType::MatcherList(_)) | None => None,
    };
    found.or_else(|| on_match(matcher.on_no_match.as_deref()?, connection))
}

/// The result of a match. A nested matcher without a result does not match.
fn on_match(matched: &OnMatch, connection: &Connection) -> Option<String> {
    match matched.on_match.as_ref()? {
        on_match::OnMatch::Matcher(next) => chain_name(next, connection),
        on_match::OnMatch::Action(action) => {
            String::decode(action.typed_config.as_ref()?.value.as_slice())
                .ok()
                .filter(|name| !name.is_empty())
        }
    }
}

/// The result of a matcher tree.
fn in_tree(tree: &MatcherTree, connection: &Connection) -> Option<String> {
    let input = tree.input.as_ref()?;

    match tree.tree_type.as_ref()? {
        TreeType::ExactMatchMap(map) => {
            let texts = texts_of(input, connection);
            texts
                .iter()
                .find_map(|text| on_match(map.map.get(text)?, connection))
        }
        TreeType::CustomMatch(custom)
            if is(input, "DestinationIPInput") && is(custom, "IPMatcher") =>
        {
            by_address(
                &IpMatcher::decode(custom.typed_config.as_ref()?.value.as_slice()).ok()?,
                connection,
            )
        }
        TreeType::CustomMatch(_) | TreeType::PrefixMatchMap(_) => None,
    }
}

/// The result of the most specific range that contains the destination; of wider ones if it has
/// none.
fn by_address(matcher: &IpMatcher, connection: &Connection) -> Option<String> {
    let ip = connection.destination.ip();
    let fit = |range: &navarch_proto::xds::core::v3::CidrRange| {
        range_fit(
            &range.address_prefix,
            range.prefix_len.unwrap_or_default(),
            ip,
        )
    };
    let fits = matcher
        .range_matchers
        .iter()
        .filter_map(|one| Some((one.ranges.iter().filter_map(fit).max()?, one)));
    let mut fits: Vec<_> = fits.collect();
    fits.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    fits.iter()
        .find_map(|(_, one)| on_match(one.on_match.as_ref()?, connection))
}

/// The values of an input for a connection; one match is enough.
fn texts_of(input: &TypedExtensionConfig, connection: &Connection) -> Vec<String> {
    if is(input, "DestinationPortInput") {
        vec![connection.destination.port().to_string()]
    } else if is(input, "ApplicationProtocolInput") {
        match (&connection.tls, &connection.http) {
            (Some(tls), _) => tls
                .alpn
                .iter()
                .map(|protocol| format!("'{protocol}'"))
                .collect(),
            (None, Some(_)) => vec!["'http/1.1'".to_owned()],
            (None, None) => Vec::new(),
        }
    } else {
        Vec::new()
    }
}

/// Whether a configuration is of the type of this name.
fn is(config: &TypedExtensionConfig, name: &str) -> bool {
    config
        .typed_config
        .as_ref()
        .is_some_and(|typed| typed.type_url.rsplit('.').next() == Some(name))
}
