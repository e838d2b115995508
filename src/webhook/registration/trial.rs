//! Whether the API server asks Navarch already: an object that it must refuse is offered for trial.

use kube::Client;
use serde_json::json;
use tokio::time::timeout;

use super::{CALL, REVISION};

/// The annotation by which an object is refused whatever is in it.
const REJECT: &str = "internal.istio.io/webhook-always-reject";

/// Whether a broken object is refused by the webhook. Nothing is stored: it is a dry run.
pub(super) async fn is_refused(client: &Client, namespace: &str, revision: &str) -> bool {
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
    let Ok(request) = request else { return false };
    let Ok(outcome) = timeout(CALL, client.request::<serde_json::Value>(request)).await else { return false };
    match outcome {
        Ok(_) => {
            tracing::info!("validation stays open: the API server does not ask yet");
            false
        }
        Err(error) => {
            let told = error.to_string();
            // Where there are no definitions, or another webhook cannot do dry runs, the trial will never show more.
            let refused = ["denied the request", "could not find the requested resource", "does not support dry run"]
                .iter()
                .any(|sign| told.contains(sign));
            if refused {
                tracing::info!(told, "broken objects are refused: validation fails closed from now on");
            } else {
                tracing::info!(told, "validation stays open: the trial was refused for another reason");
            }
            refused
        }
    }
}
