//! The format of state that outlives the process that wrote it: replicas, later starts, and other
//! releases read it.
//!
//! Readers ignore unknown fields, so that a field can be added without another format. Any other
//! change raises the number. State without a number has format 1. State of a higher format is
//! neither interpreted nor replaced, as an older reader would lose or misread a part of it.

use serde::Deserialize;

/// The field or entry with the number of the format.
pub const KEY: &str = "format";

/// Why state cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A later release wrote it.
    #[error(
        "format is {found}, written by a later release of Navarch; this release supports format {supported}"
    )]
    Newer {
        /// The number in the state.
        found: u32,
        /// The highest number that this release reads.
        supported: u32,
    },
    /// The number is invalid.
    #[error("format is {0:?}, expected a number from 1")]
    Invalid(String),
}

impl FormatError {
    /// Whether a later release can read the state.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Newer { .. })
    }
}

/// The number of state whose writer knew no numbers; a default for serde.
#[must_use]
pub fn first() -> u32 {
    1
}

/// Checks the number of a format.
///
/// # Errors
/// If it is higher than `supported`, or 0.
pub fn check(found: u32, supported: u32) -> Result<(), FormatError> {
    match found {
        0 => Err(FormatError::Invalid(found.to_string())),
        _ if found > supported => Err(FormatError::Newer { found, supported }),
        _ => Ok(()),
    }
}

/// Checks a number as text; `None` is the first format.
///
/// # Errors
/// If it is higher than `supported`, or no number.
pub fn check_text(found: Option<&str>, supported: u32) -> Result<(), FormatError> {
    let Some(text) = found else {
        return Ok(());
    };
    let number = text
        .parse::<u32>()
        .map_err(|_| FormatError::Invalid(text.to_owned()))?;
    check(number, supported)
}

/// Checks the field [`KEY`] of a JSON object, before the other fields are parsed: a later format
/// may have changed them. Invalid JSON is left to that parser.
///
/// # Errors
/// If the number is higher than `supported`, or 0.
pub fn check_json(json: &[u8], supported: u32) -> Result<(), FormatError> {
    #[derive(Deserialize)]
    struct Numbered {
        #[serde(default = "first")]
        format: u32,
    }

    match serde_json::from_slice::<Numbered>(json) {
        Ok(numbered) => check(numbered.format, supported),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_later_release_is_rejected_with_both_numbers() {
        let newer = FormatError::Newer {
            found: 3,
            supported: 2,
        };
        assert_eq!(check_text(Some("3"), 2), Err(newer.clone()));
        assert_eq!(
            check_json(br#"{"format":3,"roots":[{}]}"#, 2),
            Err(newer.clone())
        );
        assert_eq!(
            newer.to_string(),
            "format is 3, written by a later release of Navarch; this release supports format 2"
        );
    }

    #[test]
    fn state_of_this_and_of_earlier_releases_is_read() {
        for found in [None, Some("1"), Some("2")] {
            assert_eq!(check_text(found, 2), Ok(()), "{found:?}");
        }
        for found in ["{}", r#"{"format":1}"#, r#"{"format":2}"#, "not JSON"] {
            assert_eq!(check_json(found.as_bytes(), 2), Ok(()), "{found}");
        }
    }

    #[test]
    fn formats_that_are_not_positive_numbers_are_rejected() {
        for found in ["", "0", "-1", "two", "4294967296"] {
            assert!(
                matches!(check_text(Some(found), 2), Err(FormatError::Invalid(text)) if text == found),
                "{found}"
            );
        }
        assert!(check_json(br#"{"format":0}"#, 2).is_err());
    }
}
