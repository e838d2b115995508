//! Request matches of routes.

use std::collections::BTreeMap;

use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use navarch_proto::envoy::config::route::v3::route_match::PathSpecifier;
use navarch_proto::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher, RouteMatch};
use navarch_proto::envoy::r#type::matcher::v3::{MetadataMatcher, StringMatcher};

use super::jwt_claim;
use super::text_match::{regex, text};
use crate::virtual_service::RouteSemantics;
use navarch_api::istio::{HttpMatchRequest, StringMatch};

pub(super) fn everything() -> RouteMatch {
    RouteMatch {
        path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
        ..RouteMatch::default()
    }
}

pub(super) fn route_match(declared: &HttpMatchRequest, semantics: RouteSemantics) -> RouteMatch {
    let (mut headers, mut dynamic_metadata) = header_matchers(&declared.headers, header_match);
    let (without, without_metadata) =
        header_matchers(&declared.without_headers, inverted_header_match);
    headers.extend(without);
    dynamic_metadata.extend(without_metadata.into_iter().map(|matcher| MetadataMatcher {
        invert: true,
        ..matcher
    }));

    headers.sort_by(|a, b| a.name.cmp(&b.name));
    let of_request = [
        (":method", &declared.method),
        (":authority", &declared.authority),
        (":scheme", &declared.scheme),
    ];

    headers.extend(
        of_request
            .into_iter()
            .filter_map(|(name, declared)| Some(header_match(name, declared.as_ref()?))),
    );

    RouteMatch {
        case_sensitive: Some(!declared.ignore_uri_case),
        headers,
        query_parameters: declared
            .query_params
            .iter()
            .map(|(name, value)| query_parameter(name, value))
            .collect(),
        dynamic_metadata,
        path_specifier: Some(path(declared.uri.as_ref(), semantics)),
        ..RouteMatch::default()
    }
}

/// Whether a route with this match makes later ones unreachable: any path, and no other condition.
pub(super) fn is_catch_all(matched: &RouteMatch) -> bool {
    let any_path = match &matched.path_specifier {
        Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => {
            prefix == "/"
        }
        Some(PathSpecifier::SafeRegex(regex)) => regex.regex == ".*",
        Some(
            PathSpecifier::Path(_)
            | PathSpecifier::ConnectMatcher(_)
            | PathSpecifier::PathMatchPolicy(_),
        )
        | None => false,
    };
    any_path
        && matched.headers.is_empty()
        && matched.query_parameters.is_empty()
        && matched.dynamic_metadata.is_empty()
}

fn path(declared: Option<&StringMatch>, semantics: RouteSemantics) -> PathSpecifier {
    match declared {
        None | Some(StringMatch::Unset) => PathSpecifier::Prefix("/".to_owned()),
        Some(StringMatch::Exact(path)) => PathSpecifier::Path(path.clone()),
        Some(StringMatch::Regex(expression)) => PathSpecifier::SafeRegex(regex(expression)),
        Some(StringMatch::Prefix(prefix)) => match semantics {
            RouteSemantics::Gateway | RouteSemantics::Ingress if prefix != "/" => {
                PathSpecifier::PathSeparatedPrefix(
                    prefix.strip_suffix('/').unwrap_or(prefix).to_owned(),
                )
            }
            RouteSemantics::Istio | RouteSemantics::Gateway | RouteSemantics::Ingress => {
                PathSpecifier::Prefix(prefix.clone())
            }
        },
    }
}

/// Header matchers, and metadata matchers for names that mean claims of a token.
fn header_matchers(
    declared: &BTreeMap<String, StringMatch>,
    matcher: fn(&str, &StringMatch) -> HeaderMatcher,
) -> (Vec<HeaderMatcher>, Vec<MetadataMatcher>) {
    let mut headers = Vec::new();
    let mut metadata = Vec::new();
    for (name, value) in declared {
        match jwt_claim::matcher(name, value) {
            Some(claim) => metadata.push(claim),
            None => headers.push(matcher(name, value)),
        }
    }
    (headers, metadata)
}

/// A header that must match.
fn header_match(name: &str, declared: &StringMatch) -> HeaderMatcher {
    let specifier = match value(declared) {
        Some(value) => HeaderMatchSpecifier::StringMatch(value),
        None => HeaderMatchSpecifier::PresentMatch(true),
    };
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(specifier),
        ..HeaderMatcher::default()
    }
}

/// An inverted header match. A missing header is treated as empty, except in presence matches.
fn inverted_header_match(name: &str, declared: &StringMatch) -> HeaderMatcher {
    HeaderMatcher {
        invert_match: true,
        treat_missing_header_as_empty: value(declared).is_some(),
        ..header_match(name, declared)
    }
}

/// A query parameter that must match.
fn query_parameter(name: &str, declared: &StringMatch) -> QueryParameterMatcher {
    let specifier = match value(declared) {
        Some(value) => QueryParameterMatchSpecifier::StringMatch(value),
        None => QueryParameterMatchSpecifier::PresentMatch(true),
    };
    QueryParameterMatcher {
        name: name.to_owned(),
        query_parameter_match_specifier: Some(specifier),
    }
}

/// The text to match; `None` if presence is enough: unset, or the expression `*`, which is not a
/// regular expression.
fn value(declared: &StringMatch) -> Option<StringMatcher> {
    match declared {
        StringMatch::Regex(expression) if expression == "*" => None,
        StringMatch::Unset
        | StringMatch::Exact(_)
        | StringMatch::Prefix(_)
        | StringMatch::Regex(_) => text(declared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_uri(uri: StringMatch, semantics: RouteSemantics) -> RouteMatch {
        route_match(
            &HttpMatchRequest {
                uri: Some(uri),
                ..HttpMatchRequest::default()
            },
            semantics,
        )
    }

    #[test]
    fn a_star_matches_presence_and_inverts_without_an_empty_value() {
        let star = StringMatch::Regex("*".to_owned());
        assert_eq!(
            header_match("a", &star),
            header_match("a", &StringMatch::Unset)
        );
        assert!(!inverted_header_match("a", &star).treat_missing_header_as_empty);
        assert!(
            inverted_header_match("a", &StringMatch::Exact("b".to_owned()))
                .treat_missing_header_as_empty
        );
    }

    #[test]
    fn only_a_match_without_conditions_is_catch_all() {
        let istio = RouteSemantics::Istio;
        assert!(is_catch_all(&everything()));
        assert!(is_catch_all(&of_uri(
            StringMatch::Regex(".*".into()),
            istio
        )));
        assert!(!is_catch_all(&of_uri(
            StringMatch::Exact("/".into()),
            istio
        )));

        let headers = [("a".to_owned(), StringMatch::Unset)].into();
        assert!(!is_catch_all(&route_match(
            &HttpMatchRequest {
                headers,
                ..HttpMatchRequest::default()
            },
            istio
        )));
    }

    #[test]
    fn gateway_routes_match_whole_path_elements() {
        let prefix = || StringMatch::Prefix("/a/".into());
        let path = |semantics| of_uri(prefix(), semantics).path_specifier;
        assert_eq!(
            path(RouteSemantics::Gateway),
            Some(PathSpecifier::PathSeparatedPrefix("/a".into()))
        );
        assert_eq!(
            path(RouteSemantics::Istio),
            Some(PathSpecifier::Prefix("/a/".into()))
        );
    }
}
