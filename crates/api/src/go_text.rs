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
    write_escaped(out, text, |out, sign| match sign {
        '\0'..='\u{1f}' | '\u{7f}' => {
            let _ = write!(out, "\\x{:02x}", u32::from(sign));
        }
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(sign));
        }
        _ => out.push(sign),
    });
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
