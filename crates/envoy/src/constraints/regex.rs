//! Regular expressions, which Envoy compiles when it loads a message.

use std::borrow::Cow;

use navarch_proto::prost_reflect::{DynamicMessage, ReflectMessage, Value};

use navarch_api::field_error::FieldError;
use navarch_api::validation::{MAX_REGEX_PROGRAM, check_regex};

/// The message of a regular expression.
const REGEX_MATCHER: &str = "envoy.type.matcher.v3.RegexMatcher";

/// Whether messages of a type are regular expressions.
pub(super) fn is_regex(message: &str) -> bool {
    message == REGEX_MATCHER
}

/// Checks the syntax and the program size of a regular expression. Other messages pass.
///
/// # Errors
/// With the reason for which Envoy could not compile it, or would not.
pub(super) fn check(message: &DynamicMessage) -> Result<(), FieldError> {
    if !is_regex(message.descriptor().full_name()) {
        return Ok(());
    }

    let text: Option<Cow<'_, Value>> = message.get_field_by_name("regex");
    let text = text
        .as_ref()
        .and_then(|value| value.as_str())
        .unwrap_or_default();
    let fault = |reason: String| Err(FieldError::new("regex", reason));

    match check_regex(text) {
        Err(reason) => fault(format!("it is not a valid RE2 expression: {reason}")),
        Ok(size) if size > MAX_REGEX_PROGRAM => fault(format!(
            "its program has about {size} instructions, and proxies accept at most {MAX_REGEX_PROGRAM}"
        )),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use navarch_proto::json::UnknownFields;
    use serde_json::json;

    use navarch_api::envoy_json::codec;

    /// The error of this expression, if it has one.
    fn fault(regex: &str) -> Option<String> {
        let message = codec()
            .message_from_json(
                super::REGEX_MATCHER,
                &json!({ "regex": regex }),
                UnknownFields::Reject,
            )
            .unwrap();
        super::super::check(&message)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn expressions_must_be_re2_and_not_too_large() {
        assert_eq!(fault("^/a/[0-9]{1,100}$"), None);
        assert!(
            fault("(?=a)")
                .unwrap()
                .starts_with("regex: it is not a valid RE2 expression")
        );
        assert!(
            fault("(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa){1000}")
                .unwrap()
                .contains("accept at most 32768")
        );
    }
}
