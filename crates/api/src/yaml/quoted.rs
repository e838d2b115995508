//! Quoted scalars that go on at the column of their key, as generators of CustomResourceDefinitions
//! write them:
//!
//! ```yaml
//! note: 'written by a tool that wraps at the column of
//! its key'
//! ```
//!
//! Go's YAML reads them, and so do kubectl and istiod; YAML itself requires more indentation. Space
//! at the start of such a line is not part of the scalar, so the lines can be indented, and keep
//! their numbers.

/// Words of the parser's error about such a line.
pub(super) const ERROR: &str = "invalid indentation in multiline quoted scalar";

/// Where a line begins.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Outside of scalars of several lines.
    Outside,
    /// In a scalar with this quotation mark, of a key or dash at this column.
    Quoted { mark: char, column: usize },
    /// In a block scalar (`|` or `>`) of a key or dash at this column.
    Block { column: usize },
}

/// The text with all lines of quoted scalars indented more than their keys; `None` if they are.
pub(super) fn indented(text: &str) -> Option<String> {
    let mut indented = String::with_capacity(text.len() + text.len() / 8);
    let mut state = State::Outside;

    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let is_blank = line.trim().is_empty();

        if let State::Block { column } = state
            && !is_blank
            && indent <= column
        {
            state = State::Outside;
        }

        match state {
            State::Outside => state = after(line),
            State::Block { .. } => {}
            State::Quoted { mark, column } => {
                let missing = if is_blank {
                    0
                } else {
                    (column + 1).saturating_sub(indent)
                };
                indented.extend(std::iter::repeat_n(' ', missing));
                if closes(line, mark) {
                    state = State::Outside;
                }
            }
        }
        indented.push_str(line);
    }

    (indented.len() != text.len()).then_some(indented)
}

/// The state after a line that begins outside of scalars.
fn after(line: &str) -> State {
    let mut rest = line.trim_start_matches(' ');
    let column_of = |rest: &str| line.len() - rest.len();
    let mut column = column_of(rest);
    while let Some(item) = rest.strip_prefix("- ") {
        column = column_of(rest);
        rest = item.trim_start_matches(' ');
    }

    if let Some(value) = value_of_key(rest) {
        column = column_of(rest);
        rest = value;
    }
    // Anchors and tags stand before the value.
    while rest.starts_with(['&', '!']) {
        let Some((_, value)) = rest.split_once(' ') else {
            return State::Outside;
        };
        rest = value.trim_start_matches(' ');
    }

    match rest.chars().next() {
        Some('|' | '>') => State::Block { column },
        Some(mark @ ('"' | '\'')) if !closes(rest.get(1..).unwrap_or_default(), mark) => {
            State::Quoted { mark, column }
        }
        _ => State::Outside,
    }
}

/// What follows the key of a line; `None` if there is no key.
fn value_of_key(text: &str) -> Option<&str> {
    let after_key = match text.chars().next()? {
        '#' => return None,
        mark @ ('"' | '\'') => {
            let (_, rest) = text.split_at(1);
            rest.get(end_of(rest, mark)?..)?
        }
        _ => text,
    };
    let (_, value) = after_key.split_once(": ")?;
    Some(value.trim_start_matches(' '))
}

/// Whether a quoted scalar ends in a text.
fn closes(text: &str, mark: char) -> bool {
    end_of(text, mark).is_some()
}

/// The offset after the quotation mark that ends a scalar.
fn end_of(text: &str, mark: char) -> Option<usize> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if character == '\\' && mark == '"' {
            characters.next();
        } else if character == mark {
            // Two in a row stand for one in single quotes.
            let is_escaped =
                mark == '\'' && characters.next_if(|(_, next)| *next == '\'').is_some();
            if !is_escaped {
                return Some(at + mark.len_utf8());
            }
        }
    }
    None
}
