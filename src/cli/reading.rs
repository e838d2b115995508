//! Reads files that are named on the command line.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use navarch_api::yaml::{self, Schema};
use serde_json::Value;

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

/// Reads the objects of the files of a path, as YAML or JSON, and passes each to `add`.
///
/// # Errors
/// If a file cannot be read, or is neither.
pub(super) fn read_objects(path: &Path, mut add: impl FnMut(Value)) -> anyhow::Result<()> {
    for file in files_of(path)? {
        let text = read(&file)?;
        if file.extension().is_some_and(|end| end == "json") {
            for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
                add(value.with_context(|| format!("{} is not JSON", file.display()))?);
            }
            continue;
        }

        for document in yaml::documents(&text) {
            let value = yaml::parse_last_wins(document.text, Schema::V1_1);
            let value = value.map_err(|error| {
                anyhow::anyhow!(
                    "{}:{}: {}",
                    file.display(),
                    document.lines_before + error.line,
                    error.reason
                )
            })?;
            add(value);
        }
    }
    Ok(())
}

/// The files of a path: itself, or those of a directory, recursively, with the extension `.yaml`,
/// `.yml` or `.json`, by name.
///
/// # Errors
/// If a directory cannot be read.
pub(super) fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    add_files(path, &mut BTreeSet::new(), &mut files)?;
    Ok(files)
}

/// Adds the files of a path. A directory that was `seen`, by its real path, is not read again:
/// links may form cycles.
fn add_files(
    path: &Path,
    seen: &mut BTreeSet<PathBuf>,
    files: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }

    let failed = || format!("failed to read {}", path.display());
    if !seen.insert(path.canonicalize().with_context(failed)?) {
        return Ok(());
    }

    let mut entries = std::fs::read_dir(path)
        .with_context(failed)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()
        .with_context(failed)?;
    entries.sort();

    for entry in entries {
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let holds_objects = entry
            .extension()
            .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
        if !is_hidden && (entry.is_dir() || holds_objects) {
            add_files(&entry, seen, files)?;
        }
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_directory_is_read_once_however_many_links_lead_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("sub")).unwrap();
        for name in ["a.yaml", "sub/b.json", ".hidden.yaml", "readme"] {
            std::fs::write(path(name), "").unwrap();
        }
        symlink(folder.path(), path("sub/circle")).unwrap();
        symlink("sub", path("again")).unwrap();

        assert_eq!(
            files_of(folder.path()).unwrap(),
            [path("a.yaml"), path("again/b.json")]
        );
        assert_eq!(files_of(Path::new("-")).unwrap(), [Path::new("-")]);
    }
}
