//! Text matches in Envoy's form.

use navarch_proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use navarch_proto::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};

use navarch_api::istio::StringMatch;

/// A regular expression for RE2.
pub(super) fn regex(expression: &str) -> RegexMatcher {
    RegexMatcher {
        regex: expression.to_owned(),
        engine_type: None,
    }
}

/// A text match; `None` if unset.
pub(super) fn text(declared: &StringMatch) -> Option<StringMatcher> {
    let pattern = match declared {
        StringMatch::Unset => return None,
        StringMatch::Exact(text) => MatchPattern::Exact(text.clone()),
        StringMatch::Prefix(text) => MatchPattern::Prefix(text.clone()),
        StringMatch::Regex(text) => MatchPattern::SafeRegex(regex(text)),
    };
    Some(StringMatcher {
        ignore_case: false,
        match_pattern: Some(pattern),
    })
}
