//! The verdict on a single object: istiod's validation, and the fields that are ignored.

use std::borrow::Cow;

use serde_json::{Value, json};

use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, Subject, decode_value, served_versions};
use navarch_api::validation::{Problem, Verdict, validate_any};
use navarch_store::Objects;

/// The group of the Gateway API, whose kinds only the API server validates.
const GATEWAY_API: &str = "gateway.networking.k8s.io/";
/// Maximum number of reported unknown fields.
const UNKNOWN_FIELDS: usize = 20;

/// An object and its verdict.
#[derive(Clone, Debug)]
pub struct ValidatedObject {
    /// The identity of the object.
    pub subject: Subject,
    /// The object, if it is valid and of a known kind.
    pub object: Option<AnyObject>,
    /// Errors reject the object; warnings are for the author of a valid one.
    pub verdict: Verdict,
}

/// Validates an object that the API server is about to store.
#[must_use]
pub fn validate(object: &Value) -> ValidatedObject {
    let object = settle(object);
    let (subject, outcome) = decode_value(&object);
    let rejected = |field: String, message: String| Verdict {
        errors: vec![Problem { field, message }],
        warnings: Vec::new(),
    };

    match outcome {
        Outcome::Read {
            object,
            unknown_fields,
        } => {
            let mut verdict = validate_any(&object);
            report_unknown(&unknown_fields, &mut verdict);
            ValidatedObject {
                subject,
                object: Some(object),
                verdict,
            }
        }
        Outcome::Rejected(error) => ValidatedObject {
            subject,
            object: None,
            verdict: rejected(error.path, error.reason),
        },
        Outcome::Ignored if subject.api_version.starts_with(GATEWAY_API) => ValidatedObject {
            subject,
            object: None,
            verdict: Verdict::default(),
        },
        Outcome::Ignored => {
            let message = format!(
                "unrecognized type {} of {}: the kind is not validated",
                subject.kind, subject.api_version
            );
            ValidatedObject {
                subject,
                object: None,
                verdict: rejected("kind".to_owned(), message),
            }
        }
    }
}

/// Mismatches with existing objects. They are only warnings, because objects are created in any
/// order.
#[must_use]
pub fn around(object: &AnyObject, objects: &Objects) -> Vec<Problem> {
    super::neighbours::look(object, objects)
}

/// Prepares an object for decoding: replaces an unknown version of a known kind with a known one,
/// because all versions decode to the same type, and sets a temporary name if the API server
/// generates the name.
fn settle(object: &Value) -> Cow<'_, Value> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };

    let mut object = Cow::Borrowed(object);
    let subject = Subject {
        api_version: text("/apiVersion").to_owned(),
        kind: text("/kind").to_owned(),
        ..Subject::default()
    };

    if let (Some(kind), Some((group, version))) =
        (subject.known_kind(), subject.api_version.split_once('/'))
        && let [best, ..] = served_versions(kind)
        && !served_versions(kind).contains(&version)
        && let Some(members) = object.to_mut().as_object_mut()
    {
        members.insert("apiVersion".to_owned(), json!(format!("{group}/{best}")));
    }

    if object
        .pointer("/metadata/name")
        .is_none_or(|name| name == "")
        && let Some(metadata) = object
            .to_mut()
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
    {
        let stem = metadata
            .get("generateName")
            .and_then(Value::as_str)
            .unwrap_or("nameless-");
        let name = format!("{stem}x");
        metadata.insert("name".to_owned(), Value::String(name));
    }

    object
}

/// Reports unknown fields: top-level ones are errors, as in istiod; nested ones are warnings.
fn report_unknown(fields: &[String], verdict: &mut Verdict) {
    let (within, beside): (Vec<_>, Vec<_>) =
        fields.iter().partition(|field| field.contains(['.', '[']));
    for field in beside.into_iter().take(UNKNOWN_FIELDS) {
        let message =
            "unknown field: an object has apiVersion, kind, metadata, spec and status".to_owned();
        verdict.errors.push(Problem {
            field: field.clone(),
            message,
        });
    }

    let more = within.len().saturating_sub(UNKNOWN_FIELDS);

    for field in within.into_iter().take(UNKNOWN_FIELDS) {
        verdict.warnings.push(Problem {
            field: field.clone(),
            message: UNKNOWN.to_owned(),
        });
    }

    if more > 0 {
        let message = format!("{more} more unknown fields, which are ignored");
        verdict.warnings.push(Problem {
            field: "spec".to_owned(),
            message,
        });
    }
}

/// The warning about an unknown field.
pub const UNKNOWN: &str = "unknown field, which is ignored; is it misspelled?";
