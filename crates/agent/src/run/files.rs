//! Reads small files, and writes files atomically.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::downward_api;
use navarch_api::regular_file;

/// The text of a file; `None` if it is missing.
pub(super) fn text(path: &str) -> io::Result<Option<String>> {
    match regular_file::read_text(path.as_ref()) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The pod's labels or annotations; `None` if they are not mounted. Unreadable ones are logged and
/// ignored.
pub(super) fn downward(path: &str) -> Option<BTreeMap<String, String>> {
    match text(path) {
        Ok(None) => None,
        Ok(Some(text)) => {
            let parsed = downward_api::parse(&text);
            if parsed.is_none() {
                tracing::warn!(path, "a downward API file has invalid quoting");
            }
            parsed
        }
        Err(error) => {
            tracing::warn!(path, %error, "failed to read a downward API file");
            None
        }
    }
}

/// Writes a file atomically, and creates its directories.
pub(super) fn write(path: &str, content: &[u8]) -> io::Result<()> {
    let path = Path::new(path);
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        std::fs::create_dir_all(folder)?;
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    std::fs::write(&partial, content)?;
    std::fs::rename(&partial, path)
}
