//! Reads variables by type.

use navarch_api::duration::Duration;
use navarch_api::go_text::parse_bool;

/// A variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not a valid {expected}")]
pub struct VariableError {
    /// The environment variable, such as `PILOT_ENABLE_AMBIENT`.
    pub name: &'static str,
    /// The invalid value.
    pub value: String,
    /// The expected type.
    pub expected: &'static str,
}

/// Reads variables by type.
pub(super) struct Reader<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl Reader<'_> {
    /// The value, if it is set and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Sets the field, if the variable is set.
    pub(super) fn set<T>(
        &self,
        name: &'static str,
        field: &mut T,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<(), VariableError> {
        if let Some(value) = self.text(name) {
            *field = parse(&value).ok_or(VariableError {
                name,
                value,
                expected,
            })?;
        }
        Ok(())
    }

    /// Reads a boolean.
    pub(super) fn flag(&self, name: &'static str, field: &mut bool) -> Result<(), VariableError> {
        self.set(name, field, "boolean (true or false)", parse_bool)
    }

    /// Reads a non-negative number.
    pub(super) fn number(&self, name: &'static str, field: &mut u32) -> Result<(), VariableError> {
        self.set(name, field, "whole number", |text| text.parse().ok())
    }

    /// Reads a duration.
    pub(super) fn duration(
        &self,
        name: &'static str,
        field: &mut Duration,
    ) -> Result<(), VariableError> {
        self.set(name, field, "duration such as 15s", |text| {
            Duration::parse(text).ok()
        })
    }

    /// Reads a text.
    pub(super) fn words(&self, name: &str, field: &mut String) {
        if let Some(value) = self.text(name) {
            *field = value;
        }
    }
}
