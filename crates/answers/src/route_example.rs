//! Examples of requests that match a route.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use navarch_proto::envoy::config::route::v3::route_match::PathSpecifier;
use navarch_proto::envoy::config::route::v3::{HeaderMatcher, RouteMatch, VirtualHost};
use navarch_proto::envoy::r#type::matcher::v3::StringMatcher;
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

/// Maximum number of routes of a virtual host that are tried.
const MAX_ROUTES: usize = 16;

/// The part of a request that routes match on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Example {
    pub(super) method: String,
    /// The path with its query.
    pub(super) path: String,
    /// Headers, names in lower case.
    pub(super) headers: BTreeMap<String, String>,
}

impl Default for Example {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: BTreeMap::new(),
        }
    }
}

/// Requests that match routes of a virtual host, without those for regular expressions.
pub(super) fn examples(host: &VirtualHost) -> impl Iterator<Item = Example> {
    host.routes
        .iter()
        .take(MAX_ROUTES)
        .filter_map(|route| example(route.r#match.as_ref()?))
}

/// A request that matches a route.
fn example(wanted: &RouteMatch) -> Option<Example> {
    let mut path = match &wanted.path_specifier {
        Some(
            PathSpecifier::Prefix(text)
            | PathSpecifier::Path(text)
            | PathSpecifier::PathSeparatedPrefix(text),
        ) => text.clone(),
        Some(PathSpecifier::SafeRegex(expression))
            if matches!(expression.regex.as_str(), ".*" | "/.*") =>
        {
            "/".to_owned()
        }
        Some(
            PathSpecifier::SafeRegex(_)
            | PathSpecifier::ConnectMatcher(_)
            | PathSpecifier::PathMatchPolicy(_),
        )
        | None => {
            return None;
        }
    };

    let mut example = Example::default();

    for header in &wanted.headers {
        let name = header.name.to_ascii_lowercase();
        match (name.as_str(), value_for(header)?) {
            (_, None) => {}
            (":method", Some(value)) => example.method = value,
            // Pseudo-headers follow from the request itself.
            (":authority" | ":scheme" | ":path", Some(_)) => {}
            (_, Some(value)) => _ = example.headers.insert(name, value),
        }
    }

    for (at, parameter) in wanted.query_parameters.iter().enumerate() {
        let value = match &parameter.query_parameter_match_specifier {
            Some(QueryParameterMatchSpecifier::StringMatch(pattern)) => text_for(pattern)?,
            Some(QueryParameterMatchSpecifier::PresentMatch(true)) | None => "x".to_owned(),
            Some(QueryParameterMatchSpecifier::PresentMatch(false)) => continue,
        };
        path.push_str(&format!(
            "{}{}={value}",
            if at == 0 { '?' } else { '&' },
            parameter.name
        ));
    }

    example.path = path;
    Some(example)
}

/// A matching value of a header; `Some(None)` if the header must be absent, `None` if no value can
/// be constructed.
#[expect(deprecated, reason = "deprecated forms of matchers are still in use")]
fn value_for(header: &HeaderMatcher) -> Option<Option<String>> {
    let value = match &header.header_match_specifier {
        Some(HeaderMatchSpecifier::StringMatch(pattern)) => text_for(pattern)?,
        Some(
            HeaderMatchSpecifier::ExactMatch(text)
            | HeaderMatchSpecifier::PrefixMatch(text)
            | HeaderMatchSpecifier::SuffixMatch(text)
            | HeaderMatchSpecifier::ContainsMatch(text),
        ) => text.clone(),
        Some(HeaderMatchSpecifier::RangeMatch(range)) => range.start.to_string(),
        Some(HeaderMatchSpecifier::PresentMatch(false)) => return Some(None),
        Some(HeaderMatchSpecifier::PresentMatch(true)) | None => "x".to_owned(),
        Some(HeaderMatchSpecifier::SafeRegexMatch(_)) => return None,
    };

    match header.invert_match {
        false => Some(Some(value)),
        // Any other value matches; if the header may be absent, it is.
        true => Some(
            header
                .treat_missing_header_as_empty
                .then(|| format!("not-{value}")),
        ),
    }
}

/// A matching text.
fn text_for(pattern: &StringMatcher) -> Option<String> {
    match &pattern.match_pattern {
        Some(
            MatchPattern::Exact(text)
            | MatchPattern::Prefix(text)
            | MatchPattern::Suffix(text)
            | MatchPattern::Contains(text),
        ) => Some(text.clone()),
        Some(MatchPattern::SafeRegex(_) | MatchPattern::Custom(_)) | None => None,
    }
}
