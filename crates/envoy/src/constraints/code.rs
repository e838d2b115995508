//! Texts that Envoy compiles when it loads a message: Lua scripts and regular expressions.

use std::borrow::Cow;

use navarch_proto::prost_reflect::{DynamicMessage, ReflectMessage, Value};

use super::lua;
use navarch_api::field_error::FieldError;
use navarch_api::validation::{MAX_REGEX_PROGRAM, check_regex};

/// The configuration of the Lua filter.
const LUA: &str = "envoy.extensions.filters.http.lua.v3.Lua";
/// Its per-route configuration.
const LUA_PER_ROUTE: &str = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";
/// A regular expression.
const REGEX: &str = "envoy.type.matcher.v3.RegexMatcher";

/// Whether messages of a type contain such texts.
pub(super) fn has_code(message: &str) -> bool {
    [LUA, LUA_PER_ROUTE, REGEX].contains(&message)
}

/// Checks the texts in the fields of a message.
///
/// # Errors
/// With the first one that Envoy could not compile, and the reason.
pub(super) fn check(message: &DynamicMessage) -> Result<(), FieldError> {
    match message.descriptor().full_name() {
        LUA => {
            script(message, "inline_code")?;
            source(message, "default_source_code")?;
            let codes = message.get_field_by_name("source_codes");
            let codes = codes
                .as_ref()
                .and_then(|codes| codes.as_map())
                .into_iter()
                .flatten();
            let faults = codes.filter_map(|(key, code)| {
                let fault = script(code.as_message()?, "inline_string").err()?;
                Some((format!("{key:?}"), fault))
            });
            let first = faults.min_by(|a, b| a.0.cmp(&b.0));

            first.map_or(Ok(()), |(_, fault)| Err(fault.under("source_codes")))
        }
        LUA_PER_ROUTE => source(message, "source_code"),
        REGEX => expression(message),
        _ => Ok(()),
    }
}

/// Checks a script, for callers with scripts from other sources.
///
/// # Errors
/// With the line of the first syntax error.
pub fn check_script(script: &str) -> Result<(), String> {
    lua::check(script).map_err(|fault| format!("it is not valid Lua: {fault}"))
}

/// The text of a field; empty if unset.
fn text(message: &DynamicMessage, field: &str) -> String {
    let value: Option<Cow<'_, Value>> = message.get_field_by_name(field);
    value
        .as_ref()
        .and_then(|value| value.as_str())
        .unwrap_or_default()
        .to_owned()
}

/// Checks the script in a field.
fn script(message: &DynamicMessage, field: &str) -> Result<(), FieldError> {
    check_script(&text(message, field)).map_err(|fault| FieldError::new(field, fault))
}

/// Checks the script in a data source.
fn source(message: &DynamicMessage, field: &str) -> Result<(), FieldError> {
    let source = message.get_field_by_name(field);
    let source = source.as_ref().and_then(|source| source.as_message());
    source
        .map_or(Ok(()), |source| script(source, "inline_string"))
        .map_err(|fault| fault.under(field))
}

/// Checks a regular expression: its syntax and its program size.
fn expression(message: &DynamicMessage) -> Result<(), FieldError> {
    let fault = |reason: String| Err(FieldError::new("regex", reason));
    match check_regex(&text(message, "regex")) {
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

    /// What is wrong with a message of this type and JSON.
    fn fault(message: &str, json: &serde_json::Value) -> Option<String> {
        let message = codec()
            .message_from_json(message, json, UnknownFields::Reject)
            .unwrap();
        super::super::check(&message)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn scripts_must_be_lua() {
        let lua = |json| fault(super::LUA, &json);
        assert_eq!(
            lua(json!({ "inline_code": "function envoy_on_request(h) end" })),
            None
        );
        let broken = lua(json!({ "inline_code": "function envoy_on_request(h)" })).unwrap();
        assert_eq!(
            broken,
            "inline_code: it is not valid Lua: line 1: \"end\" is missing at the end"
        );
        let codes = lua(json!({ "source_codes": { "a": { "inline_string": "x =" } } })).unwrap();
        assert!(
            codes.starts_with("source_codes.inline_string: it is not valid Lua"),
            "{codes}"
        );
        let route = json!({ "source_code": { "inline_string": "x =" } });
        assert!(fault(super::LUA_PER_ROUTE, &route).is_some());
    }

    #[test]
    fn expressions_must_be_re2_and_not_too_large() {
        let regex = |regex: &str| fault(super::REGEX, &json!({ "regex": regex }));
        assert_eq!(regex("^/a/[0-9]{1,100}$"), None);
        assert!(
            regex("(?=a)")
                .unwrap()
                .starts_with("regex: it is not a valid RE2 expression")
        );
        assert!(
            regex("(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa){1000}")
                .unwrap()
                .contains("accept at most 32768")
        );
    }
}
