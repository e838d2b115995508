//! Regular expressions of routes that are too large for proxies, which would reject all routes
//! because of one of them.

use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use navarch_proto::envoy::config::route::v3::{Route, RouteMatch, route, route_match};
use navarch_proto::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher};

use navarch_api::validation::{MAX_REGEX_PROGRAM, check_regex};

/// The fault of the first expression of a route that is too large.
pub(super) fn fault(route: &Route) -> Option<String> {
    let matched = route.r#match.iter().flat_map(of_match);
    let rewrite = match &route.action {
        Some(route::Action::Route(action)) => action.regex_rewrite.as_ref(),
        Some(route::Action::Redirect(_) | route::Action::DirectResponse(_)) | None => None,
        Some(route::Action::FilterAction(_) | route::Action::NonForwardingAction(_)) => None,
    };
    let mut all = matched.chain(rewrite.and_then(|rewrite| rewrite.pattern.as_ref()));
    let oversized =
        all.find(|matcher| check_regex(&matcher.regex).is_ok_and(|size| size > MAX_REGEX_PROGRAM))?;
    let start: String = oversized.regex.chars().take(40).collect();
    Some(format!(
        "the regular expression that starts with {start:?} is too large: proxies accept programs of up to {MAX_REGEX_PROGRAM} instructions"
    ))
}

/// The expressions of a match.
fn of_match(matched: &RouteMatch) -> Vec<&RegexMatcher> {
    let mut found = Vec::new();
    if let Some(route_match::PathSpecifier::SafeRegex(regex)) = &matched.path_specifier {
        found.push(regex);
    }
    for header in &matched.headers {
        if let Some(HeaderMatchSpecifier::StringMatch(text)) = &header.header_match_specifier {
            found.extend(of_text(text));
        }
    }
    for parameter in &matched.query_parameters {
        if let Some(QueryParameterMatchSpecifier::StringMatch(text)) =
            &parameter.query_parameter_match_specifier
        {
            found.extend(of_text(text));
        }
    }
    found
}

/// The expression of a text match.
fn of_text(text: &StringMatcher) -> Option<&RegexMatcher> {
    match &text.match_pattern {
        Some(string_matcher::MatchPattern::SafeRegex(regex)) => Some(regex),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_regexes_are_found_at_any_depth() {
        let regex = |regex: &str| RegexMatcher {
            regex: regex.to_owned(),
            engine_type: None,
        };
        let route = |expression: &str| {
            let path = Some(route_match::PathSpecifier::SafeRegex(regex(expression)));
            Route {
                r#match: Some(RouteMatch {
                    path_specifier: path,
                    ..RouteMatch::default()
                }),
                ..Route::default()
            }
        };
        assert_eq!(fault(&route("/a/.{1000}")), None);
        let large = format!("({}){{1000}}", "abcdefgh".repeat(5));
        assert!(fault(&route(&large)).unwrap().contains("\"(abcdefgh"));
    }
}
