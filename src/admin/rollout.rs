//! `/debug/rollout`: shows staged rollouts to operators, who can pause, promote or abort them from
//! the same machine.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::proposal::object_ref;
use navarch_answers::rollout::Rollouts;
use navarch_rollout::{OperatorCommand, OperatorRequest, RolloutError};

/// Maximum size of a command in bytes.
pub(super) const MAX_BYTES: usize = 4 << 10;

/// The status of all rollouts, or of that of `object=KIND/NAMESPACE/NAME`.
pub(super) async fn status(State(state): State<AdminState>, parameters: Parameters) -> Response {
    let mut status = Rollouts::clone(&state.rollouts.status.borrow());
    if let Some(name) = parameters.get("object") {
        match object_ref(name) {
            Ok(name) => status
                .rollouts
                .retain(|rollout| rollout.object == name.to_string()),
            Err(reason) => return (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
        }
    }
    reply::json(&parameters, &json!(status))
}

/// A command, as `{"object": "KIND/NAMESPACE/NAME", "order": "pause"}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandRequest {
    object: String,
    order: String,
}

/// Runs the command of the body. The content type must be JSON: a page in a browser cannot send
/// that to another site (CSRF).
pub(super) async fn command(
    State(state): State<AdminState>,
    parameters: Parameters,
    request: Result<Json<CommandRequest>, JsonRejection>,
) -> Response {
    let CommandRequest { object, order } = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return rejection.into_response(),
    };
    let Some(command) = OperatorCommand::parse(&order) else {
        let text = "order must be pause, promote, promote-full or abort\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };

    let object = match object_ref(&object) {
        Ok(object) => object,
        Err(reason) => return (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    };

    let (answer, outcome) = oneshot::channel();
    let request = OperatorRequest {
        object,
        command,
        answer,
    };
    if state.rollouts.commands.send(request).await.is_err() {
        return reply::ended();
    }

    match outcome.await {
        Ok(Ok(())) => reply::json(&parameters, &json!({})),
        Ok(Err(error)) => {
            let code = match &error {
                RolloutError::Unknown(_) => StatusCode::NOT_FOUND,
                RolloutError::Stopped(_) => StatusCode::CONFLICT,
                RolloutError::NotKept(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            reply::text(code, &format!("{error}\n"))
        }
        Err(_) => reply::ended(),
    }
}
