//! Matching of strings, headers and query parameters.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use navarch_proto::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher};
use navarch_proto::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use regex::Regex;

/// Whether a text matches.
pub(super) fn text(pattern: &StringMatcher, text: &str) -> bool {
    let lower = |text: &str| {
        if pattern.ignore_case {
            text.to_ascii_lowercase()
        } else {
            text.to_owned()
        }
    };
    let shown = lower(text);
    match &pattern.match_pattern {
        Some(MatchPattern::Exact(wanted)) => shown == lower(wanted),
        Some(MatchPattern::Prefix(wanted)) => shown.starts_with(&lower(wanted)),
        Some(MatchPattern::Suffix(wanted)) => shown.ends_with(&lower(wanted)),
        Some(MatchPattern::Contains(wanted)) => shown.contains(&lower(wanted)),
        Some(MatchPattern::SafeRegex(wanted)) => whole(&wanted.regex, text),
        Some(MatchPattern::Custom(_)) | None => false,
    }
}

/// Whether a regular expression matches the whole text.
pub(super) fn whole(expression: &str, text: &str) -> bool {
    Regex::new(&format!("^(?:{expression})$")).is_ok_and(|expression| expression.is_match(text))
}

/// Whether headers match.
#[expect(deprecated, reason = "deprecated forms of matchers are still in use")]
pub(super) fn header(matcher: &HeaderMatcher, headers: &BTreeMap<String, String>) -> bool {
    let shown = headers.get(&matcher.name.to_ascii_lowercase());
    let missing = String::new();
    let shown = shown.or_else(|| matcher.treat_missing_header_as_empty.then_some(&missing));
    if let Some(HeaderMatchSpecifier::PresentMatch(wanted)) = &matcher.header_match_specifier {
        return (shown.is_some() == *wanted) != matcher.invert_match;
    }

    // With an absent header even an inverted matcher does not match.
    let Some(shown) = shown else { return false };
    let matches = match &matcher.header_match_specifier {
        None => true,
        Some(HeaderMatchSpecifier::StringMatch(pattern)) => text(pattern, shown),
        Some(HeaderMatchSpecifier::ExactMatch(wanted)) => shown == wanted,
        Some(HeaderMatchSpecifier::PrefixMatch(wanted)) => shown.starts_with(wanted),
        Some(HeaderMatchSpecifier::SuffixMatch(wanted)) => shown.ends_with(wanted),
        Some(HeaderMatchSpecifier::ContainsMatch(wanted)) => shown.contains(wanted),
        Some(HeaderMatchSpecifier::SafeRegexMatch(wanted)) => whole(&wanted.regex, shown),
        Some(HeaderMatchSpecifier::RangeMatch(range)) => shown
            .parse::<i64>()
            .is_ok_and(|number| (range.start..range.end).contains(&number)),
        Some(HeaderMatchSpecifier::PresentMatch(_)) => false,
    };

    matches != matcher.invert_match
}

/// Whether query parameters match.
pub(super) fn parameter(matcher: &QueryParameterMatcher, query: &str) -> bool {
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let shown = pairs
        .into_iter()
        .find(|(name, _)| *name == matcher.name)
        .map(|(_, value)| value);
    match &matcher.query_parameter_match_specifier {
        Some(QueryParameterMatchSpecifier::StringMatch(pattern)) => {
            shown.is_some_and(|shown| text(pattern, shown))
        }
        Some(QueryParameterMatchSpecifier::PresentMatch(wanted)) => shown.is_some() == *wanted,
        None => shown.is_some(),
    }
}
