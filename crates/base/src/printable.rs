//! Text that clients, annotations and proxies choose, made safe to show to operators: in logs,
//! statuses, terminals and commands that they may copy.
//!
//! Log lines are escaped as a whole by [`EscapedLines`], output of commands by [`escape_lines`] and
//! [`escape_body`], so that no caller can forget it. Where a line of such an output has a name or a
//! message in it, this is escaped by [`escape`]: it must not add lines.

mod characters;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

use serde::de::IgnoredAny;

pub use characters::is_unprintable;

/// `text` in one line, with unprintable characters as in Rust's string literals: `\n`, `\u{1b}`.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_except(text, &[])
}

/// As [`escape`], but the lines of `text` stay lines, and tabs stay tabs.
#[must_use]
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_except(text, &['\n', '\t'])
}

/// The texts in one line, each as by [`escape`], with commas between them.
#[must_use]
pub fn escape_list<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let escaped: Vec<_> = texts.into_iter().map(|text| escape(text)).collect();
    escaped.join(", ")
}

/// A document of JSON with unprintable characters as JSON's escapes, such as `\u202e`: it has the
/// same value. Line breaks and tabs stay: in JSON they are only between values.
#[must_use]
pub fn escape_json(json: &str) -> Cow<'_, str> {
    escape_with(
        json,
        |character| !is_unprintable(character) || matches!(character, '\n' | '\t'),
        push_json_escape,
    )
}

/// The body of a response, as [`escape_json`] if it is JSON, else as [`escape_lines`].
#[must_use]
pub fn escape_body(body: &str) -> Cow<'_, str> {
    match serde_json::from_str::<IgnoredAny>(body) {
        Ok(_) => escape_json(body),
        Err(_) => escape_lines(body),
    }
}

/// What stays in a [`bounded`] text of the characters that could be escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Line breaks and tabs stay, as by [`escape_lines`].
    Lines,
    /// Nothing unprintable stays, and quotes and backslashes are escaped as well: the text can
    /// stand between double quotes.
    Quoted,
}

/// The mark of a text that was cut.
const CUT: char = '…';

/// At most `max_len` bytes of `text` with their escapes, and with `…` in place of the rest. It is
/// cut between characters and between escapes; `max_len` is at least the 3 bytes of the mark.
#[must_use]
pub fn bounded(text: &str, max_len: usize, layout: Layout) -> String {
    let stays = |character: char| match layout {
        Layout::Lines => !is_unprintable(character) || matches!(character, '\n' | '\t'),
        Layout::Quoted => !is_unprintable(character) && !matches!(character, '"' | '\\'),
    };

    let mut bounded = String::new();
    let mut len_with_room = 0;
    for character in text.chars() {
        if bounded.len() + CUT.len_utf8() <= max_len {
            len_with_room = bounded.len();
        }
        if stays(character) {
            bounded.push(character);
        } else {
            push_escaped(&mut bounded, character);
        }

        if bounded.len() > max_len {
            bounded.truncate(len_with_room);
            bounded.push(CUT);
            break;
        }
    }
    bounded
}

/// `text` as one word of a POSIX shell: unchanged if it needs no quotes.
#[must_use]
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "._-/:=@%+,".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }

    let escaped = escape(text);
    Cow::Owned(format!("'{}'", escaped.replace('\'', r"'\''")))
}

fn escape_except<'a>(text: &'a str, allowed: &[char]) -> Cow<'a, str> {
    escape_with(
        text,
        |character| !is_unprintable(character) || allowed.contains(&character),
        push_escaped,
    )
}

/// `text` with the characters that do not stay in the form that `push` appends.
fn escape_with(
    text: &str,
    stays: impl Fn(char) -> bool,
    push: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }

    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if stays(character) {
            escaped.push(character);
        } else {
            push(&mut escaped, character);
        }
    }
    Cow::Owned(escaped)
}

/// Appends the escape of a character.
fn push_escaped(text: &mut String, character: char) {
    match character {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        '"' | '\\' => text.extend(['\\', character]),
        other => {
            write!(text, "\\u{{{:x}}}", u32::from(other)).expect("a String takes all text");
        }
    }
}

/// Appends the escape of a character in a string of JSON: one for each unit of UTF-16.
fn push_json_escape(text: &mut String, character: char) {
    if character == '\r' {
        // Only between values, like a space; a terminal would write over the line.
        text.push(' ');
        return;
    }
    for unit in character.encode_utf16(&mut [0; 2]) {
        write!(text, "\\u{unit:04x}").expect("a String takes all text");
    }
}

/// A writer of log lines: each write is one line, with a line break at its end and none within.
///
/// `tracing_subscriber` formats an event into a buffer and writes it at once.
#[derive(Debug)]
pub struct EscapedLines<W>(pub W);

impl<W: io::Write> io::Write for EscapedLines<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_all(buffer)?;
        Ok(buffer.len())
    }

    fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        // Bytes that are not UTF-8 can only come from a fault of the formatter; what is readable
        // of the line still helps.
        let text = String::from_utf8_lossy(buffer);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };

        match escape(line) {
            Cow::Borrowed(_) => self.0.write_all(buffer),
            Cow::Owned(mut escaped) => {
                escaped.push_str(end);
                self.0.write_all(escaped.as_bytes())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn characters_that_move_the_cursor_or_the_direction_are_escaped() {
        let text = "a\u{1b}[2Jb\nc\u{9b}d\u{202e}e\u{7f}\u{200b}";
        assert_eq!(
            escape(text),
            r"a\u{1b}[2Jb\nc\u{9b}d\u{202e}e\u{7f}\u{200b}"
        );

        assert!(matches!(escape("grün, 日本 \\n"), Cow::Borrowed(_)));
        assert_eq!(escape_lines("a\n\tb\r\x07"), "a\n\tb\\r\\u{7}");
    }

    #[test]
    fn items_of_a_list_add_no_lines() {
        let names = ["a\nroot: forged".to_owned(), "b\u{1b}[2J".to_owned()];
        assert_eq!(escape_list(&names), r"a\nroot: forged, b\u{1b}[2J");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "a\u{202e}b": "c\u{9b}\u{7f}\u{e0041}\u{1b}\n\"é中🚀" });
        let json = serde_json::to_string_pretty(&value).unwrap();
        let escaped = escape_json(&json);

        assert_eq!(
            escaped,
            "{\n  \"a\\u202eb\": \"c\\u009b\\u007f\\udb40\\udc41\\u001b\\n\\\"é中🚀\"\n}"
        );
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, value);
        assert_eq!(escape_json("{\n\t\"a\": 1\r\n}"), "{\n\t\"a\": 1 \n}");
    }

    #[test]
    fn a_body_is_escaped_by_its_form() {
        assert_eq!(escape_body("[\"\u{202e}\"]"), "[\"\\u202e\"]");
        assert_eq!(escape_body("up\u{202e} 1\n"), "up\\u{202e} 1\n");
        // Not valid JSON.
        assert_eq!(escape_body("[\"\u{1b}\"]"), "[\"\\u{1b}\"]");
    }

    #[test]
    fn bounded_texts_are_escaped_by_their_layout() {
        let text = "a\n\t\u{1b}[2J\u{202e}\"ü\\";
        assert_eq!(
            bounded(text, 100, Layout::Lines),
            "a\n\t\\u{1b}[2J\\u{202e}\"ü\\"
        );
        assert_eq!(
            bounded(text, 100, Layout::Quoted),
            r#"a\n\t\u{1b}[2J\u{202e}\"ü\\"#
        );
    }

    #[test]
    fn the_bound_counts_escapes_and_cuts_neither_these_nor_characters() {
        assert_eq!(bounded("abcdef", 6, Layout::Lines), "abcdef");
        assert_eq!(bounded("abcdefg", 6, Layout::Lines), "abc…");
        // Three characters would fit, their escapes do not.
        assert_eq!(bounded("a\u{7}\u{7}", 10, Layout::Lines), "a\\u{7}…");
        assert_eq!(bounded("a\u{7}\u{7}", 8, Layout::Quoted), "a…");
        // The second `ä` would end at the sixth byte, in place of the mark.
        assert_eq!(bounded("aaäää", 6, Layout::Lines), "aa…");
        assert_eq!(bounded(&"\u{202e}".repeat(100), 3, Layout::Quoted), "…");

        for max_len in 3..64 {
            let cut = bounded(&"ä\u{7}\"日\n".repeat(20), max_len, Layout::Quoted);
            assert!(cut.len() <= max_len && cut.ends_with(CUT), "{cut}");
        }
    }

    #[test]
    fn words_of_a_shell_are_quoted_where_they_need_it() {
        assert_eq!(shell_word("web-1.shop"), "web-1.shop");
        assert_eq!(shell_word("x;reboot;#.evil"), "'x;reboot;#.evil'");
        assert_eq!(shell_word("it's $(id)"), r"'it'\''s $(id)'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("a\nb"), r"'a\nb'");
    }

    #[test]
    fn a_log_line_stays_one_line() {
        let mut written = Vec::new();
        let mut log = EscapedLines(&mut written);
        log.write_all(b"INFO connected proxy=x\nERROR forged\n")
            .unwrap();
        log.write_all(b"plain\n").unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            "INFO connected proxy=x\\nERROR forged\nplain\n"
        );
    }
}
