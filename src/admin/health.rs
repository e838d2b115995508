//! `/ready`, `/version`, `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::state::AdminState;

/// 200 once the first reading of all sources is pushed, 503 before; no body, as istiod.
pub(super) async fn ready(State(state): State<AdminState>) -> StatusCode {
    if state.push.is_synced() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// One line: release and commit.
pub(super) async fn version(State(state): State<AdminState>) -> String {
    format!("{}-{}\n", state.build.version, state.build.revision)
}

/// All metrics in Prometheus' text form.
pub(super) async fn metrics(State(state): State<AdminState>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &state.metrics) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
