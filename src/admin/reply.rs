//! JSON as the debug API writes it.

use std::collections::HashMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// The parameters of a request.
pub(super) type Parameters = axum::extract::Query<HashMap<String, String>>;

/// A JSON answer, indented when the request has `pretty`.
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

/// The answer while the process goes down.
pub(super) fn ended() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the push thread has ended").into_response()
}
