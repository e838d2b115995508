//! The files that are mapped as code.

use std::fs::OpenOptions;
use std::io::{self, Read as _};

/// A part of a file that is mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeMap {
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) file: String,
}

/// The program's own file, even if it was moved or deleted.
pub(crate) const PROGRAM: &str = "/proc/self/exe";
/// The maximum of bytes that are read of `/proc/self/maps`.
const MAX_BYTES: u64 = 4 << 20;

/// The code mappings, the program first.
pub(crate) fn code() -> io::Result<Vec<CodeMap>> {
    let mut text = String::new();
    OpenOptions::new()
        .read(true)
        .open("/proc/self/maps")?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    let program = std::fs::read_link(PROGRAM)?;
    let mut found: Vec<_> = text.lines().filter_map(line).collect();
    found.sort_by_key(|map| (std::path::Path::new(&map.file) != program, map.start));
    Ok(found)
}

/// Reads one line of the table; `None` unless it is a code mapping.
fn line(text: &str) -> Option<CodeMap> {
    let mut words = text.splitn(6, ' ');
    let addresses = words.next()?;
    let rights = words.next()?;
    let offset = words.next()?;
    let (start, limit) = addresses.split_once('-')?;
    let file = words.nth(2)?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let map = CodeMap {
        start: number(start)?,
        limit: number(limit)?,
        offset: number(offset)?,
        file: file.to_owned(),
    };
    (rights.contains('x') && !file.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_code_are_read() {
        let code =
            line("55d0c1c5a000-55d0c1e3b000 r-xp 00002000 fd:00 1234      /usr/bin/na varch")
                .unwrap();
        let expected = CodeMap {
            start: 0x55d0_c1c5_a000,
            limit: 0x55d0_c1e3_b000,
            offset: 0x2000,
            file: "/usr/bin/na varch".into(),
        };

        assert_eq!(code, expected);
        assert_eq!(
            line("55d0c1c5a000-55d0c1e3b000 rw-p 00002000 fd:00 1234      /usr/bin/navarch"),
            None
        );
        assert_eq!(
            line("55d0c1c5a000-55d0c1e3b000 r-xp 00000000 00:00 0 "),
            None
        );

        assert_eq!(line(""), None);
    }
}
