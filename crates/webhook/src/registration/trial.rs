//! Whether the API server asks Navarch already: an object that it must refuse is offered for trial.

use kube::Client;
use serde_json::json;
use tokio::time::timeout;

use super::{CALL_TIMEOUT, REVISION};

/// The annotation by which an object is refused whatever is in it.
const REJECT: &str = "internal.istio.io/webhook-always-reject";
/// Answers by which the trial is over: the object is refused, or where there are no definitions, or another webhook cannot do dry
/// runs, will never be.
const SIGNS: [&str; 3] = ["denied the request", "could not find the requested resource", "does not support dry run"];

/// Offers a broken object, which the webhook must refuse. Nothing is stored: it is a dry run.
///
/// # Errors
/// When it is not refused, and how the API server answers instead.
pub(super) async fn run(client: &Client, namespace: &str, revision: &str) -> Result<(), String> {
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
    let request =
        http::Request::post(path).header("content-type", "application/json").body(object.to_string().into_bytes());
    let request = request.map_err(|error| error.to_string())?;
    let outcome = timeout(CALL_TIMEOUT, client.request::<serde_json::Value>(request)).await;
    let answer = match outcome.map_err(|_| "the API server does not answer".to_owned())? {
        Ok(_) => return Err("an invalid object was admitted: the API server does not call the webhook yet".to_owned()),
        // The whole error is a page long.
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => error.to_string(),
    };
    if SIGNS.iter().any(|sign| answer.contains(sign)) { Ok(()) } else { Err(answer) }
}
