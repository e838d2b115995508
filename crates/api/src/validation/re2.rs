//! Syntax check of regular expressions for RE2, as Go's `regexp` parses them.
//!
//! Proxies run expressions with RE2, whose syntax differs from that of the `regex` crate in details
//! (`a**` is an error, `{` alone is a character), so that the crate would reject valid expressions
//! and accept invalid ones. The crate checks only the names of Unicode classes.

mod brackets;
mod escapes;
#[cfg(test)]
mod tests;

use std::fmt;

pub(super) use brackets::{after_last_class_name, class};
pub(super) use escapes::outside_escape;

/// The maximum number of repetitions of an expression; nested repeats are multiplied.
const REPEAT_LIMIT: u32 = 1000;
/// The maximum nesting depth of an expression, as in Go: repeats and captures count. It also bounds
/// the recursion of [`fits`], and of dropping a [`Repeat`].
const NESTING_LIMIT: usize = 1000;

/// Why an expression is not RE2, with its invalid part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegexFault {
    /// What is wrong.
    reason: &'static str,
    /// The invalid part, from the start of the error.
    piece: String,
}

impl fmt::Display for RegexFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.piece.is_empty() {
            f.write_str(self.reason)
        } else {
            write!(f, "{} at {:?}", self.reason, self.piece)
        }
    }
}

fn fault<T>(reason: &'static str, piece: &str) -> Result<T, RegexFault> {
    Err(RegexFault {
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
pub(super) fn check(expression: &str) -> Result<(), RegexFault> {
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
) -> Result<&'a str, RegexFault> {
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
pub(super) fn flags(text: &str) -> Result<(bool, &str), RegexFault> {
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
