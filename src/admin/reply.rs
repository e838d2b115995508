//! JSON in the format of the debug API.

use std::collections::HashMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use navarch_api::text_map::TextMap;

/// The parameters of a request.
pub(super) type Parameters = axum::extract::Query<HashMap<String, String>>;

/// A JSON response, indented if the request has `pretty`.
pub(super) fn json(parameters: &Parameters, value: &Value) -> Response {
    let text = if parameters.contains_key("pretty") {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
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
    fn unset_fields_are_omitted_and_empty_rules_kept() {
        let mut value = json!({ "a": null, "b": "", "c": [], "rules": [{ "from": [], "to": null }], "zero": 0 });
        leave_out_unset(&mut value);
        assert_eq!(value, json!({ "rules": [{}], "zero": 0 }));
    }
}
