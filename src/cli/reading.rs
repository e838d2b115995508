//! Reads files that are named on the command line.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Maximum size of a file.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a file, or the standard input.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        return limited(std::io::stdin()).context("failed to read the standard input");
    }
    // The file may be a FIFO, such as /dev/stdin or that of a shell's `<(...)`.
    let opened = std::fs::File::open(file);
    opened
        .and_then(limited)
        .with_context(|| format!("failed to read {}", file.display()))
}

/// Reads the text of a reader, up to [`MAX_BYTES`].
fn limited(reader: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    reader.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let reason = format!("exceeds {MAX_BYTES} bytes");
        return Err(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            reason,
        ));
    }
    Ok(text)
}

/// The files of a path: itself, or those of a directory, recursively, with the extension `.yaml`,
/// `.yml` or `.json`, by name.
///
/// # Errors
/// If a directory cannot be read.
pub(super) fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }

    let entries =
        std::fs::read_dir(path).with_context(|| format!("failed to read {}", path.display()))?;
    let mut entries: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    let mut files = Vec::new();

    for entry in entries {
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let holds_objects = entry
            .extension()
            .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
        if !is_hidden && (entry.is_dir() || holds_objects) {
            files.extend(files_of(&entry)?);
        }
    }

    Ok(files)
}
