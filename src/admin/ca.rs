//! `/debug/ca`: shows the roots to operators, and rotates them for operators on the same machine.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::reply::{self, Parameters};
use super::state::AdminState;
use navarch_security::ca::keeper::{Order, Orders, RotateError};

/// The header with the command. A page in a browser cannot set it for another site (CSRF).
pub const COMMAND: &str = "x-navarch-ca-command";

/// The status of the roots.
pub(super) async fn status(State(state): State<AdminState>, parameters: Parameters) -> Response {
    match state.roots.get() {
        Some(orders) => shown(&parameters, orders),
        None => (StatusCode::NOT_FOUND, RotateError::NoKeeper.to_string()).into_response(),
    }
}

/// Runs the command of the header, and returns the new status.
pub(super) async fn order(State(state): State<AdminState>, headers: HeaderMap, parameters: Parameters) -> Response {
    let Some(orders) = state.roots.get() else {
        return (StatusCode::NOT_FOUND, RotateError::NoKeeper.to_string()).into_response();
    };
    let order = match headers.get(COMMAND).and_then(|value| value.to_str().ok()) {
        Some("begin") => Order::Begin,
        Some("switch") => Order::Switch,
        Some("switch-regardless") => Order::SwitchRegardless,
        Some(_) | None => {
            let text = format!("{COMMAND} must be begin, switch or switch-regardless");
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    match orders.give(order).await {
        Ok(()) => shown(&parameters, orders),
        Err(error) => {
            let code = match error {
                RotateError::Refused(_) => StatusCode::CONFLICT,
                RotateError::Failed(_) | RotateError::NoKeeper => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (code, error.to_string()).into_response()
        }
    }
}

/// The status as a response.
fn shown(parameters: &Parameters, orders: &Orders) -> Response {
    reply::json(parameters, &json!(*orders.status()))
}
