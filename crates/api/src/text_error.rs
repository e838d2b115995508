//! What is wrong with a text that a user wrote, and where.

use std::fmt;

use super::field_error::FieldError;
use super::yaml::{self, SyntaxError};

/// A fault in a text: its line and, where the text could be read at all, its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The field and what is wrong with it; the path is empty where the text as a whole is at fault.
    pub field: FieldError,
}

impl TextError {
    /// A fault in a field of the document `text`, whose line is looked up.
    #[must_use]
    pub fn in_field(text: &str, field: FieldError) -> Self {
        Self { line: yaml::line_of(text, &field.path).unwrap_or(1), field }
    }

    /// The same fault, seen from a stream that has `lines` lines before the document.
    #[must_use]
    pub fn after_lines(self, lines: usize) -> Self {
        Self { line: self.line + lines, field: self.field }
    }
}

impl From<SyntaxError> for TextError {
    fn from(error: SyntaxError) -> Self {
        Self { line: error.line, field: FieldError::new("", error.reason) }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.field)
    }
}

impl std::error::Error for TextError {}
