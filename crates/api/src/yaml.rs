//! YAML that users write, parsed to values with their lines.
//!
//! A duplicate key is an error, and the cost of one document is bounded, so that a hostile file
//! cannot exhaust resources.

mod documents;
mod locate;
mod quoted;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{
    DuplicateKeyPolicy, MessageFormatter, Options, UserMessageFormatter, budget, options,
};

pub use documents::{Document, documents};
pub use locate::{line_of, scalar_lines};

/// The maximum size of one document, in bytes. Kubernetes stores no object above 3 MiB; a list of
/// objects may be larger.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// The maximum nesting depth. The deepest kinds nest about twenty levels.
const MAX_DEPTH: usize = 64;

/// The maximum number of scalars, lists and maps in one document.
const MAX_NODES: usize = 4_000_000;

/// The maximum number of nodes to which aliases expand in one document. Anchors that users write by
/// hand need a few hundred.
const MAX_REPLAYED: usize = 100_000;

/// How plain scalars are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// As in Kubernetes' own tools: `on`, `yes` and `y` are booleans, `0644` is octal.
    V1_1,
    /// As in YAML since 2009: only `true` and `false` are booleans.
    V1_2,
}

/// Why a text cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct SyntaxError {
    /// The line, from 1 and from the start of the text.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Parses one document.
///
/// # Errors
/// When it is not YAML, or costs more than a document may.
pub fn parse(text: &str, schema: Schema) -> Result<Value, SyntaxError> {
    deserialize(text, reader_options(schema))
}

/// Writes a value as one document.
#[must_use]
pub fn write(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("YAML can express every JSON value")
}

/// Like [`parse`], but the last of duplicate keys is used, as in Kubernetes' libraries for Go.
///
/// # Errors
/// As [`parse`].
pub fn parse_last_wins(text: &str, schema: Schema) -> Result<Value, SyntaxError> {
    let mut options = reader_options(schema);
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    deserialize(text, options)
}

/// Deserializes one document into any type.
fn deserialize<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, SyntaxError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let reason = format!(
            "the document has {} bytes, at most {MAX_DOCUMENT_BYTES} are read",
            text.len()
        );
        return Err(SyntaxError { line: 1, reason });
    }

    match read(text, options.clone()) {
        Err(error) if error.reason.contains(quoted::ERROR) => quoted::indented(text)
            .and_then(|text| read(&text, options).ok())
            .ok_or(error),
        outcome => outcome,
    }
}

/// Deserializes a text that YAML's rules of indentation apply to.
fn read<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, SyntaxError> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error
            .location()
            .and_then(|location| usize::try_from(location.line()).ok());
        let reason = UserMessageFormatter
            .format_message(error.without_snippet())
            .into_owned();
        SyntaxError {
            line: line.unwrap_or(1),
            reason,
        }
    })
}

/// The options and limits for parsing documents.
fn reader_options(schema: Schema) -> Options {
    options! {
        budget: budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: MAX_NODES.saturating_mul(2),
            max_total_scalar_bytes: MAX_DOCUMENT_BYTES,
            max_documents: 1,
            enforce_alias_anchor_ratio: false,
            max_anchors: 1_000,
            max_aliases: 10_000,
            max_recorded_anchor_events: MAX_REPLAYED,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        legacy_octal_numbers: schema == Schema::V1_1,
        strict_booleans: schema == Schema::V1_2,
        with_snippet: false,
    }
}
