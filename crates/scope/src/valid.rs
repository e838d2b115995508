//! Suggested objects are valid by the rules of the admission webhook.

use navarch_api::any_object::AnyObject;
use navarch_api::decode::{Outcome, decode_value};
use navarch_api::field_error::FieldError;
use navarch_api::validation::validate_any;
use serde_json::Value;

/// Reads an object and validates it.
///
/// # Errors
/// With the first reason for which it would be rejected.
pub(crate) fn valid(object: &Value) -> Result<AnyObject, FieldError> {
    let (_, outcome) = decode_value(object);
    let object = match outcome {
        Outcome::Read { object, .. } => object,
        Outcome::Ignored => return Err(FieldError::new("kind", "is not read by Navarch")),
        Outcome::Rejected(error) => return Err(error),
    };
    let verdict = validate_any(&object);
    match verdict.errors.into_iter().next() {
        Some(problem) => Err(problem.into()),
        None => Ok(object),
    }
}
