//! Matchers of the metadata that filters write, such as the claims of tokens.

use navarch_proto::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment};
use navarch_proto::envoy::r#type::matcher::v3::value_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, StringMatcher, ValueMatcher, list_matcher,
};

use super::bytes_match;

/// The filter that validates tokens.
const JWT_FILTER: &str = "envoy.filters.http.jwt_authn";

/// The metadata key of the claims that it writes.
const PAYLOAD: &str = "payload";

/// Matches metadata of a filter at a path.
pub(super) fn at<'a>(
    filter: &str,
    path: impl IntoIterator<Item = &'a str>,
    value: ValueMatcher,
) -> MetadataMatcher {
    let segment = |key: &str| PathSegment {
        segment: Some(path_segment::Segment::Key(key.to_owned())),
    };
    MetadataMatcher {
        filter: filter.to_owned(),
        path: path.into_iter().map(segment).collect(),
        value: Some(value),
        invert: false,
    }
}

/// Matches a claim of the token that is this text.
pub(super) fn claim_text(claim: &str, text: StringMatcher) -> MetadataMatcher {
    at(JWT_FILTER, [PAYLOAD, claim], string(text))
}

/// Matches a claim of the token that is one of the texts of a policy, or a list that contains one.
pub(super) fn claim(path: &[&str], values: &[String]) -> MetadataMatcher {
    let value = either(
        values
            .iter()
            .map(|value| string(bytes_match::text(value)))
            .collect(),
    );
    let in_list = list_with(value.clone());
    let path = std::iter::once(PAYLOAD).chain(path.iter().copied());
    at(JWT_FILTER, path, either(vec![in_list, value]))
}

/// Matches metadata of a filter that is one of the texts of a policy; `[text]` is a list that
/// contains it.
pub(super) fn of_filter(filter: &str, key: &str, values: &[String]) -> MetadataMatcher {
    let one = |value: &String| {
        if value.starts_with('[') && value.ends_with(']') {
            list_with(string(bytes_match::text(value.trim_matches(['[', ']']))))
        } else {
            string(bytes_match::text(value))
        }
    };
    at(filter, [key], either(values.iter().map(one).collect()))
}

pub(super) fn string(text: StringMatcher) -> ValueMatcher {
    ValueMatcher {
        match_pattern: Some(MatchPattern::StringMatch(text)),
    }
}

/// Matches a list that contains a value.
fn list_with(value: ValueMatcher) -> ValueMatcher {
    let list = ListMatcher {
        match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(value))),
    };
    ValueMatcher {
        match_pattern: Some(MatchPattern::ListMatch(Box::new(list))),
    }
}

/// Matches one of several values; a single one is not wrapped.
fn either(mut values: Vec<ValueMatcher>) -> ValueMatcher {
    match values.pop() {
        Some(only) if values.is_empty() => only,
        last => {
            values.extend(last);
            ValueMatcher {
                match_pattern: Some(MatchPattern::OrMatch(OrMatcher {
                    value_matchers: values,
                })),
            }
        }
    }
}
