//! Changes of path and authority before forwarding.

use navarch_proto::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use navarch_proto::envoy::config::route::v3::{RouteAction, RouteMatch, route_match};
use navarch_proto::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;

use super::text_match::regex;
use crate::quote_meta::quote_meta;
use crate::virtual_service::RouteSemantics;
use navarch_api::istio::HttpRewrite;

/// Rewrites the path of a route's requests.
pub(super) fn path(
    action: &mut RouteAction,
    rewrite: &HttpRewrite,
    matched: &RouteMatch,
    semantics: RouteSemantics,
) {
    if let Some(by_regex) = &rewrite.uri_regex_rewrite {
        action.regex_rewrite = Some(substitution(&by_regex.matches, &by_regex.rewrite));
    } else if rewrite.uri == "/" && semantics == RouteSemantics::Gateway {
        // The prefix is removed; the slash after it stays, or replaces a path that equals the
        // prefix.
        let prefix = match &matched.path_specifier {
            Some(route_match::PathSpecifier::PathSeparatedPrefix(prefix)) => prefix.as_str(),
            Some(_) | None => "",
        };
        let expression = format!("^{}(/?)(.*)", quote_meta(prefix));
        action.regex_rewrite = Some(substitution(&expression, r"/\2"));
    } else {
        action.prefix_rewrite.clone_from(&rewrite.uri);
    }
}

/// The authority as a fixed text.
pub(super) fn authority(authority: &str) -> HostRewriteSpecifier {
    HostRewriteSpecifier::HostRewriteLiteral(authority.to_owned())
}

/// Replaces the matches of a regular expression.
fn substitution(expression: &str, replacement: &str) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute {
        pattern: Some(regex(expression)),
        substitution: replacement.to_owned(),
    }
}
