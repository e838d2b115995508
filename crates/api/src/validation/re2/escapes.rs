//! Escapes: classes and single characters.

use super::{RegexFault, after, fault};

/// Parses an escape outside a class; returns whether the result can be repeated, and the rest.
pub(in crate::validation) fn outside_escape(text: &str) -> Result<(bool, &str), RegexFault> {
    let inner = text.strip_prefix('\\').unwrap_or(text);
    match inner.chars().next() {
        Some(kind @ ('A' | 'b' | 'B' | 'z')) => Ok((true, after(inner, kind))),
        Some('C') => fault(
            "RE2 does not support this escape in a character class",
            text,
        ),
        Some('Q') => {
            let quoted = after(inner, 'Q');
            let (literal, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
            Ok((!literal.is_empty(), rest))
        }
        Some(_) | None => match class_escape(text)? {
            Some(rest) => Ok((true, rest)),
            None => character_escape(text).map(|(_, rest)| (true, rest)),
        },
    }
}

/// Parses an escape for a character class; `None` if it is for a single character.
pub(super) fn class_escape(text: &str) -> Result<Option<&str>, RegexFault> {
    let Some(inner) = text.strip_prefix('\\') else {
        return Ok(None);
    };
    match inner.chars().next() {
        Some(kind @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => Ok(Some(after(inner, kind))),
        Some(kind @ ('p' | 'P')) => unicode_class(text, after(inner, kind)).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// Reads the name of a Unicode class.
fn unicode_class<'a>(text: &str, name: &'a str) -> Result<&'a str, RegexFault> {
    let wrong = "unknown Unicode class";
    let (name, rest) = match name.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some((name, rest)) => (name.strip_prefix('^').unwrap_or(name), rest),
            None => return fault(wrong, text),
        },
        None => match name.chars().next() {
            Some(letter) => name
                .split_at_checked(letter.len_utf8())
                .unwrap_or((name, "")),
            None => return fault(wrong, text),
        },
    };

    let plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_- &".contains(c));
    if plain && !name.is_empty() && is_unicode_class(name) {
        return Ok(rest);
    }

    fault(wrong, text)
}

/// Whether the `regex` crate has a class of this name. Its program is not built, which would cost
/// much more than the lookup.
fn is_unicode_class(name: &str) -> bool {
    let built = regex::RegexBuilder::new(&format!("\\p{{{name}}}"))
        .size_limit(0)
        .build();
    matches!(built, Ok(_) | Err(regex::Error::CompiledTooBig(_)))
}

/// Parses an escape for a single character.
pub(super) fn character_escape(text: &str) -> Result<(char, &str), RegexFault> {
    let Some(inner) = text.strip_prefix('\\').filter(|inner| !inner.is_empty()) else {
        return fault("the expression ends with a backslash", "");
    };

    let kind = inner.chars().next().unwrap_or('\\');
    let rest = after(inner, kind);
    let meant = match kind {
        'a' => Some(('\x07', rest)),
        'f' => Some(('\x0c', rest)),
        'n' => Some(('\n', rest)),
        'r' => Some(('\r', rest)),
        't' => Some(('\t', rest)),
        'v' => Some(('\x0b', rest)),
        'x' => hexadecimal(rest),
        '0' => octal(inner),
        '1'..='7' if rest.starts_with(|c: char| c.is_digit(8)) => octal(inner),
        _ if kind.is_ascii() && !kind.is_ascii_alphanumeric() => Some((kind, rest)),
        _ => None,
    };

    meant.map_or_else(|| fault("RE2 does not support this escape", text), Ok)
}

/// Reads up to three octal digits.
fn octal(text: &str) -> Option<(char, &str)> {
    let end = text
        .bytes()
        .take(3)
        .take_while(|byte| (b'0'..=b'7').contains(byte))
        .count();
    let (digits, rest) = text.split_at_checked(end)?;
    Some((char::from_u32(u32::from_str_radix(digits, 8).ok()?)?, rest))
}

/// Reads two hexadecimal digits, or any number of them in braces.
fn hexadecimal(text: &str) -> Option<(char, &str)> {
    let (digits, rest) = match text.strip_prefix('{') {
        Some(braced) => braced.split_once('}')?,
        None => text.split_at_checked(2)?,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    // Halves of surrogate pairs are characters to Go; they match nothing, but order ranges.
    let code = u32::from_str_radix(digits, 16)
        .ok()
        .filter(|code| *code <= u32::from(char::MAX))?;
    Some((
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
        rest,
    ))
}
