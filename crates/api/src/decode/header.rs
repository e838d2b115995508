//! Telling what a document that is no YAML was meant to be.

use serde_json::Value;

use super::envelope::Subject;
use crate::yaml::{self, Schema};

/// The keys whose blocks say what an object is.
const HEADER_KEYS: [&str; 3] = ["apiVersion:", "kind:", "metadata:"];

/// The object that a broken document speaks of, as far as its head can be read.
///
/// Faults mostly stand in the spec: the blocks of the head alone are then good YAML.
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
    yaml::parse(&head, Schema::V1_2).as_ref().map_or_else(|_| Subject::default(), |value: &Value| Subject::of(value))
}
