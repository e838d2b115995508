//! Pod reviews: converts a review to an injection request, and the injection to a response.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tokio::time::Instant;

use super::inject::{InjectRequest, InjectionOutcome, Injector, parameters};
use super::metrics::{Metrics, PodOutcome};
use super::review::{self, Request, ReviewAnswer};
use navarch_api::object::NamespacedName;
use navarch_store::Objects;

/// Maximum number and length of warnings: API servers drop further ones and truncate longer ones.
const WARNINGS: (usize, usize) = (20, 250);
/// Maximum length of an audit annotation.
const MAX_NOTE_LENGTH: usize = 1000;
/// Maximum length of a rejection's reason, which can contain values that users wrote.
const MAX_REASON_LENGTH: usize = 4000;

/// Answers the body of a pod review. `path` is the path of the request; `objects` are the current
/// objects.
///
/// # Errors
/// If the response cannot be encoded.
pub fn inject_review(
    body: &[u8],
    path: &str,
    injector: &Injector,
    objects: Option<&Objects>,
) -> Result<Vec<u8>, serde_json::Error> {
    counted(body, path, injector, objects, &Metrics::default())
}

/// As [`inject_review`], with metrics.
pub(super) fn counted(
    body: &[u8],
    path: &str,
    injector: &Injector,
    objects: Option<&Objects>,
    metrics: &Metrics,
) -> Result<Vec<u8>, serde_json::Error> {
    let start = Instant::now();
    review::answer(body, |request| {
        let answer = answer(&request, path, injector, objects);
        let fate = match (answer.allowed, &answer.patch) {
            (true, Some(_)) => PodOutcome::Injected,
            (true, None) => PodOutcome::Skipped,
            (false, _) => PodOutcome::Rejected,
        };
        metrics.pod(fate, start.elapsed());
        answer
    })
}

/// The response for a pod.
fn answer(
    request: &Request,
    path: &str,
    injector: &Injector,
    objects: Option<&Objects>,
) -> ReviewAnswer {
    if !request.object.is_object() {
        return ReviewAnswer::deny("could not read the pod: request.object is not an object")
            .noting("injection", "refused");
    }

    let text = |pointer: &str| {
        request
            .object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };

    let pod = [text("/metadata/name"), text("/metadata/generateName")]
        .into_iter()
        .find(|name| !name.is_empty());
    let pod = pod.unwrap_or_default();
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let parameters = parameters(path);
    let namespace_annotations = objects.and_then(|objects| annotations(objects, namespace));
    let inject_request = InjectRequest {
        pod: &request.object,
        namespace,
        namespace_annotations: namespace_annotations.as_ref(),
        parameters: &parameters,
    };

    let injection = match injector.inject(&inject_request) {
        Ok(injection) => injection,
        Err(error) => {
            let reason = error.to_string();
            tracing::warn!(namespace, pod, reason, "failed to inject pod");
            return ReviewAnswer::deny(review::cut(&reason, MAX_REASON_LENGTH))
                .noting("injection", "refused");
        }
    };

    let mut answer = match &injection.outcome {
        InjectionOutcome::Skipped(reason) => {
            tracing::debug!(namespace, pod, reason = reason.as_str(), "pod not injected");
            ReviewAnswer::allow().noting("injection", format!("none: {}", reason.as_str()))
        }
        InjectionOutcome::Injected(patch) => match serde_json::to_vec(patch) {
            Ok(patch) => {
                tracing::info!(
                    namespace,
                    pod,
                    dry_run = request.is_dry_run(),
                    "pod injected"
                );
                let mut answer = ReviewAnswer::allow().noting("injection", "injected");
                answer.patch = Some(BASE64_STANDARD.encode(patch));
                answer.patch_type = Some("JSONPatch");
                answer
            }
            Err(error) => {
                return ReviewAnswer::deny(format!("failed to encode the patch: {error}"));
            }
        },
    };

    answer.warnings = injection
        .warnings
        .iter()
        .take(WARNINGS.0)
        .map(|warning| review::cut(warning, WARNINGS.1))
        .collect();

    for (name, value) in injection.audit {
        answer = answer.noting(name, review::cut(&value, MAX_NOTE_LENGTH));
    }

    answer
}

fn annotations(objects: &Objects, namespace: &str) -> Option<BTreeMap<String, String>> {
    let found = objects
        .namespaces
        .get(&NamespacedName::new("", namespace))?;
    let owned = |(key, value): (&Arc<str>, &Arc<str>)| (key.to_string(), value.to_string());
    Some(found.meta.annotations.iter().map(owned).collect())
}
