//! YAML as text that users write, and values with the lines on which they stand.
//!
//! A key that stands twice is refused, and what one document may cost is bounded, so that a hostile file cannot blow up.

mod documents;
mod locate;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, MessageFormatter, Options, UserMessageFormatter, budget, options};

pub use documents::{Document, documents};
pub use locate::{line_of, scalar_lines};

/// The longest text of one document that is read, in bytes. Kubernetes stores no object above 3 MiB; a list of
/// objects may be longer.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// The deepest nesting that is read. The deepest kinds nest some twenty levels.
const MAX_DEPTH: usize = 64;

/// The most scalars, lists and maps of one document that are read.
const MAX_NODES: usize = 4_000_000;

/// The most nodes to which aliases may expand in one document. Users who write anchors by hand need a few hundred.
const MAX_REPLAYED: usize = 100_000;

/// What plain scalars mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// As Kubernetes' own tools read them: `on`, `yes` and `y` are booleans, `0644` is octal.
    V1_1,
    /// As YAML has it since 2009: `true` and `false` alone are booleans.
    V1_2,
}

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct SyntaxError {
    /// The line, from 1 and from the start of the text.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads one document.
///
/// # Errors
/// When it is not YAML, or costs more than a document may.
pub fn parse(text: &str, schema: Schema) -> Result<Value, SyntaxError> {
    deserialize(text, reader_options(schema))
}

/// As [`parse`], but of a key that stands twice the last counts, as Kubernetes' libraries for Go have it.
///
/// # Errors
/// As [`parse`].
pub fn parse_last_wins(text: &str, schema: Schema) -> Result<Value, SyntaxError> {
    let mut options = reader_options(schema);
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    deserialize(text, options)
}

/// Reads one document into any type.
fn deserialize<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, SyntaxError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let reason = format!("the document has {} bytes, at most {MAX_DOCUMENT_BYTES} are read", text.len());
        return Err(SyntaxError { line: 1, reason });
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
        let reason = UserMessageFormatter.format_message(error.without_snippet()).into_owned();
        SyntaxError { line: line.unwrap_or(1), reason }
    })
}

/// How documents are read and what they may cost.
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
