//! Splitting a stream into its documents, so that an invalid one does not affect the others.

/// One document of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// The number of lines in the stream before the text.
    pub lines_before: usize,
    /// The text, without markers.
    pub text: &'a str,
}

/// The documents of a stream, without empty ones.
///
/// A marker (`---` or `...` at the start of a line, followed by a blank or nothing) always ends a
/// document: YAML does not allow markers in quoted or block text, so no parser is needed to find
/// them.
pub fn documents(stream: &str) -> impl Iterator<Item = Document<'_>> {
    let stream = stream.strip_prefix('\u{feff}').unwrap_or(stream);
    let mut rest = Some(stream);
    let mut line = 0;
    std::iter::from_fn(move || {
        while let Some(text) = rest {
            let (document, lines, after) = split_first(text);
            let found = Document {
                lines_before: line,
                text: document,
            };
            rest = after;
            line += lines;
            if has_content(document) {
                return Some(found);
            }
        }
        None
    })
}

/// The text up to the first marker, the number of line ends in it, and the text after the marker.
fn split_first(text: &str) -> (&str, usize, Option<&str>) {
    let mut offset = 0;
    let mut lines = 0;
    for line in text.split_inclusive('\n') {
        if is_marker(line) {
            let (before, from_marker) = text.split_at(offset);
            // Text after the marker on its own line is part of the next document.
            let after = from_marker
                .get(MARKER_LENGTH..)
                .expect("a marker has this length");
            return (before, lines, Some(after));
        }
        offset += line.len();
        lines += 1;
    }
    (text, lines, None)
}

const MARKER_LENGTH: usize = 3;

/// Whether the line starts with a marker.
fn is_marker(line: &str) -> bool {
    let after = line
        .strip_prefix("---")
        .or_else(|| line.strip_prefix("..."));
    after.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether the text contains more than blank lines, comments and directives.
fn has_content(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim();
        !(line.is_empty() || line.starts_with('#') || line.starts_with('%'))
    })
}
