//! Splitting a stream into its documents, so that a broken one loses none of the others.

/// One document of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// How many lines of the stream are before the text.
    pub lines_before: usize,
    /// The text, markers left out.
    pub text: &'a str,
}

/// The documents of a stream, those without content left out.
///
/// A marker (`---` or `...` at the start of a line, followed by blank or nothing) ends a document wherever it stands:
/// YAML allows none inside quoted or block text, so no parser is needed to find them.
pub fn documents(stream: &str) -> impl Iterator<Item = Document<'_>> {
    let stream = stream.strip_prefix('\u{feff}').unwrap_or(stream);
    let mut rest = Some(stream);
    let mut line = 0;
    std::iter::from_fn(move || {
        while let Some(text) = rest {
            let (document, lines, after) = split_first(text);
            let found = Document { lines_before: line, text: document };
            rest = after;
            line += lines;
            if has_content(document) {
                return Some(found);
            }
        }
        None
    })
}

/// The text up to the first marker, how many lines end in it, and the text after the marker.
fn split_first(text: &str) -> (&str, usize, Option<&str>) {
    let mut offset = 0;
    let mut lines = 0;
    for line in text.split_inclusive('\n') {
        if is_marker(line) {
            let (before, from_marker) = text.split_at(offset);
            // What follows on the marker's own line is part of the next document.
            let after = from_marker.get(MARKER_LENGTH..).expect("a marker has this length");
            return (before, lines, Some(after));
        }
        offset += line.len();
        lines += 1;
    }
    (text, lines, None)
}

/// How long a marker is.
const MARKER_LENGTH: usize = 3;

/// Whether the line starts with a marker.
fn is_marker(line: &str) -> bool {
    let after = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    after.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether there is more than blank lines, comments and directives.
fn has_content(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim();
        !(line.is_empty() || line.starts_with('#') || line.starts_with('%'))
    })
}
