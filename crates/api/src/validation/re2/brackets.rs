//! Classes in brackets.

use super::escapes::{character_escape, class_escape};
use super::{RegexFault, after, fault};

/// The names of POSIX classes.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// The length of an expression from its last `:]`, for [`class`].
pub(in crate::validation) fn after_last_class_name(expression: &str) -> Option<usize> {
    expression
        .rfind(":]")
        .map(|at| expression.len().saturating_sub(at))
}

/// Parses a class in brackets and returns the rest. `last_name` is [`after_last_class_name`] of the
/// whole expression: `[:` starts a name only if `:]` follows, and a search for each `[:` would be
/// quadratic.
pub(in crate::validation) fn class(
    text: &str,
    last_name: Option<usize>,
) -> Result<&str, RegexFault> {
    let mut rest = text.strip_prefix('[').unwrap_or(text);
    rest = rest.strip_prefix('^').unwrap_or(rest);
    let mut first = true;

    loop {
        if let Some(after) = rest.strip_prefix(']').filter(|_| !first) {
            return Ok(after);
        }

        first = false;
        let named = rest
            .strip_prefix("[:")
            .filter(|named| last_name.is_some_and(|last| last <= named.len()));
        if let Some(named) = named {
            let name = named.strip_prefix('^').unwrap_or(named);
            let after = |class: &&str| name.strip_prefix(*class)?.strip_prefix(":]");
            let Some(after) = POSIX_CLASSES.iter().find_map(after) else {
                return fault("unknown character class", rest);
            };
            rest = after;
            continue;
        }

        if let Some(after) = class_escape(rest)? {
            rest = after;
            continue;
        }

        let range = rest;
        let (low, after_low) = class_character(rest, text)?;
        rest = after_low;
        let high = rest
            .strip_prefix('-')
            .filter(|high| !high.is_empty() && !high.starts_with(']'));

        if let Some(high) = high {
            let (high, after_high) = class_character(high, text)?;
            rest = after_high;
            if high < low {
                return fault("the start of a character range exceeds its end", range);
            }
        }
    }
}

/// Parses one character of a class; `class` is the whole class, for the message.
fn class_character<'a>(text: &'a str, class: &str) -> Result<(char, &'a str), RegexFault> {
    match text.chars().next() {
        None => fault("missing closing bracket", class),
        Some('\\') => character_escape(text),
        Some(character) => Ok((character, after(text, character))),
    }
}
