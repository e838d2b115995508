//! Objects of YAML, for tests of this crate's users.

use super::any_object::AnyObject;
use super::decode::{Decoded, Format, Outcome, decode_documents};

/// The objects of a text, in their order.
///
/// # Panics
/// If one is invalid, or of an unknown kind.
#[must_use]
pub fn objects(yaml: &str) -> Vec<AnyObject> {
    let object = |decoded: Decoded| {
        let object = match decoded.outcome {
            Outcome::Read { object, .. } => Ok(object),
            other @ (Outcome::Ignored | Outcome::Rejected(_)) => Err((decoded.line, other)),
        };
        object.expect("each document is a valid object")
    };
    let documents = decode_documents(yaml, Format::Yaml).into_iter();
    documents.map(object).collect()
}

/// The only object of a text.
///
/// # Panics
/// As [`objects`], or if there is not exactly one.
#[must_use]
pub fn object(yaml: &str) -> AnyObject {
    let only: Result<[AnyObject; 1], _> = objects(yaml).try_into();
    let [object] = only.expect("one object");
    object
}
