//! `/ready`, `/version`, `/metrics`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::state::AdminState;
use crate::source::Fault;

/// 200 once the first reading of all sources is pushed, 503 before, as istiod. Where the reading waits for something that
/// cannot be read, the body says for what.
pub(super) async fn ready(State(state): State<AdminState>) -> (StatusCode, String) {
    if state.push.is_synced() {
        return (StatusCode::OK, String::new());
    }
    let problems = state.problems.all();
    let lacking = problems.values().flatten().filter(|problem| matches!(problem.fault, Fault::Unreadable(_)));
    (StatusCode::SERVICE_UNAVAILABLE, lacking.map(|problem| format!("{problem}\n")).collect())
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
