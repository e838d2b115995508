//! Responses in the formats of the debug API. Text of others is escaped in them: proxies and objects
//! choose texts, and whoever requests a page with curl sees it on a terminal.

use std::borrow::Cow;
use std::collections::HashMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use navarch_api::text_map::TextMap;
use navarch_base::printable::{escape_json, escape_lines};

/// The parameters of a request.
pub(super) type Parameters = axum::extract::Query<HashMap<String, String>>;

/// A JSON response, indented if the request has `pretty`.
pub(super) fn json(parameters: &Parameters, value: &Value) -> Response {
    respond(document(value, parameters.contains_key("pretty")))
}

/// A JSON response in one line, of pages without parameters.
pub(super) fn json_line(value: &Value) -> Response {
    respond(document(value, false))
}

/// A response of plain text, whose lines stay lines.
pub(super) fn text(status: StatusCode, text: &str) -> Response {
    (status, escape_lines(text).into_owned()).into_response()
}

fn respond(document: serde_json::Result<String>) -> Response {
    match document {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// A value as JSON that is safe to show.
///
/// # Errors
/// If the value cannot be represented in JSON.
pub(super) fn document(value: &Value, is_pretty: bool) -> serde_json::Result<String> {
    let text = if is_pretty {
        serde_json::to_string_pretty(value)?
    } else {
        serde_json::to_string(value)?
    };
    let escaped = match escape_json(&text) {
        Cow::Owned(escaped) => Some(escaped),
        Cow::Borrowed(_) => None,
    };
    Ok(escaped.unwrap_or(text))
}

/// The response during shutdown.
pub(super) fn ended() -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the push thread has stopped",
    )
        .into_response()
}

/// A map; `null` if it is empty, as Go writes a nil map.
pub(super) fn map(map: &TextMap) -> Value {
    if map.is_empty() {
        Value::Null
    } else {
        json!(map)
    }
}

/// A time in Go's format; Go's zero time for `None`.
pub(super) fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(
        || "0001-01-01T00:00:00Z".to_owned(),
        |time| time.to_string(),
    )
}

/// Removes unset fields. Elements of lists stay: an empty rule matches everything.
pub(super) fn leave_out_unset(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(leave_out_unset);
            fields.retain(|_, field| match field {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(all) => !all.is_empty(),
                Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
            });
        }
        Value::Array(all) => all.iter_mut().for_each(leave_out_unset),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped_and_the_value_is_the_same() {
        let value = json!({ "a\u{202e}": ["\u{9b}2J", "plain é"], "b": {} });
        for is_pretty in [false, true] {
            let text = document(&value, is_pretty).unwrap();
            assert!(
                text.contains(r"a\u202e") && text.contains(r"\u009b2J") && text.contains("plain é"),
                "{text}"
            );
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            assert_eq!(text.contains('\n'), is_pretty);
        }
    }

    #[test]
    fn unset_fields_are_omitted_and_empty_rules_kept() {
        let mut value = json!({ "a": null, "b": "", "c": [], "rules": [{ "from": [], "to": null }], "zero": 0 });
        leave_out_unset(&mut value);
        assert_eq!(value, json!({ "rules": [{}], "zero": 0 }));
    }
}
