//! Excerpts of texts of clients, as they are shown in statuses, Events, logs and on terminals.

use navarch_api::printable::is_unprintable;

/// The longest excerpt in characters, escapes included, without the quotes.
const MAX_CHARACTERS: usize = 200;

/// A bounded excerpt of a client's text in quotes. Characters that could change a terminal, a line
/// of a log or the order of what stands beside them are escaped.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let mut shown = String::from("\"");
    let mut length = 0;

    for sign in text.chars() {
        let is_plain = !is_unprintable(sign) && sign != '"' && sign != '\\';
        let escaped = if is_plain {
            sign.to_string()
        } else {
            sign.escape_default().to_string()
        };

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
