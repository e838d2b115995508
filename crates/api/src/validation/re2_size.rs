//! The approximate size of RE2's program for an expression: proxies reject a program that is too
//! large.

use super::re2::{after_last_class_name, class, counted_repeat, flags, outside_escape};

/// The maximum program size of proxies (`re2.max_program_size.error_level` in their bootstrap).
pub const MAX_REGEX_PROGRAM: usize = 32_768;

/// Steps for any character: the ranges of bytes of UTF-8.
const ANY_CHARACTER: usize = 9;
/// Steps for a Unicode class, approximately; large classes have many more.
const UNICODE_CLASS: usize = 30;

/// One open group.
#[derive(Debug, Default)]
struct Group {
    /// Steps of all but the last piece.
    settled: usize,
    /// Steps of the last piece.
    last: usize,
}

impl Group {
    /// Adds a piece.
    fn push(&mut self, size: usize) {
        self.settled = self.settled.saturating_add(self.last);
        self.last = size;
    }

    /// The steps of all pieces.
    fn size(&self) -> usize {
        self.settled.saturating_add(self.last)
    }
}

/// The steps of the program for an expression that is RE2.
pub(super) fn program_size(expression: &str) -> usize {
    let last_name = after_last_class_name(expression);
    let mut outer: Vec<Group> = Vec::new();
    let mut group = Group::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let before = rest;
        rest = before.strip_prefix(first).unwrap_or_default();

        match first {
            '*' | '+' | '?' => group.last = group.last.saturating_add(1),
            '{' => match counted_repeat(before) {
                Some((bounds, remaining)) => {
                    rest = remaining;
                    group.last = repeated(group.last, bounds.least, bounds.most);
                }
                None => group.push(1),
            },
            '(' if rest.starts_with('?') => {
                let Ok((opens, remaining)) = flags(before) else {
                    break;
                };
                rest = remaining;
                if opens {
                    outer.push(std::mem::take(&mut group));
                }
            }
            '(' => outer.push(std::mem::replace(
                &mut group,
                Group {
                    settled: 2,
                    last: 0,
                },
            )),
            ')' => {
                let Some(parent) = outer.pop() else { break };
                let closed = std::mem::replace(&mut group, parent);
                group.push(closed.size());
            }
            '|' => group.push(1),
            '[' => {
                let Ok(remaining) = class(before, last_name) else {
                    break;
                };
                rest = remaining;
                group.push(class_size(without(before, remaining)));
            }
            '\\' => {
                let Ok((_, remaining)) = outside_escape(before) else {
                    break;
                };
                rest = remaining;
                group.push(escape_size(without(before, remaining)));
            }
            '.' => group.push(ANY_CHARACTER),
            _ => group.push(first.len_utf8()),
        }
    }

    outer
        .iter()
        .fold(group.size(), |sum, open| sum.saturating_add(open.size()))
}

/// A text without its suffix `remaining`.
fn without<'a>(text: &'a str, remaining: &str) -> &'a str {
    text.get(..text.len().saturating_sub(remaining.len()))
        .unwrap_or(text)
}

/// The size of a repetition: up to `most` copies, of which those above `least` are optional.
fn repeated(size: usize, least: u32, most: Option<u32>) -> usize {
    let times = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let needed = size.saturating_mul(times(least));
    let further = most.map_or(1, |most| {
        size.saturating_add(1)
            .saturating_mul(times(most.saturating_sub(least)))
    });
    needed.saturating_add(further)
}

/// The steps of a class in brackets.
fn class_size(class: &str) -> usize {
    let inner = class.trim_start_matches('[').trim_end_matches(']');
    let (items, other) = match inner.strip_prefix('^') {
        Some(items) => (items, ANY_CHARACTER),
        None => (inner, 0),
    };
    let unicode = items.matches("\\p").count() + items.matches("\\P").count();
    let wide: usize = items
        .chars()
        .filter(|c| !c.is_ascii())
        .map(char::len_utf8)
        .sum();
    1_usize
        .saturating_add(other)
        .saturating_add(unicode.saturating_mul(UNICODE_CLASS))
        .saturating_add(wide)
}

/// The steps of an escape.
fn escape_size(escape: &str) -> usize {
    let inner = escape.strip_prefix('\\').unwrap_or(escape);
    match inner.chars().next() {
        Some('p' | 'P') => UNICODE_CLASS,
        Some('D' | 'S' | 'W') => ANY_CHARACTER,
        Some('w') => 4,
        Some('s') => 3,
        Some('Q') => inner.len().saturating_sub(1),
        Some(_) | None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_grows_with_pieces_and_their_repeats() {
        for (expression, size) in [
            ("", 0),
            ("abc", 3),
            ("(abc)", 5),
            ("(?:abc)", 3),
            ("a|b", 3),
            ("a*", 2),
            ("a{3}", 3),
            ("a{2,4}", 6),
            ("(?:ab){10,}", 21),
            ("a{", 2),
            ("\\d[a-z]", 2),
            ("ä", 2),
        ] {
            assert_eq!(program_size(expression), size, "{expression}");
        }

        assert!(program_size(".{1000}") < MAX_REGEX_PROGRAM);
        assert!(program_size("\\pL{1000}x{1000}\\pL{1000}") > MAX_REGEX_PROGRAM);
        assert_eq!(
            program_size(&"(((((((x){1000}){1000}){1000}){1000}){1000}){1000}){1000}".repeat(3)),
            usize::MAX
        );
    }
}
