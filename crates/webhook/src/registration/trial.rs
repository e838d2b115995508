//! Tests whether the API server calls the webhook: creates an object that the webhook must reject.

use kube::Client;
use serde_json::json;
use tokio::time::timeout;

use super::{CALL_TIMEOUT, CallError, REVISION};

/// The annotation that makes the webhook reject any object.
const REJECT: &str = "internal.istio.io/webhook-always-reject";
/// Errors that end the trial: the object is rejected; or the kind is undefined or another webhook
/// does not support dry runs, so that it never will be.
const SIGNS: [&str; 3] = [
    "denied the request",
    "could not find the requested resource",
    "does not support dry run",
];

/// Why a trial has not shown that the webhook works.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrialError {
    /// The request is malformed.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The API server could not be asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The object passed.
    #[error("an invalid object was admitted: the API server does not call the webhook yet")]
    Admitted,
    /// The API server rejected the object for another reason.
    #[error("{0}")]
    Rejected(String),
}

/// Creates an invalid object in a dry run, which the webhook must reject. Nothing is stored.
///
/// # Errors
/// If the object is not rejected; contains the API server's response.
pub(super) async fn run(
    client: &Client,
    namespace: &str,
    revision: &str,
) -> Result<(), TrialError> {
    let object = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {
            "name": "invalid-gateway",
            "namespace": namespace,
            "labels": { REVISION: revision },
            "annotations": { REJECT: "true" },
        },
        "spec": {},
    });

    let path = format!("/apis/networking.istio.io/v1/namespaces/{namespace}/gateways?dryRun=All");
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;

    let outcome = timeout(CALL_TIMEOUT, client.request::<serde_json::Value>(request)).await;
    let error = match outcome.map_err(|_| CallError::TimedOut)? {
        Ok(_) => return Err(TrialError::Admitted),
        // Only the message, because the whole error is very long.
        Err(kube::Error::Api(status)) => TrialError::Rejected(status.message.clone()),
        Err(error) => TrialError::Call(CallError::Api(error)),
    };

    let text = error.to_string();
    if SIGNS.iter().any(|sign| text.contains(sign)) {
        Ok(())
    } else {
        Err(error)
    }
}
