//! Reads variables by type.

use std::collections::BTreeSet;
use std::time;

use navarch_api::duration::Duration;
use navarch_base::go_text::parse_bool;
use parking_lot::Mutex;

/// Makes variables with invalid values fatal.
pub(in crate::cli) const STRICT: &str = "NAVARCH_STRICT_ENVIRONMENT";
const BOOLEAN: &str = "boolean (true or false)";
const DURATION: &str = "duration such as 15s";

/// The variables of the process with invalid values that were logged.
static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not a valid {expected}")]
pub struct VariableError {
    /// The environment variable, such as `PILOT_ENABLE_AMBIENT`.
    pub name: String,
    /// The invalid value.
    pub value: String,
    /// The expected type.
    pub expected: &'static str,
}

/// The value of a variable, parsed. `None` if it is unset or empty, and if its value is invalid:
/// then a warning is logged, and the default applies, as in istiod.
///
/// # Errors
/// If the value is invalid and `NAVARCH_STRICT_ENVIRONMENT` is set to anything but `false`.
pub(in crate::cli) fn parsed<T>(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, VariableError> {
    let text = |name: &str| variable(name).filter(|value| !value.is_empty());
    // Who mistypes `true` wants strictness as well.
    let is_strict = text(STRICT).is_some_and(|value| parse_bool(&value) != Some(false));
    let Some(value) = text(name) else {
        return Ok(None);
    };

    match parse(&value) {
        Some(parsed) => Ok(Some(parsed)),
        None if is_strict => Err(VariableError {
            name: name.to_owned(),
            value,
            expected,
        }),
        None => {
            if is_first(name) {
                tracing::warn!(
                    variable = name,
                    value,
                    expected,
                    "environment variable with an invalid value: its default applies"
                );
            }
            Ok(None)
        }
    }
}

/// Whether the invalid value of a variable was not logged yet: several settings may read one.
fn is_first(name: &str) -> bool {
    LOGGED.lock().insert(name.to_owned())
}

/// A boolean variable, as by [`parsed`].
///
/// # Errors
/// As of [`parsed`].
pub(in crate::cli) fn boolean(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
) -> Result<Option<bool>, VariableError> {
    parsed(variable, name, BOOLEAN, parse_bool)
}

/// A duration that is not negative, as by [`parsed`].
///
/// # Errors
/// As of [`parsed`].
pub(in crate::cli) fn duration(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
) -> Result<Option<time::Duration>, VariableError> {
    parsed(variable, name, DURATION, |text| {
        Duration::parse(text).ok().and_then(Duration::as_std)
    })
}

/// Reads variables by type.
pub(super) struct Reader<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl Reader<'_> {
    /// The value, if it is set and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Sets the field, if the variable is set to a valid value.
    pub(super) fn set<T>(
        &self,
        name: &str,
        field: &mut T,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<(), VariableError> {
        if let Some(value) = parsed(self.0, name, expected, parse)? {
            *field = value;
        }
        Ok(())
    }

    /// Reads a boolean.
    pub(super) fn flag(&self, name: &str, field: &mut bool) -> Result<(), VariableError> {
        self.set(name, field, BOOLEAN, parse_bool)
    }

    /// Reads a non-negative number.
    pub(super) fn number(&self, name: &str, field: &mut u32) -> Result<(), VariableError> {
        self.set(name, field, "whole number", |text| text.parse().ok())
    }

    /// Reads a duration.
    pub(super) fn duration(&self, name: &str, field: &mut Duration) -> Result<(), VariableError> {
        self.set(name, field, DURATION, |text| Duration::parse(text).ok())
    }

    /// Reads a text.
    pub(super) fn words(&self, name: &str, field: &mut String) {
        if let Some(value) = self.text(name) {
            *field = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_value_is_logged_once() {
        let found = ["X_ONCE_A", "X_ONCE_A", "X_ONCE_B", "X_ONCE_A"].map(is_first);
        assert_eq!(found, [true, false, true, false]);
    }
}
