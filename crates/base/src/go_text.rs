//! Parsing and quoting of texts as by Go's standard library, for output that must equal istiod's.

use std::fmt::Write as _;

/// The boolean that `strconv.ParseBool` parses.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Appends a text in quotes, with the escapes that JSON and Go share; `other` appends all other
/// characters.
fn write_escaped(out: &mut String, text: &str, other: impl Fn(&mut String, char)) {
    out.push('"');
    for sign in text.chars() {
        match sign {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ => other(out, sign),
        }
    }
    out.push('"');
}

/// Appends a quoted text, as `encoding/json` writes it: characters that are special in HTML are
/// escaped, too.
pub fn write_json_string(out: &mut String, text: &str) {
    write_escaped(out, text, |out, sign| match sign {
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(sign));
        }
        _ => out.push(sign),
    });
}

/// Appends a text in quotes, as `strconv.Quote` writes it; YAML reads it as the same text.
pub fn write_quoted(out: &mut String, text: &str) {
    write_escaped(out, text, |out, sign| {
        let code = u32::from(sign);
        let written = match sign {
            '\u{7}' => write!(out, "\\a"),
            '\u{8}' => write!(out, "\\b"),
            '\u{b}' => write!(out, "\\v"),
            '\u{c}' => write!(out, "\\f"),
            '\0'..='\u{1f}' | '\u{7f}' => write!(out, "\\x{code:02x}"),
            _ if is_print(sign) => write!(out, "{sign}"),
            '\0'..='\u{ffff}' => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
        written.expect("a String takes all text");
    });
}

/// Whether `strconv.IsPrint` is true of a character: letters, marks, numbers, punctuation, symbols
/// and the ASCII space. Quotes and backslashes are not asked for.
fn is_print(sign: char) -> bool {
    if sign.is_ascii() {
        return !sign.is_ascii_control();
    }
    // std escapes the same categories, and marks only at the start of a text.
    let text = format!("-{sign}");
    text.escape_debug().eq(text.chars())
}

/// A text as [`write_quoted`] writes it.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_quoted(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_booleans_that_go_parses_are_accepted() {
        assert_eq!(
            (parse_bool("T"), parse_bool("0")),
            (Some(true), Some(false))
        );
        for text in ["", "yes", "tRue", " true", "2"] {
            assert_eq!(parse_bool(text), None, "{text:?}");
        }
    }

    #[test]
    fn quoted_text_has_the_escapes_of_go() {
        // As printed by `strconv.Quote` of Go 1.26.
        for (text, expected) in [
            ("a\"\\b", r#""a\"\\b""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{80}\u{9b}\u{a0}\u{ad}", r#""\u0080\u009b\u00a0\u00ad""#),
            ("\u{200b}\u{202e}\u{2066}", r#""\u200b\u202e\u2066""#),
            ("\u{2028}\u{3000}\u{feff}", r#""\u2028\u3000\ufeff""#),
            ("\u{e0041}\u{10fffd}", r#""\U000e0041\U0010fffd""#),
            ("é e\u{301} 中 🚀 \u{fffd}", "\"é e\u{301} 中 🚀 \u{fffd}\""),
        ] {
            assert_eq!(quoted(text), expected, "{text:?}");
        }
    }

    #[test]
    fn json_text_round_trips_and_escapes_html() {
        let text = "a\"\\\u{1}\u{8}\n<b>&\u{2028}\u{e9}\u{7f}";
        let mut written = String::new();
        write_json_string(&mut written, text);
        assert_eq!(
            written,
            "\"a\\\"\\\\\\u0001\\b\\n\\u003cb\\u003e\\u0026\\u2028\u{e9}\u{7f}\""
        );
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }
}
