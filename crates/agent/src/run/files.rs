//! Reads small files, and writes files atomically.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::downward_api;
use navarch_base::{atomic_file, regular_file};

/// The mode of files for applications, whatever the umask is, as pilot-agent's.
const PUBLIC_MODE: u32 = 0o644;
/// The mode of folders that are created, as pilot-agent's. Those of pods are mounted.
const FOLDER_MODE: u32 = 0o750;

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

/// Writes a file atomically, and creates its directories. The umask decides who may read it.
pub(super) fn write(path: &str, content: &[u8]) -> io::Result<()> {
    publish(path, content, None)
}

/// Writes a file that applications of other users read, as [`write`] does.
pub(super) fn write_public(path: &str, content: &[u8]) -> io::Result<()> {
    publish(path, content, Some(PUBLIC_MODE))
}

/// Creates the folder, and replaces the file.
fn publish(path: &str, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let path = Path::new(path);
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)?;
    }
    atomic_file::replace(path, content, mode)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn applications_may_read_public_files_whatever_the_umask_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/grpc-bootstrap.json");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        std::fs::create_dir(folder.path().join("made")).unwrap();
        // A file that is left behind does not pass its mode on, as with a narrow umask.
        let left = folder.path().join("made/.grpc-bootstrap.json.new");
        std::fs::write(&left, "").unwrap();
        std::fs::set_permissions(&left, Permissions::from_mode(0o600)).unwrap();

        write_public(path.to_str().unwrap(), b"{}").unwrap();

        assert_eq!(mode(&path), 0o644);
        let made = folder.path().join("other/envoy-rev.json");
        write(made.to_str().unwrap(), b"{}").unwrap();
        assert_eq!(mode(made.parent().unwrap()), 0o750);
    }

    #[test]
    fn a_link_that_an_application_plants_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "of the agent").unwrap();
        let path = folder.path().join("envoy-rev.json");
        for planted in [".envoy-rev.json.new", "envoy-rev.json.partial"] {
            symlink(&elsewhere, folder.path().join(planted)).unwrap();
        }

        write(path.to_str().unwrap(), b"{}").unwrap();

        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"of the agent");
        assert_eq!(std::fs::read(&path).unwrap(), b"{}");
    }
}
