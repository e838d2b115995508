//! Replacing files as a whole: a reader finds the old content or the new, never a part.
//!
//! The new content is written under another name first. The folder may be open to other users, such
//! as a volume that an application shares with the agent, so whatever has that name is removed and
//! never written to: a link would lead the writer to a file elsewhere, and a file would still
//! belong to the user who created it.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The mode of a file with a mode of its own until it has that mode: readable by its owner only.
const OWNER_MODE: u32 = 0o600;
/// The mode that the umask limits.
const DEFAULT_MODE: u32 = 0o666;

/// Replaces a file, or creates it, in a folder that exists. It gets `mode` whatever the umask is;
/// with `None` the umask decides. Two writers of one path must not run at the same time.
///
/// # Errors
/// When the file cannot be written, or the path has no file name.
pub fn replace(path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let new = unpublished(path)?;
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }

    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode.map_or(DEFAULT_MODE, |_| OWNER_MODE))
        .open(&new)?;
    // Before there is content, so that it is never readable by more users than it should be.
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }

    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(new, path)
}

/// The path of the content until it is complete. In the same folder, as a file can only be renamed
/// within a file system.
fn unpublished(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    /// The mode and inode of a file.
    fn stat(path: &Path) -> (u32, u64) {
        let found = std::fs::symlink_metadata(path).unwrap();
        (found.mode() & 0o777, found.ino())
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "of another").unwrap();
        symlink(&elsewhere, unpublished(&path).unwrap()).unwrap();

        replace(&path, b"content", Some(0o644)).unwrap();

        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"of another");
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
        assert!(!std::fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    #[test]
    fn a_planted_file_does_not_become_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let planted = unpublished(&path).unwrap();
        std::fs::write(&planted, "planted").unwrap();
        // Whoever has it open reads what is written to it.
        let mut open = std::fs::File::open(&planted).unwrap();

        replace(&path, b"content", Some(0o600)).unwrap();

        let mut read = String::new();
        open.read_to_string(&mut read).unwrap();
        assert_eq!(read, "planted");
        assert_eq!(std::fs::read(&path).unwrap(), b"content");
    }

    #[test]
    fn the_mode_is_as_given_and_readers_keep_what_they_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"one", Some(0o666)).unwrap();
        let first = stat(&path);
        replace(&path, b"two", Some(0o600)).unwrap();
        let second = stat(&path);

        assert_eq!((first.0, second.0), (0o666, 0o600));
        assert_ne!(first.1, second.1, "it was written to and not replaced");
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "the unpublished file is gone");
        replace(Path::new("/"), b"", None).unwrap_err();
    }
}
