//! Matches on the claims of a token that was validated before routing.

use navarch_proto::envoy::r#type::matcher::v3::metadata_matcher::{PathSegment, path_segment};
use navarch_proto::envoy::r#type::matcher::v3::value_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, ValueMatcher, list_matcher,
};

use super::text_match::text;
use navarch_api::istio::StringMatch;

/// Prefix of header names that mean claims, case-insensitive.
const CLAIMS: &str = "@request.auth.claims";

/// The filter that validates tokens, and the metadata key of the claims.
const FILTER: (&str, &str) = ("envoy.filters.http.jwt_authn", "payload");

/// A matcher for `@request.auth.claims.<claim>…` or `@request.auth.claims[<claim>]…`; `None` for
/// other headers.
///
/// A claim matches as a text or as one of a list of texts.
pub(super) fn matcher(header: &str, declared: &StringMatch) -> Option<MetadataMatcher> {
    let claims = claims(header)?;

    // Envoy rejects a text match without a pattern: in that case, the claim must only be present.
    let Some(text) = text(declared) else {
        return Some(metadata(&claims, MatchPattern::PresentMatch(true)));
    };

    let value = ValueMatcher {
        match_pattern: Some(MatchPattern::StringMatch(text)),
    };
    let in_list = ListMatcher {
        match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(value.clone()))),
    };
    let in_list = ValueMatcher {
        match_pattern: Some(MatchPattern::ListMatch(Box::new(in_list))),
    };

    Some(metadata(
        &claims,
        MatchPattern::OrMatch(OrMatcher {
            value_matchers: vec![in_list, value],
        }),
    ))
}

/// A matcher for the filter's metadata of a claim.
fn metadata(claims: &[&str], pattern: MatchPattern) -> MetadataMatcher {
    let segment = |key: &&str| PathSegment {
        segment: Some(path_segment::Segment::Key((*key).to_owned())),
    };
    MetadataMatcher {
        filter: FILTER.0.to_owned(),
        path: std::iter::once(&FILTER.1)
            .chain(claims)
            .map(segment)
            .collect(),
        value: Some(ValueMatcher {
            match_pattern: Some(pattern),
        }),
        invert: false,
    }
}

/// The path to a claim.
fn claims(header: &str) -> Option<Vec<&str>> {
    let (start, rest) = header.split_at_checked(CLAIMS.len())?;
    if !start.eq_ignore_ascii_case(CLAIMS) {
        return None;
    }
    if let Some(dotted) = rest.strip_prefix('.').filter(|dotted| !dotted.is_empty()) {
        return Some(dotted.split('.').collect());
    }
    let bracketed = rest.strip_prefix('[')?.strip_suffix(']')?;
    (!bracketed.is_empty()).then(|| bracketed.split("][").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_pattern_must_only_be_there() {
        let matcher = matcher("@request.auth.claims.group", &StringMatch::Unset).unwrap();
        let present = ValueMatcher {
            match_pattern: Some(MatchPattern::PresentMatch(true)),
        };
        assert_eq!(matcher.value, Some(present));
    }

    #[test]
    fn claims_are_parted_by_dots_or_brackets() {
        assert_eq!(
            claims("@request.auth.claims.group.id"),
            Some(vec!["group", "id"])
        );
        assert_eq!(
            claims("@Request.Auth.Claims[group][a.b]"),
            Some(vec!["group", "a.b"])
        );
        assert_eq!(claims("@request.auth.claims"), None);
        assert_eq!(claims("@request.auth.claims."), None);
        assert_eq!(claims("x-header"), None);
    }
}
