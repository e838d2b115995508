//! Texts of policies as Envoy's matchers: exact, `prefix*`, `*suffix`, and `*` for any non-empty
//! value.

use navarch_proto::envoy::config::route::v3::HeaderMatcher;
use navarch_proto::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};

use crate::quote_meta::quote_meta;

/// Whether a match is case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Sensitive,
    Insensitive,
}

fn matcher(pattern: MatchPattern, case: Case) -> StringMatcher {
    StringMatcher {
        ignore_case: case == Case::Insensitive,
        match_pattern: Some(pattern),
    }
}

/// An exact match.
pub(super) fn exact(text: &str) -> StringMatcher {
    matcher(MatchPattern::Exact(text.to_owned()), Case::Sensitive)
}

/// A prefix match.
pub(super) fn prefix(text: &str) -> StringMatcher {
    matcher(MatchPattern::Prefix(text.to_owned()), Case::Sensitive)
}

/// A suffix match.
pub(super) fn suffix(text: &str) -> StringMatcher {
    matcher(MatchPattern::Suffix(text.to_owned()), Case::Sensitive)
}

/// A regular expression that the whole text must match.
pub(super) fn regex(expression: String) -> StringMatcher {
    matcher(
        MatchPattern::SafeRegex(RegexMatcher {
            regex: expression,
            ..RegexMatcher::default()
        }),
        Case::Sensitive,
    )
}

/// Matches any non-empty text.
pub(super) fn anything() -> StringMatcher {
    regex(".+".to_owned())
}

/// The matcher of a text of a policy.
pub(super) fn text(value: &str) -> StringMatcher {
    text_after("", value)
}

/// The matcher of a text of a policy after the prefix `start`.
///
/// A suffix is matched by a regular expression that is anchored at the start, in which the suffix
/// is quoted.
pub(super) fn text_after(start: &str, value: &str) -> StringMatcher {
    if value == "*" {
        return anything();
    }
    match (value.strip_prefix('*'), value.strip_suffix('*')) {
        (Some(ending), _) if start.is_empty() => suffix(ending),
        (Some(ending), _) => regex(format!("{start}.*{}", quote_meta(ending))),
        (None, Some(beginning)) => prefix(&format!("{start}{beginning}")),
        (None, None) => exact(&format!("{start}{value}")),
    }
}

/// The matcher of a header of a policy.
pub(super) fn header(name: &str, value: &str, case: Case) -> HeaderMatcher {
    let pattern = match (value.strip_prefix('*'), value.strip_suffix('*')) {
        (Some(""), _) => None,
        (Some(ending), _) => Some(MatchPattern::Suffix(ending.to_owned())),
        (None, Some(beginning)) => Some(MatchPattern::Prefix(beginning.to_owned())),
        (None, None) => Some(MatchPattern::Exact(value.to_owned())),
    };
    let specifier = match pattern {
        Some(pattern) => HeaderMatchSpecifier::StringMatch(matcher(pattern, case)),
        None => HeaderMatchSpecifier::PresentMatch(true),
    };
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(specifier),
        ..HeaderMatcher::default()
    }
}
