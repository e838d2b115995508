//! Excerpts of texts of clients, as they are shown in statuses, Events, logs and on terminals.

use std::fmt;

use navarch_base::printable::{Layout, bounded};

/// The longest excerpt in bytes, escapes included, without the quotes.
const MAX_LEN: usize = 200;

/// An excerpt, whose `Display` has quotes and escapes. It is no text, which logs would escape a
/// second time.
#[derive(Clone, Debug)]
pub struct Excerpt(String);

/// A bounded excerpt of a client's text in quotes. Characters that could change a terminal, a line
/// of a log or the order of what stands beside them are escaped.
#[must_use]
pub fn excerpt(text: &str) -> Excerpt {
    Excerpt(bounded(text, MAX_LEN, Layout::Quoted))
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_without_control_characters() {
        assert_eq!(excerpt("no such filter").to_string(), "\"no such filter\"");
        assert_eq!(
            excerpt("a\n\u{1b}[2J\u{202e}\"ü").to_string(),
            "\"a\\n\\u{1b}[2J\\u{202e}\\\"ü\""
        );

        let long = excerpt(&"\u{7}x".repeat(2_000)).to_string();
        assert!(long.len() <= MAX_LEN + 2, "{long}");
        assert!(long.ends_with("…\"") && !long.chars().any(char::is_control));
    }
}
