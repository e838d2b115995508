//! Excerpts of texts of clients, as they are shown in statuses, Events, logs and on terminals.

use std::fmt::Write as _;

/// The longest excerpt in characters, escapes included, without the quotes.
const MAX_CHARACTERS: usize = 200;

/// A bounded excerpt of a client's text in quotes. Characters that could change a terminal, a line
/// of a log or the order of what stands beside them are escaped.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let mut shown = String::from("\"");
    let mut length = 0;

    for sign in text.chars() {
        let mut escaped = String::new();
        if is_plain(sign) {
            escaped.push(sign);
        } else {
            // Writing to a String never fails.
            _ = write!(escaped, "{}", sign.escape_default());
        }

        length += escaped.chars().count();
        if length > MAX_CHARACTERS {
            shown.push('…');
            break;
        }
        shown.push_str(&escaped);
    }

    shown.push('"');
    shown
}

/// Whether a character is shown as it is: not a quote, control, line separator, or mark of
/// direction.
fn is_plain(sign: char) -> bool {
    let is_direction = matches!(
        sign,
        '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    !sign.is_control() && !is_direction && sign != '"' && sign != '\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_without_control_characters() {
        assert_eq!(excerpt("no such filter"), "\"no such filter\"");
        assert_eq!(
            excerpt("a\n\u{1b}[2J\u{202e}\"ü"),
            "\"a\\n\\u{1b}[2J\\u{202e}\\\"ü\""
        );

        let long = excerpt(&"\u{7}x".repeat(2_000));
        assert!(long.chars().count() <= MAX_CHARACTERS + 3, "{long}");
        assert!(long.ends_with("…\"") && !long.chars().any(char::is_control));
    }
}
