//! An error in a text that a user wrote, with its position.

use std::fmt;

use super::field_error::FieldError;
use super::yaml::{self, SyntaxError};

/// An error in a text: its line and, if the text could be parsed, its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// The field and the error in it; the path is empty if the whole text is invalid.
    pub field: FieldError,
}

impl TextError {
    /// An error in a field of the document `text`; its line is looked up.
    #[must_use]
    pub fn in_field(text: &str, field: FieldError) -> Self {
        Self {
            line: yaml::line_of(text, &field.path).unwrap_or(1),
            field,
        }
    }
}

impl From<SyntaxError> for TextError {
    fn from(error: SyntaxError) -> Self {
        Self {
            line: error.line,
            field: FieldError::new("", error.reason),
        }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.field)
    }
}

impl std::error::Error for TextError {}
