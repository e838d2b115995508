//! `/debug/rollout`: shows staged rollouts to operators, who can pause, promote or abort them from
//! the same machine.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_answers::proposal::object_ref;
use navarch_answers::rollout::{RolloutState, Rollouts};
use navarch_api::object::ObjectRef;
use navarch_push::rollout::Rollout;

/// In requests the words `pause`, `promote`, `promote-full` and `abort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// It stays at its current stage.
    Pause,
    /// It proceeds to the next stage now.
    Promote,
    /// All proxies get the new version now.
    PromoteFull,
    /// All proxies get the previous version.
    Abort,
}

/// A command, and the channel for its result.
pub type OperatorRequest = (
    ObjectRef,
    OperatorCommand,
    oneshot::Sender<Result<(), RolloutRefusal>>,
);

/// Maximum size of a command in bytes.
pub(super) const MAX_BYTES: usize = 4 << 10;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutRefusal {
    /// The rollout does not exist.
    #[error("{0} has no rollout in progress; navarch rollout status lists those in progress")]
    Unknown(ObjectRef),
    /// The rollout can no longer be paused or promoted, only aborted, which changes nothing.
    #[error(
        "the rollout of {0} was stopped and all proxies use the previous version: edit the object to start again"
    )]
    Stopped(ObjectRef),
    /// The command could not be stored for other replicas.
    #[error("failed to store the command for other replicas: {0}")]
    NotKept(String),
}

/// The rollout controller.
#[derive(Clone, Debug)]
pub struct RolloutControl {
    /// The channel for commands.
    pub orders: mpsc::Sender<OperatorRequest>,
    /// The staged rollouts at this control plane; empty if there are none.
    pub status: watch::Receiver<Arc<Rollouts>>,
}

impl OperatorCommand {
    /// Parses a command.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "pause" => Some(Self::Pause),
            "promote" => Some(Self::Promote),
            "promote-full" => Some(Self::PromoteFull),
            "abort" => Some(Self::Abort),
            _ => None,
        }
    }
}

impl RolloutControl {
    pub(super) fn state(&self, name: &ObjectRef, rollout: &Rollout) -> RolloutState {
        if rollout.is_stopped() {
            return RolloutState::Stopped;
        }
        let status = self.status.borrow();
        let name = name.to_string();
        let report = status
            .rollouts
            .iter()
            .find(|report| report.object == name && report.state != RolloutState::Stopped);
        report.map_or(RolloutState::Waiting, |report| report.state)
    }
}

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
pub(super) struct RolloutCommand {
    object: String,
    order: String,
}

/// Runs the command of the body. The content type must be JSON: a page in a browser cannot send
/// that to another site (CSRF).
pub(super) async fn order(
    State(state): State<AdminState>,
    parameters: Parameters,
    order: Result<Json<RolloutCommand>, JsonRejection>,
) -> Response {
    let RolloutCommand { object, order } = match order {
        Ok(Json(order)) => order,
        Err(rejection) => return rejection.into_response(),
    };
    let Some(order) = OperatorCommand::parse(&order) else {
        let text = "order must be pause, promote, promote-full or abort\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };

    let name = match object_ref(&object) {
        Ok(name) => name,
        Err(reason) => return (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    };
    let (answer, outcome) = oneshot::channel();

    if state
        .rollouts
        .orders
        .send((name, order, answer))
        .await
        .is_err()
    {
        return reply::ended();
    }

    match outcome.await {
        Ok(Ok(())) => reply::json(&parameters, &json!({})),
        Ok(Err(refusal)) => {
            let code = match &refusal {
                RolloutRefusal::Unknown(_) => StatusCode::NOT_FOUND,
                RolloutRefusal::Stopped(_) => StatusCode::CONFLICT,
                RolloutRefusal::NotKept(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (code, format!("{refusal}\n")).into_response()
        }
        Err(_) => reply::ended(),
    }
}
