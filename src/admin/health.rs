//! `/ready`, `/version`, `/metrics`.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::state::AdminState;
use crate::source::Fault;

/// 200 once the first reading of all sources is pushed and nothing else holds readiness, 503 before, as istiod. The body says
/// what is waited for, and what Navarch goes on without.
pub(super) async fn ready(State(state): State<AdminState>) -> (StatusCode, String) {
    let lacks = state.readiness.lacks();
    if !state.push.is_synced() {
        let problems = state.problems.all();
        let unread = problems.values().flatten().filter(|problem| matches!(problem.fault, Fault::Unreadable(_)));
        let unread: String = unread.map(|problem| format!("{problem}\n")).collect();
        return (StatusCode::SERVICE_UNAVAILABLE, unread + &lacks);
    }
    let status = if state.readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, lacks)
}

/// Answers 503 in place of a debug page before the first reading: an empty page would be read as an empty mesh.
pub(super) async fn guard(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    if state.push.is_synced() {
        return next.run(request).await;
    }
    let lacks = ready(State(state)).await.1;
    (StatusCode::SERVICE_UNAVAILABLE, format!("the configuration has not been read yet\n{lacks}")).into_response()
}

/// One line: release and commit.
pub(super) async fn version(State(state): State<AdminState>) -> String {
    format!("{}-{}\n", state.build.version, state.build.revision)
}

/// All metrics in Prometheus' text form.
pub(super) async fn metrics(State(state): State<AdminState>) -> Response {
    match state.metrics.text().await {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
