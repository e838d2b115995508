//! The definitions, generated from the types of the specs: what [`YAML`](super::YAML) must be.
//!
//! ```text
//! Rust type ──schemars──▶ definitions ──limits (by type and field)──▶ structural (one tree per kind) ──▶ CRD
//! ```

mod definitions;
mod document;
mod limit;
mod limits;
mod structural;

use serde_json::Value;

use super::kinds::KINDS;
use definitions::DEFINITIONS;

/// The definitions of all kinds, in the order of their groups and names.
pub(super) fn documents() -> Vec<Value> {
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.kind).collect();
    let defined: Vec<&str> = DEFINITIONS.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, defined, "each kind has a definition");

    let both = KINDS.iter().zip(DEFINITIONS);
    both.map(|(kind, definition)| document::document(kind, definition))
        .collect()
}

/// The definitions of all kinds as YAML documents.
pub(super) fn yaml() -> String {
    let mut text = String::new();
    for document in documents() {
        text.push_str("---\n");
        serde_saphyr::to_fmt_writer(&mut text, &document).unwrap();
    }
    text
}
