//! Decoding of text or JSON to typed objects: all user input passes through here.
//!
//! ```text
//! text ─▶ documents ─▶ JSON value ─▶ list items ─▶ envelope ─▶ typed object, unknown fields
//!              └──────────┴──────────────┴─────────────┴──────▶ rejected: line, object, field, reason
//! ```
//!
//! An invalid document yields an error and does not affect the others. Unknown kinds are
//! distinguished from errors. Objects are returned as an API server would have stored them: in the
//! namespace `default` if they have none, with the defaults of their kind (Istio's definitions have
//! none), and with valid names.

mod binary;
mod envelope;
mod header;
mod object;
mod pruned;
mod stored;
#[cfg(test)]
mod tests;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::any_object::AnyObject;
use super::field_error::FieldError;
use super::yaml::{self, Schema};

pub use binary::{BinaryError, decode_binary_event, has_binary_form};
pub use envelope::{Subject, served_versions};
use object::{Version, decode_object};
pub use stored::{ServerStatus, StoredObject, WatchEvent, decode_stored, decode_watch_event};

/// The format of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A stream of YAML documents.
    Yaml,
    /// JSON values one after the other.
    Json,
}

/// The outcome of decoding one object of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The line, from 1, of the error; without an error, that of the document.
    pub line: usize,
    /// The identity of the document's object, as far as it is known.
    pub subject: Subject,
    /// The decoded object, or why there is none.
    pub outcome: Outcome,
}

/// The outcome of decoding an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was decoded.
    Read {
        /// Its fields have the right types; whether their values are valid is checked separately.
        object: AnyObject,
        /// Paths of unknown fields, such as `spec.hots`, which are ignored.
        unknown_fields: Vec<String>,
    },
    /// Its kind is unknown.
    Ignored,
    /// It is invalid.
    Rejected(FieldError),
}

/// Reads all objects of a text, in their order. Lists (`kind: List` and the like) become their
/// items.
///
/// The version of an object is the hash of its content, regardless of `metadata.resourceVersion`:
/// users edit objects that they fetched from a server, and keep the old version.
#[must_use]
pub fn decode_documents(text: &str, format: Format) -> Vec<Decoded> {
    match format {
        Format::Yaml => decode_yaml(text),
        Format::Json => decode_json(text),
    }
}

/// Reads one object that a server sent. Its version stays as it is.
#[must_use]
pub fn decode_value(value: &Value) -> (Subject, Outcome) {
    decode_object(value, Version::Written)
}

/// Reads a stream of YAML documents.
fn decode_yaml(stream: &str) -> Vec<Decoded> {
    let mut decoded = Vec::new();
    for document in yaml::documents(stream) {
        let before = document.lines_before;
        match yaml::parse(document.text, Schema::V1_1) {
            Ok(value) => {
                let mut items = decode_items(&value, document.text, before);
                read_again(&mut items, document.text, before);
                decoded.append(&mut items);
            }
            Err(error) => decoded.push(Decoded {
                line: before + error.line,
                subject: header::subject(document.text),
                outcome: Outcome::Rejected(FieldError::new("", error.reason)),
            }),
        }
    }
    decoded
}

/// Retries with YAML 1.2 what is invalid as YAML 1.1.
///
/// Kubernetes' tools reject `name: n`, since `n` is a boolean in YAML 1.1. If that is the only
/// error, the string is used.
fn read_again(items: &mut [Decoded], text: &str, lines_before: usize) {
    if !items
        .iter()
        .any(|item| matches!(item.outcome, Outcome::Rejected(_)))
    {
        return;
    }
    let Ok(value) = yaml::parse(text, Schema::V1_2) else {
        return;
    };

    for (item, (subject, outcome)) in items.iter_mut().zip(decode_each(&value)) {
        match (&item.outcome, outcome) {
            (Outcome::Rejected(_), outcome @ Outcome::Read { .. }) => {
                *item = Decoded {
                    line: lines_before + first_line(text),
                    subject,
                    outcome,
                };
            }
            // The name may be such a word as well.
            (Outcome::Rejected(_), Outcome::Rejected(_)) => item.subject = subject,
            (Outcome::Read { .. } | Outcome::Ignored, _)
            | (Outcome::Rejected(_), Outcome::Ignored) => {}
        }
    }
}

/// Reads JSON values one after the other; everything after a malformed one is lost.
fn decode_json(text: &str) -> Vec<Decoded> {
    let mut decoded = Vec::new();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut start = 0;
    let mut before = 0;

    while let Some(result) = values.next() {
        let end = values.byte_offset();

        match result {
            Ok(value) => {
                let text = text
                    .get(start..end)
                    .expect("a JSON value must end at a character boundary");
                decoded.append(&mut decode_items(&value, text, before));
                before += text.matches('\n').count();
            }
            Err(error) => decoded.push(Decoded {
                line: error.line(),
                subject: Subject::default(),
                outcome: Outcome::Rejected(FieldError::new("", error.to_string())),
            }),
        }

        start = end;
    }

    decoded
}

/// Decodes the object of a document, or the objects of a list, with their lines.
fn decode_items(value: &Value, text: &str, lines_before: usize) -> Vec<Decoded> {
    let is_list = envelope::items(value).is_some();
    let place_item = |(index, (subject, outcome)): (usize, (Subject, Outcome))| {
        let path = if is_list {
            format!("items[{index}]")
        } else {
            String::new()
        };
        place(subject, outcome, &path, text, lines_before)
    };
    decode_each(value)
        .into_iter()
        .enumerate()
        .map(place_item)
        .collect()
}

/// Decodes the object of a document, or the objects of a list.
fn decode_each(value: &Value) -> Vec<(Subject, Outcome)> {
    match envelope::items(value) {
        Some(items) => items
            .map(|item| decode_object(&item, Version::Hash))
            .collect(),
        None => vec![decode_object(value, Version::Hash)],
    }
}

/// Finds the line of an object, or of the error in it. `path` is its path from the document's root.
fn place(
    subject: Subject,
    outcome: Outcome,
    path: &str,
    text: &str,
    lines_before: usize,
) -> Decoded {
    let (line, outcome) = match outcome {
        Outcome::Rejected(error) => {
            let from_root = if path.is_empty() {
                error.clone()
            } else {
                error.clone().under(path)
            };
            (
                yaml::line_of(text, &from_root.path),
                Outcome::Rejected(error),
            )
        }
        Outcome::Read { .. } | Outcome::Ignored => (None, outcome),
    };

    let line = line.unwrap_or_else(|| first_line(text));
    Decoded {
        line: lines_before + line,
        subject,
        outcome,
    }
}

/// The first line, from 1, that is neither blank nor a comment.
fn first_line(text: &str) -> usize {
    let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    1 + text.lines().take_while(|line| is_empty(line)).count()
}

/// The hash of a value, in hex: equal for equal values, in whichever order their fields were
/// written.
fn content_hash(value: &Value) -> String {
    let mut hasher = Sha256::new();
    hash_value(value, &mut hasher);
    format!("{:x}", hasher.finalize())
}

/// Feeds a value to a hash, its fields in the order of their names.
fn hash_value(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(value) => hasher.update(if *value { b"t" } else { b"f" }),
        Value::Number(number) => hash_text(b'd', &number.to_string(), hasher),
        Value::String(text) => hash_text(b's', text, hasher),
        Value::Array(items) => {
            hash_text(b'[', &items.len().to_string(), hasher);
            items.iter().for_each(|item| hash_value(item, hasher));
        }
        Value::Object(members) => {
            hash_text(b'{', &members.len().to_string(), hasher);
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| key.as_str());
            for (key, value) in members {
                hash_text(b'k', key, hasher);
                hash_value(value, hasher);
            }
        }
    }
}

/// Feeds a text to a hash with its kind and its length, so that no two values feed the same bytes.
fn hash_text(tag: u8, text: &str, hasher: &mut Sha256) {
    hasher.update([tag]);
    hasher.update(text.len().to_string());
    hasher.update(b":");
    hasher.update(text);
}
