//! Configuration reviews: converts the verdict to a response.

use super::metrics::Metrics;
use super::neighbours;
use super::review::{self, Request, ReviewAnswer, cut};
use super::verdict::{ValidatedObject, validate};
use navarch_api::validation::Problem;
use navarch_store::Objects;

/// Maximum number of errors in one response.
const FAULTS: usize = 20;
/// Maximum number of warnings in one response.
const WARNINGS: usize = 20;
/// Maximum length of an error, which can contain values that users wrote.
const MAX_MESSAGE_LENGTH: usize = 1000;
/// Maximum length of a warning: API servers truncate longer ones and drop subsequent ones.
const MAX_WARNING_LENGTH: usize = 250;
/// Maximum length of an audit annotation.
const MAX_REASON_LENGTH: usize = 250;

/// Answers the body of a review. `objects` are the current objects, if they are read.
///
/// # Errors
/// If the response cannot be encoded.
pub fn validate_review(
    body: &[u8],
    objects: Option<&Objects>,
) -> Result<Vec<u8>, serde_json::Error> {
    counted(body, objects, &Metrics::default())
}

/// As [`validate_review`], with metrics.
pub(super) fn counted(
    body: &[u8],
    objects: Option<&Objects>,
    metrics: &Metrics,
) -> Result<Vec<u8>, serde_json::Error> {
    review::answer(body, |request| answer(&request, objects, metrics))
}

/// The response for an object.
fn answer(request: &Request, objects: Option<&Objects>, metrics: &Metrics) -> ReviewAnswer {
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        metrics.count_validated(&request.resource, Some("unsupported_operation"));
        return ReviewAnswer::allow().noting("validation", "none: nothing is stored");
    }

    if !request.object.is_object() {
        metrics.count_validated(&request.resource, Some("yaml_decode_error"));
        return ReviewAnswer::deny("cannot decode configuration: request.object is not an object")
            .noting("validation", "refused");
    }

    let ValidatedObject {
        mut subject,
        object,
        verdict,
    } = validate(&request.object);

    let reason = if object.is_none() {
        "crd_conversion_error"
    } else {
        "invalid_resource"
    };

    metrics.count_validated(&request.resource, (!verdict.is_valid()).then_some(reason));
    if let Some(namespace) = &request.namespace
        && request.object.pointer("/metadata/namespace").is_none()
    {
        subject.namespace.clone_from(namespace);
    }

    if !verdict.is_valid() {
        let fault = verdict.errors.first().map(tracing::field::display);

        if request.is_dry_run() {
            // Nothing would have been stored. Navarch's own trials are dry runs, too.
            tracing::debug!(%subject, fault, "rejected object in a dry run");
        } else {
            tracing::info!(%subject, fault, "rejected object");
        }

        let fields = verdict
            .errors
            .iter()
            .map(|problem| problem.field.as_str())
            .collect::<Vec<_>>()
            .join(", ");

        return ReviewAnswer::deny(denial(&subject.to_string(), &verdict.errors)).noting(
            "validation",
            format!("refused: {}", cut(&fields, MAX_REASON_LENGTH)),
        );
    }

    let mut warnings: Vec<String> = verdict
        .warnings
        .iter()
        .take(WARNINGS)
        .map(|problem| warning(&subject.to_string(), problem))
        .collect();

    if let (Some(object), Some(objects)) = (&object, objects) {
        let left = WARNINGS.saturating_sub(warnings.len());
        let found = neighbours::look(object, objects);
        warnings.extend(
            found
                .iter()
                .take(left)
                .map(|problem| warning(&subject.to_string(), problem)),
        );
    }

    let note = if warnings.is_empty() {
        "valid".to_owned()
    } else {
        format!("valid, {} warnings", warnings.len())
    };

    let mut answer = ReviewAnswer::allow().noting("validation", note);
    answer.warnings = warnings;
    answer
}

/// The message of a rejection: the object, and every error with its field.
fn denial(subject: &str, errors: &[Problem]) -> String {
    let mut text = format!(
        "configuration is invalid: {}",
        cut(subject, MAX_MESSAGE_LENGTH)
    );
    let listed = errors.iter().take(FAULTS);
    for (index, problem) in listed.enumerate() {
        let start = if index == 0 { ": " } else { "; " };
        text.push_str(start);
        text.push_str(&fault(problem, MAX_MESSAGE_LENGTH));
    }
    if errors.len() > FAULTS {
        text.push_str(&format!("; and {} more", errors.len() - FAULTS));
    }
    text
}

/// The text of an error.
fn fault(problem: &Problem, longest: usize) -> String {
    let text = if problem.field.is_empty() {
        problem.message.clone()
    } else {
        problem.to_string()
    };
    cut(&text, longest)
}

/// The text of a warning, within the API server's limit.
fn warning(subject: &str, problem: &Problem) -> String {
    cut(
        &format!("{subject}: {}", fault(problem, MAX_WARNING_LENGTH)),
        MAX_WARNING_LENGTH,
    )
}
