//! `/ready`, `/version`, `/metrics`.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::access;
use super::state::{AdminState, Build};
use navarch_api::decode::Subject;
use navarch_base::printable::escape_lines;
use navarch_security::rules::Visibility;
use navarch_source::{Problem, ProblemKind};

/// The response body before the first sync, if there is no other reason.
const NOT_READ: &str = "the configuration has not been read yet";

/// 200 once the first sync of all sources is pushed and nothing else holds readiness, 503 before,
/// as in istiod. The body has the missing and the skipped parts: by name for callers with access to
/// debug pages, as numbers for others.
pub(super) async fn ready(State(state): State<AdminState>, request: Parts) -> (StatusCode, String) {
    let may_see = access::visibility(&state, &request).await == Ok(Visibility::Everything);
    (
        status(&state),
        if may_see {
            reasons(&state)
        } else {
            counts(&state)
        },
    )
}

/// Whether Navarch is ready.
fn status(state: &AdminState) -> StatusCode {
    match state.push.is_synced() && state.readiness.is_ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The missing and the skipped parts, one per line. The names of files and objects in them are
/// escaped.
fn reasons(state: &AdminState) -> String {
    lines(&holding(state), &state.readiness.missing_parts())
}

fn lines(unread: &[Problem], missing_parts: &str) -> String {
    let unread: String = unread
        .iter()
        .map(|problem| format!("{problem}\n"))
        .collect();
    escape_lines(&(unread + missing_parts)).into_owned()
}

/// The missing parts in one line; empty once ready.
#[must_use]
pub fn missing(state: &AdminState) -> Option<String> {
    if status(state) == StatusCode::OK {
        return None;
    }
    let reasons = reasons(state);
    let lines: Vec<&str> = reasons.lines().collect();
    Some(if lines.is_empty() {
        NOT_READ.to_owned()
    } else {
        lines.join("; ")
    })
}

/// The numbers of missing and skipped parts.
fn counts(state: &AdminState) -> String {
    let unread = holding(state).len();
    let lacks = state.readiness.missing_parts().lines().count();
    match (state.push.is_synced(), unread + lacks) {
        (true, 0) => String::new(),
        (false, 0) => format!("{NOT_READ}\n"),
        (_, count) => format!("{count} reasons; see the log, or /ready on this machine\n"),
    }
}

/// What blocks the first sync: unreadable sources and an invalid mesh config. Objects never block
/// it.
fn holding(state: &AdminState) -> Vec<Problem> {
    if state.push.is_synced() {
        return Vec::new();
    }

    let is_mesh = |problem: &Problem| problem.subject == Subject::default();
    let holds = |problem: &&Problem| match problem.fault {
        ProblemKind::Unreadable(_) => true,
        ProblemKind::Rejected(_) => is_mesh(problem),
        ProblemKind::UnknownField(_)
        | ProblemKind::UnknownKind
        | ProblemKind::Duplicate { .. }
        | ProblemKind::Warning(_) => false,
    };

    state
        .problems
        .all()
        .values()
        .flatten()
        .filter(holds)
        .cloned()
        .collect()
}

/// Returns 503 instead of a debug page before the first sync: an empty page would look like an
/// empty mesh.
pub(super) async fn guard(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    if state.push.is_synced() {
        return next.run(request).await;
    }
    let reasons = reasons(&state);
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{NOT_READ}\n{reasons}"),
    )
        .into_response()
}

/// Release, commit and whether the build contains uncommitted changes, in istiod's format, which
/// istioctl parses.
pub(super) async fn version(State(state): State<AdminState>) -> String {
    let Build { version, revision } = state.build;
    format!("{version}-{revision}-{}", state.build.status())
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

#[cfg(test)]
mod tests {
    use navarch_source::FilePosition;

    use super::*;

    #[test]
    fn reasons_have_no_characters_that_a_terminal_obeys() {
        let unread = Problem {
            place: FilePosition {
                file: "mesh/a\u{202e}.yaml".into(),
                line: 7,
            },
            subject: Subject::default(),
            fault: ProblemKind::Unreadable("\u{1b}[2J".to_owned()),
        };
        let text = lines(&[unread], "injection: \u{9b}2J\n");
        for shown in [
            r"mesh/a\u{202e}.yaml:7",
            r"\u{1b}[2J",
            r"injection: \u{9b}2J",
        ] {
            assert!(text.contains(shown), "{text}");
        }
        assert_eq!(text.lines().count(), 2);
    }
}
