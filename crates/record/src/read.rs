//! Reading of segments and their lines.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use navarch_base::printable::escape;
use navarch_base::regular_file;
use navarch_base::state_format;
use serde::Deserialize;

use super::format::{Line, VERSION};

/// Prefix of segment file names.
const BEGIN: &str = "record-";
const END: &str = ".jsonl";
/// Maximum size in bytes of a segment that is read.
const MAX_SEGMENT_BYTES: u64 = 8 << 30;

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{BEGIN}{number:010}{END}")
}

/// The number of a segment's file. No two names have the same number, and each number has a next.
fn number_of(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix(BEGIN)?.strip_suffix(END)?.parse().ok()?;
    (number <= u64::MAX / 2 && segment_name(number) == name).then_some(number)
}

/// Whether a file has the name of a segment.
#[must_use]
pub fn is_segment(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .and_then(number_of)
        .is_some()
}

/// The segments of a directory, with their numbers, the oldest first.
///
/// # Errors
/// When the directory cannot be read.
pub fn segments(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(number_of) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The segment's file.
    pub file: PathBuf,
    /// Byte offset.
    pub offset: usize,
    /// The error.
    pub reason: String,
    /// Whether it is the truncated last line of the last segment, as when the process was killed:
    /// no error.
    pub is_torn: bool,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.is_torn {
            true => {
                "it is truncated, since the process ended while writing it; the lines before it are used"
            }
            false => "the rest of this segment is skipped",
        };
        write!(
            f,
            "{} at byte {}: {}; {what}",
            escape(&self.file.display().to_string()),
            self.offset,
            escape(&self.reason)
        )
    }
}

/// A line and its offset.
#[derive(Debug)]
pub struct RecordLine {
    /// Decoded; a header only at offset 0.
    pub line: Line,
    /// Byte offset of its start.
    pub offset: usize,
}

/// A segment that was read into memory.
#[derive(Debug)]
pub struct Segment {
    file: PathBuf,
    text: Vec<u8>,
    at: usize,
    is_last: bool,
    is_first_line: bool,
}

impl Segment {
    /// Reads a segment. `is_last` is the one that may end in the middle of a line.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(file: &Path, is_last: bool) -> io::Result<Self> {
        let text = regular_file::read(file, MAX_SEGMENT_BYTES)?;
        Ok(Self {
            file: file.to_owned(),
            text,
            at: 0,
            is_last,
            is_first_line: true,
        })
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read; nothing comes after.
    pub fn next_line(&mut self) -> Result<Option<RecordLine>, Broken> {
        let offset = self.at;
        let rest = self
            .text
            .get(offset..)
            .expect("a line ends within the text");
        if rest.is_empty() {
            return Ok(None);
        }

        let end = memchr::memchr(b'\n', rest);
        let is_torn = end.is_none() && self.is_last;
        let text = rest.split_at(end.unwrap_or(rest.len())).0;
        let is_first = std::mem::take(&mut self.is_first_line);
        let supported = if is_first { check_format(text) } else { Ok(()) };
        let checked = supported.and_then(|()| {
            let line = serde_json::from_slice::<Line>(text).map_err(|error| error.to_string())?;
            check_position(is_first, line)
        });
        let checked = if end.is_none() {
            Err("the line is not terminated".to_owned())
        } else {
            checked
        };

        match checked {
            Ok(line) => {
                self.at = offset + text.len() + 1;
                Ok(Some(RecordLine { line, offset }))
            }
            Err(reason) => {
                self.at = self.text.len();
                Err(Broken {
                    file: self.file.clone(),
                    offset,
                    reason,
                    is_torn,
                })
            }
        }
    }

    /// The same error for a line of this segment that is well-formed but inconsistent.
    #[must_use]
    pub fn broken(&mut self, offset: usize, reason: String) -> Broken {
        self.at = self.text.len();
        Broken {
            file: self.file.clone(),
            offset,
            reason,
            is_torn: false,
        }
    }
}

/// A header of any format.
#[derive(Debug, Deserialize)]
struct AnyHeader {
    header: HeaderFormat,
}

/// What a header of any format has.
#[derive(Debug, Deserialize)]
struct HeaderFormat {
    format: u32,
    navarch: Option<String>,
}

/// Checks the format in the first line, before the other fields are parsed: a later format may have
/// changed them. A line that is not a header is left to that parser.
fn check_format(text: &[u8]) -> Result<(), String> {
    let Ok(AnyHeader { header }) = serde_json::from_slice(text) else {
        return Ok(());
    };
    state_format::check(header.format, VERSION).map_err(|error| {
        let writer = header.navarch.as_deref().unwrap_or("an unknown release");
        format!("header: {error}; it was written by navarch {writer}")
    })
}

/// Whether a line is allowed at its position.
fn check_position(is_first: bool, line: Line) -> Result<Line, String> {
    match (is_first, &line) {
        (true, Line::Header(_)) => Ok(line),
        (true, _) => Err("it does not start with a header".to_owned()),
        (false, Line::Header(_)) => Err("a header within a segment".to_owned()),
        (false, _) => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_recording_writes_are_segments() {
        assert_eq!(number_of("record-0000000007.jsonl"), Some(7));
        assert_eq!(number_of("record-12345678901.jsonl"), Some(12_345_678_901));
        for name in [
            "record-7.jsonl",
            "record-+000000007.jsonl",
            "record-00000000007.jsonl",
            "record-18446744073709551615.jsonl",
            "record-0000000007.json",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    fn open(text: &str, is_last: bool) -> Segment {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(segment_name(7));
        std::fs::write(&file, text).unwrap();
        assert_eq!(segments(dir.path()).unwrap(), [(7, file.clone())]);
        Segment::open(&file, is_last).unwrap()
    }

    const HEADER: &str = r#"{"header":{"format":1,"navarch":"1","run":"r","segment":7,"at":"2026-01-01T00:00:00Z","settings":{}}}"#;

    #[test]
    fn corruption_is_reported_with_its_position() {
        let mut torn = open(&format!("{HEADER}\n{{\"synced\":{{\"at\""), true);
        assert!(matches!(
            torn.next_line(),
            Ok(Some(RecordLine { offset: 0, .. }))
        ));
        let broken = torn.next_line().unwrap_err();
        assert_eq!((broken.offset, broken.is_torn), (HEADER.len() + 1, true));
        assert!(torn.next_line().unwrap().is_none());

        let mut middle = open(&format!("{HEADER}\nnonsense\n{HEADER}\n"), true);
        middle.next_line().unwrap();
        let broken = middle.next_line().unwrap_err();
        assert!(!broken.is_torn);
        let text = broken.to_string();
        assert!(
            text.contains("record-0000000007.jsonl at byte") && text.contains("is skipped"),
            "{text}"
        );

        assert!(
            !open("{\"synced\"", false).next_line().unwrap_err().is_torn,
            "not the last segment"
        );
    }

    #[test]
    fn other_versions_are_rejected() {
        // Its settings have another type.
        let other = HEADER
            .replace("\"format\":1", "\"format\":3")
            .replace("\"settings\":{}", "\"settings\":[]");
        let broken = open(&format!("{other}\n"), true).next_line().unwrap_err();
        assert_eq!(
            broken.reason,
            "header: format is 3, written by a later release of Navarch; this release supports \
             format 2; it was written by navarch 1"
        );
        let broken = open("{\"synced\":{\"at\":\"2026-01-01T00:00:00Z\"}}\n", true)
            .next_line()
            .unwrap_err();
        assert_eq!(broken.reason, "it does not start with a header");
    }
}
