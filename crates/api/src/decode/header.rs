//! The identity of the object of an invalid YAML document.

use serde_json::Value;

use super::envelope::Subject;
use crate::yaml::{self, Schema};

/// The keys whose blocks identify an object.
const HEADER_KEYS: [&str; 3] = ["apiVersion:", "kind:", "metadata:"];

/// The identity of the object of a malformed document, as far as its head is valid.
///
/// Errors are mostly in the spec: the blocks of the head alone are then valid YAML.
pub(super) fn subject(text: &str) -> Subject {
    let mut head = String::new();
    let mut in_head = false;
    for line in text.lines() {
        if !line.starts_with([' ', '\t', '#', '-']) && !line.trim().is_empty() {
            in_head = HEADER_KEYS.iter().any(|key| line.starts_with(key));
        }
        if in_head {
            head.push_str(line);
            head.push('\n');
        }
    }
    yaml::parse(&head, Schema::V1_2)
        .as_ref()
        .map_or_else(|_| Subject::default(), |value: &Value| Subject::of(value))
}
