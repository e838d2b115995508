//! Direct decoding of bytes to objects, for the kinds with the most objects: texts that other
//! objects have already are not copied.
//!
//! Only valid objects are decoded here; others are left to the general decoder, which reports
//! errors.

mod endpoint_slice;
mod meta;
mod pod;
mod service;

use super::envelope;
use super::fields::{UnexpectedField, messages};
use crate::any_object::AnyObject;
use crate::decode::stored::{StoredObject, WatchEvent};
use crate::decode::{Outcome, Subject};
use crate::object::{Kind, Object};
use crate::shared_texts::SharedTexts;

/// Decodes an event that adds or modifies an object; `None` for other events, or if it must be left
/// to the general decoder.
#[expect(clippy::wildcard_enum_match_arm, reason = "other types are rare")]
pub(super) fn event(kind: Kind, frame: &[u8], texts: &mut SharedTexts) -> Option<WatchEvent> {
    let stored = match kind {
        Kind::Pod => put(frame, texts, pod::read),
        Kind::EndpointSlice => put(frame, texts, endpoint_slice::read),
        Kind::Service => put(frame, texts, service::read),
        _ => return None,
    };
    stored.ok().map(WatchEvent::Put)
}

/// Reads an object and its version.
type Read<T> = fn(&[u8], &mut SharedTexts) -> Result<(Object<T>, String), UnexpectedField>;

/// Decodes an event that adds or modifies an object.
fn put<T>(
    frame: &[u8],
    texts: &mut SharedTexts,
    read: Read<T>,
) -> Result<StoredObject, UnexpectedField>
where
    AnyObject: From<Object<T>>,
{
    let [happened, object] = messages(frame, [1, 2])?;
    if !matches!(happened, Some(b"ADDED" | b"MODIFIED")) {
        return Err(UnexpectedField);
    }
    let [raw] = messages(object.ok_or(UnexpectedField)?, [1])?;
    let content = envelope::content(raw.ok_or(UnexpectedField)?).map_err(|_| UnexpectedField)?;
    let (object, version) = read(content, texts)?;
    let outcome = Outcome::Read {
        object: object.into(),
        unknown_fields: Vec::new(),
    };
    Ok(StoredObject {
        version,
        subject: Subject::default(),
        outcome,
    })
}
