//! `/debug/ca`: shows roots and signers to operators, and rotates roots for operators on the same
//! machine.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_base::error_chain::chain;
use navarch_security::ca::keeper::{RotateError, RotationCommand, RotationCommands};

/// The header with the command. A page in a browser cannot set it for another site (CSRF).
pub const COMMAND: &str = "x-navarch-ca-command";

/// The status of the roots.
pub(super) async fn status(State(state): State<AdminState>, parameters: Parameters) -> Response {
    match state.roots.get() {
        Some(commands) => shown(&parameters, commands, &state),
        None => (StatusCode::NOT_FOUND, RotateError::NoKeeper.to_string()).into_response(),
    }
}

/// Runs the command of the header, and returns the new status.
pub(super) async fn command(
    State(state): State<AdminState>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Response {
    let Some(commands) = state.roots.get() else {
        return (StatusCode::NOT_FOUND, RotateError::NoKeeper.to_string()).into_response();
    };

    let command = match headers.get(COMMAND).and_then(|value| value.to_str().ok()) {
        Some("begin") => RotationCommand::Begin,
        Some("switch") => RotationCommand::Switch,
        Some("switch-regardless") => RotationCommand::SwitchRegardless,
        Some(_) | None => {
            let text = format!("{COMMAND} must be begin, switch or switch-regardless");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };

    match commands.send(command).await {
        Ok(()) => shown(&parameters, commands, &state),
        Err(error) => {
            let code = match error {
                RotateError::Rejected(_) => StatusCode::CONFLICT,
                RotateError::NotReconciled(_)
                | RotateError::Failed(_)
                | RotateError::Conflict
                | RotateError::NoKeeper => StatusCode::INTERNAL_SERVER_ERROR,
            };
            reply::text(code, &chain(&error))
        }
    }
}

/// The status as a response, with the signers of workload certificates if the CA is not the only
/// one.
fn shown(parameters: &Parameters, commands: &RotationCommands, state: &AdminState) -> Response {
    let mut status = json!(*commands.status());
    let certificates = state.certificates.get();
    let signers = certificates.map(|certificates| certificates.signers.reports());
    let signers = signers.unwrap_or_default();
    if let Some(fields) = status.as_object_mut()
        && !signers.is_empty()
    {
        fields.insert("signers".to_owned(), json!(signers));
    }
    reply::json(parameters, &status)
}
