//! `/debug/quarantine`: shows quarantined objects to operators, who can end a quarantine from the
//! same machine.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::proposal::object_ref;
use navarch_answers::quarantine::{QuarantinedObject, QuarantinedObjects};
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::quarantine::Quarantined;
use navarch_quarantine::{QuarantineRelease, ReleaseError};

/// Maximum size of a command in bytes.
pub(super) const MAX_BYTES: usize = 4 << 10;

/// The quarantined objects.
pub(super) async fn list(State(state): State<AdminState>, parameters: Parameters) -> Response {
    reply::json(&parameters, &json!(quarantined(&state.push.context())))
}

/// The quarantined objects of a snapshot.
fn quarantined(context: &PushContext) -> QuarantinedObjects {
    let one = |(name, one): (&ObjectRef, &Arc<Quarantined>)| QuarantinedObject {
        object: name.to_string(),
        generation: one.generation,
        served: one.served,
        message: one.message.to_string(),
    };
    QuarantinedObjects {
        quarantined: context.quarantined.iter().map(one).collect(),
    }
}

/// A command, as `{"release": "KIND/NAMESPACE/NAME"}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuarantineCommand {
    release: String,
}

/// Runs the command of the body. The content type must be JSON: a page in a browser cannot send
/// that to another site (CSRF).
pub(super) async fn release(
    State(state): State<AdminState>,
    parameters: Parameters,
    command: Result<Json<QuarantineCommand>, JsonRejection>,
) -> Response {
    let QuarantineCommand { release } = match command {
        Ok(Json(command)) => command,
        Err(rejection) => return rejection.into_response(),
    };
    let object = match object_ref(&release) {
        Ok(object) => object,
        Err(reason) => return (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    };

    let (answer, outcome) = oneshot::channel();
    let command = QuarantineRelease {
        object: object.clone(),
        answer,
    };
    if state.quarantine.releases.send(command).await.is_err() {
        return failed(&ReleaseError::Unknown(object));
    }

    match outcome.await {
        Ok(Ok(())) => reply::json(&parameters, &Value::Object(serde_json::Map::new())),
        Ok(Err(error)) => failed(&error),
        Err(_) => reply::ended(),
    }
}

/// The response to a command that failed.
fn failed(error: &ReleaseError) -> Response {
    let code = match error {
        ReleaseError::Unknown(_) => StatusCode::NOT_FOUND,
        ReleaseError::NotKept(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    reply::text(code, &format!("{error}\n"))
}
