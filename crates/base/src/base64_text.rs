//! base64 that users write, read as Go reads it: line breaks within it count for nothing, as in
//! what `base64 FILE` prints.

use std::borrow::Cow;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};

/// What Go's decoder ignores.
const BREAKS: [char; 2] = ['\r', '\n'];

/// The text without line breaks.
#[must_use]
pub fn joined(text: &str) -> Cow<'_, str> {
    if text.contains(BREAKS) {
        Cow::Owned(text.replace(BREAKS, ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// The bytes of a text.
///
/// # Errors
/// If the text is not base64.
pub fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    STANDARD.decode(joined(text).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_ignored_and_other_space_is_invalid() {
        assert_eq!(decode("YW\nJj\r\n").unwrap(), b"abc");
        assert_eq!(decode("YWJj").unwrap(), b"abc");
        assert!(decode("YW Jj").is_err());
    }
}
