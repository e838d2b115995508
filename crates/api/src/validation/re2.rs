//! Syntax check of regular expressions for RE2, as Go's `regexp` parses them.
//!
//! Proxies run expressions with RE2, whose syntax differs from that of the `regex` crate in details
//! (`a**` is an error, `{` alone is a character), so that the crate would reject valid expressions
//! and accept invalid ones. The crate checks only the names of Unicode classes.

use std::fmt;

/// The maximum number of repetitions of an expression; nested repeats are multiplied.
const REPEAT_LIMIT: u32 = 1000;
/// The maximum nesting depth of an expression, as in Go: repeats and captures count. It also bounds
/// the recursion of [`fits`], and of dropping a [`Repeat`].
const NESTING_LIMIT: usize = 1000;

/// Why an expression is not RE2, with its invalid part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What is wrong.
    reason: &'static str,
    /// The invalid part, from the start of the error.
    piece: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.piece.is_empty() {
            f.write_str(self.reason)
        } else {
            write!(f, "{} at {:?}", self.reason, self.piece)
        }
    }
}

fn fault<T>(reason: &'static str, piece: &str) -> Result<T, Fault> {
    Err(Fault {
        reason,
        piece: piece.chars().take(20).collect(),
    })
}

/// A counted repeat and the counted repeats within it.
#[derive(Clone, Debug)]
struct Repeat {
    /// The decisive count: the upper bound, or without one the lower bound.
    count: u32,
    /// The repeats within.
    inner: Vec<Repeat>,
}

/// Whether nested repeats stay within a budget.
fn fits(repeats: &[Repeat], budget: u32) -> bool {
    repeats.iter().all(|repeat| match repeat.count {
        0 => true,
        count => count <= budget && fits(&repeat.inner, budget / count),
    })
}

/// One open group.
#[derive(Debug, Default)]
struct Group {
    /// The repeats in all but the last piece.
    repeats: Vec<Repeat>,
    /// The repeats in the last piece; `None` if no piece can be repeated.
    last: Option<Vec<Repeat>>,
    /// The nesting depth of all but the last piece.
    height: usize,
    /// The nesting depth of the last piece.
    last_height: usize,
    /// Whether it captures, which adds a level.
    captures: bool,
}

impl Group {
    /// Adds a piece without repeats.
    fn push(&mut self) {
        self.push_group(Vec::new(), 0);
    }

    /// Adds a piece, with its repeats and its nesting depth.
    fn push_group(&mut self, repeats: Vec<Repeat>, height: usize) {
        self.close_operand();
        self.last = Some(repeats);
        self.last_height = height;
    }

    /// Excludes the last piece from operators.
    fn close_operand(&mut self) {
        self.repeats.extend(self.last.take().into_iter().flatten());
        self.height = self.height.max(self.last_height);
    }
}

/// Checks whether an expression is in RE2's syntax.
pub(super) fn check(expression: &str) -> Result<(), Fault> {
    let last_name = after_last_class_name(expression);
    let mut outer: Vec<Group> = Vec::new();
    let mut group = Group::default();
    let mut rest = expression;
    let mut after_operator = false;

    while let Some(first) = rest.chars().next() {
        let before = rest;
        rest = after(rest, first);
        let counted = if first == '{' {
            counted_repeat(before)
        } else {
            None
        };

        let is_operator = matches!(first, '*' | '+' | '?') || counted.is_some();

        match first {
            _ if is_operator => {
                rest = operator(&mut group, before, counted, after_operator)?;
            }
            '(' if rest.starts_with('?') => {
                let (opens, remaining) = flags(before)?;
                rest = remaining;
                if opens {
                    let captures = before.starts_with("(?P<") || before.starts_with("(?<");
                    outer.push(std::mem::replace(
                        &mut group,
                        Group {
                            captures,
                            ..Group::default()
                        },
                    ));
                }
            }
            '(' => outer.push(std::mem::replace(
                &mut group,
                Group {
                    captures: true,
                    ..Group::default()
                },
            )),
            ')' => {
                let Some(parent) = outer.pop() else {
                    return fault("unexpected closing parenthesis", before);
                };
                let mut closed = std::mem::replace(&mut group, parent);
                closed.close_operand();
                group.push_group(closed.repeats, closed.height + usize::from(closed.captures));
            }
            '|' => group.close_operand(),
            '[' => {
                rest = class(before, last_name)?;
                group.push();
            }
            '\\' => {
                let (is_piece, remaining) = outside_escape(before)?;
                rest = remaining;
                if is_piece {
                    group.push();
                }
            }
            _ => group.push(),
        }

        if group.last_height > NESTING_LIMIT {
            return fault("the expression nests more than 1000 levels deep", "");
        }

        after_operator = is_operator;
    }

    if outer.is_empty() {
        Ok(())
    } else {
        fault("missing closing parenthesis", "")
    }
}

/// The text without a leading `character`.
fn after(text: &str, character: char) -> &str {
    text.strip_prefix(character).unwrap_or(text)
}

/// Parses a repetition operator; returns the rest.
fn operator<'a>(
    group: &mut Group,
    text: &'a str,
    counted: Option<(Bounds, &'a str)>,
    after_operator: bool,
) -> Result<&'a str, Fault> {
    let mut rest = text
        .get(1..)
        .expect("an operator starts with an ASCII character");
    let mut count = None;

    if let Some((bounds, remaining)) = counted {
        rest = remaining;
        let most = bounds.most.unwrap_or(0);
        if bounds.least > REPEAT_LIMIT
            || most > REPEAT_LIMIT
            || bounds.most.is_some_and(|most| bounds.least > most)
        {
            return fault(
                "a repeat count exceeds 1000, or its minimum exceeds its maximum",
                text,
            );
        }
        count = Some(bounds);
    }

    rest = rest.strip_prefix('?').unwrap_or(rest);
    if after_operator {
        return fault("two repetition operators follow each other", text);
    }

    let Some(last) = group.last.take() else {
        return fault("there is nothing to repeat", text);
    };

    group.last = Some(match count {
        None => last,
        Some(Bounds { least, most }) => {
            let repeats = vec![Repeat {
                count: most.unwrap_or(least),
                inner: last,
            }];
            if (least >= 2 || most.is_some_and(|most| most >= 2)) && !fits(&repeats, REPEAT_LIMIT) {
                return fault("nested repeat counts multiply to more than 1000", text);
            }
            repeats
        }
    });

    group.last_height += 1;
    Ok(rest)
}

/// The bounds of a counted repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The lower bound; numbers that do not fit are the maximum.
    pub(super) least: u32,
    /// The upper bound; `None` without one.
    pub(super) most: Option<u32>,
}

/// Parses `{n}`, `{n,}` or `{n,m}`; `None` if the brace is a literal.
pub(super) fn counted_repeat(text: &str) -> Option<(Bounds, &str)> {
    let (least, rest) = number(text.strip_prefix('{')?)?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((
            Bounds {
                least,
                most: Some(least),
            },
            rest,
        ));
    }

    let rest = rest.strip_prefix(',')?;
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((Bounds { least, most: None }, rest));
    }

    let (most, rest) = number(rest)?;
    Some((
        Bounds {
            least,
            most: Some(most),
        },
        rest.strip_prefix('}')?,
    ))
}

/// Reads a number without leading zeros.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

/// Parses `(?…`; returns whether it opens a group, and the rest.
pub(super) fn flags(text: &str) -> Result<(bool, &str), Fault> {
    let inner = text.strip_prefix("(?").unwrap_or(text);
    let named = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<'));
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return match named.split_once('>') {
            Some((name, rest))
                if !name.is_empty()
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
            {
                Ok((true, rest))
            }
            Some(_) | None => fault(
                "the name of a group must be letters, digits and \"_\"",
                text,
            ),
        };
    }

    let mut negated = false;
    let mut any = false;

    for (place, character) in inner.char_indices() {
        let rest = inner.get(place + 1..).unwrap_or_default();
        match character {
            'i' | 'm' | 's' | 'U' => any = true,
            '-' if !negated => (negated, any) = (true, false),
            ':' | ')' if any || !negated => return Ok((character == ':', rest)),
            _ => break,
        }
    }

    fault("RE2 does not support this kind of group", text)
}

/// Parses an escape outside a class; returns whether the result can be repeated, and the rest.
pub(super) fn outside_escape(text: &str) -> Result<(bool, &str), Fault> {
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
fn class_escape(text: &str) -> Result<Option<&str>, Fault> {
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
fn unicode_class<'a>(text: &str, name: &'a str) -> Result<&'a str, Fault> {
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
fn character_escape(text: &str) -> Result<(char, &str), Fault> {
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

/// The names of POSIX classes.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// The length of an expression from its last `:]`, for [`class`].
pub(super) fn after_last_class_name(expression: &str) -> Option<usize> {
    expression
        .rfind(":]")
        .map(|at| expression.len().saturating_sub(at))
}

/// Parses a class in brackets and returns the rest. `last_name` is [`after_last_class_name`] of the
/// whole expression: `[:` starts a name only if `:]` follows, and a search for each `[:` would be
/// quadratic.
pub(super) fn class(text: &str, last_name: Option<usize>) -> Result<&str, Fault> {
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
fn class_character<'a>(text: &'a str, class: &str) -> Result<(char, &'a str), Fault> {
    match text.chars().next() {
        None => fault("missing closing bracket", class),
        Some('\\') => character_escape(text),
        Some(character) => Ok((character, after(text, character))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regexes_that_go_accepts_are_accepted() {
        for good in [
            "",
            "a",
            "a|b|",
            "(|a)*",
            "()",
            "(a)(b)",
            "a{",
            "a{,2}",
            "{",
            "a{1",
            "a{01}",
            "/api/{id}",
            "a{2}?",
            "a*?",
            "^*",
            "\\b+",
            "[]a]",
            "[^]a]",
            "[a-]",
            "[-a]",
            "[a\\-z]",
            "[[:alpha:]_]",
            "[[:^alpha:]]",
            "[[a]",
            "[\\d\\pL\\p{Greek}]",
            "\\pN",
            "\\p{^Han}",
            "(?i)a",
            "(?i:a)",
            "(?P<n>a)",
            "(?<n>a)",
            "(?s-i:a)",
            "(?)",
            "\\Qa+b\\E+",
            "\\Qa",
            "\\x41",
            "\\x{1F600}",
            "\\07",
            "\\12",
            "\\.\\/\\_",
            "\\z",
            "(x{10}){10}",
            "x{1000}",
            "(x{0}){1000}",
            "a(?i)*",
            ".*?",
            "a+(?:b)+",
            "é+",
            "[é-ü]",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn nesting_is_bounded_on_a_small_stack() {
        let nested = |levels: usize, open: &str, close: &str| {
            check(&format!("{}a{}", open.repeat(levels), close.repeat(levels)))
                .map_err(|fault| fault.to_string())
        };
        let deep = move || {
            let refused = Err("the expression nests more than 1000 levels deep".to_owned());
            for close in [")", "){1}", ")*", "){0}"] {
                assert_eq!(nested(200_000, "(", close), refused, "{close}");
            }
            assert_eq!(nested(200_000, "(?:", "){1}"), refused);
            assert_eq!(nested(200_000, "(?P<n>", ")"), refused);
            assert_eq!(nested(400, "(", "){1}"), Ok(()));
            assert_eq!(nested(900, "(", ")"), Ok(()));
            // Groups that capture nothing are no level to Go either.
            assert_eq!(nested(200_000, "(?:", ")"), Ok(()));
        };

        std::thread::Builder::new()
            .stack_size(512 << 10)
            .spawn(deep)
            .unwrap()
            .join()
            .unwrap();
    }

    #[test]
    fn the_time_for_an_expression_is_proportional_to_its_length() {
        // Each of them was looked through to its end at each of its pieces: a minute or more for a
        // megabyte.
        for piece in ["[[:a]", "\\d", "[a]", "\\pL", "(a)", "a{2}"] {
            let long = piece.repeat((1 << 20) / piece.len());
            assert_eq!(check(&long), Ok(()), "{piece}");
            assert!(crate::validation::re2_size::program_size(&long) > 0);
        }
        assert!(check(&format!("{}[[:foo:]]", "[[:a]".repeat(1000))).is_err());
    }

    #[test]
    fn regexes_that_go_rejects_are_rejected() {
        for bad in [
            "*",
            "+a",
            "a**",
            "a*+",
            "a{2}{3}",
            "a*{2}",
            "a??+",
            "|*",
            "(*)",
            "(",
            ")",
            "(a",
            "a)",
            "(a|b|",
            "[a",
            "[",
            "[]",
            "[z-a]",
            "[[:foo:]]",
            "\\",
            "a\\",
            "\\8",
            "\\1",
            "\\C",
            "\\q",
            "\\p",
            "\\p{Nope}",
            "\\pX",
            "\\x",
            "\\x4",
            "\\x{}",
            "\\x{110000}",
            "(?a)",
            "(?i-)",
            "(?P<>a)",
            "(?P<a b>a)",
            "(?P<a",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?",
            "x{1001}",
            "x{2,1}",
            "x{99999999999}",
            "((x{10}){10}){11}",
            "(x{100}){11}",
            "{*}/{**}/x",
            "\\Q\\E*",
            "^(",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
