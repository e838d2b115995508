//! Reading files whose paths others choose: regular files only, up to a limit.
//!
//! Opening a FIFO blocks, a device never ends, and a file may grow while it is read. None of them
//! may block a thread or fill memory, so every file is read with these functions
//! (`tests/house/main.rs` enforces it).

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::blocking;

/// The limit for files with settings, certificates, keys or tokens, in bytes.
pub const MAX_SETTINGS_BYTES: u64 = 16 << 20;

/// The bytes of a regular file of at most `max` bytes; links are followed.
///
/// # Errors
/// When it cannot be read, is no regular file ([`io::ErrorKind::InvalidInput`], or `IsADirectory`),
/// or is larger ([`io::ErrorKind::FileTooLarge`]).
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    // Checked before opening, since opening a device can have side effects, and after, since the
    // file may have been replaced.
    check(&std::fs::metadata(path)?, max)?;
    let file = open(path)?;
    let metadata = file.metadata()?;
    check(&metadata, max)?;
    // Files in /proc have content but the length 0.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > max {
        Err(too_large(length, max))
    } else {
        Ok(bytes)
    }
}

/// The text of a regular file of at most [`MAX_SETTINGS_BYTES`]; links are followed.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read(path, MAX_SETTINGS_BYTES)?;
    String::from_utf8(bytes).map_err(|error| {
        let reason = format!(
            "is not UTF-8 text at byte {}",
            error.utf8_error().valid_up_to()
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

/// [`read`] without blocking the calling async thread.
///
/// # Errors
/// As [`read`].
pub async fn read_async(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    blocking::run(move || read(&path, max))
        .await
        .map_err(io::Error::other)?
}

/// Whether there may be a file: not when there is none, but also when its folder or a link does not
/// let us look. Reading it then fails with the reason, where taking it for missing would silently
/// select other settings. As istiod does with `os.IsNotExist`.
#[must_use]
pub fn may_exist(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// Opens a file so that a FIFO blocks neither opening nor reading, and a terminal does not become
/// the controlling terminal.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(path)
}

/// Rejects a file that is not regular or is too large.
fn check(metadata: &Metadata, max: u64) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        let reason = format!("is {}, not a regular file", name_of(metadata.file_type()));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    if metadata.len() > max {
        Err(too_large(metadata.len(), max))
    } else {
        Ok(())
    }
}

/// The name of a file type that is not regular.
fn name_of(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "something else"
    }
}

/// The error for a file that is larger than the limit.
fn too_large(length: u64, max: u64) -> io::Error {
    let at_least = if length == max.saturating_add(1) {
        "at least "
    } else {
        ""
    };
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("has {at_least}{length} bytes, at most {max} are read"),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;

    use super::*;

    /// Why a file of a folder is not read.
    fn error_of(path: &Path) -> String {
        read(path, 10).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "0123456789").unwrap();
        symlink(path("file"), path("link")).unwrap();
        assert_eq!(read(&path("link"), 10).unwrap(), b"0123456789");
        nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!(error_of(&path("fifo")), "is a FIFO, not a regular file");
        symlink("/dev/zero", path("zero")).unwrap();

        assert_eq!(
            error_of(&path("zero")),
            "is a character device, not a regular file"
        );
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        assert_eq!(error_of(&path("socket")), "is a socket, not a regular file");
        assert_eq!(
            read(folder.path(), 10).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );

        assert_eq!(
            read(&path("none"), 10).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_fifo_created_between_stat_and_open_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let opened = open(&path).unwrap();
        assert!(check(&opened.metadata().unwrap(), 10).is_err());
    }

    #[test]
    fn only_a_file_that_is_not_there_does_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();

        for (name, expected) in [
            ("file", true),
            ("loop", true),
            ("file/below", true),
            ("dangling", false),
            ("none", false),
        ] {
            assert_eq!(may_exist(&path(name)), expected, "{name}");
        }
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "0123456789a").unwrap();
        assert_eq!(
            error_of(&path),
            "has at least 11 bytes, at most 10 are read"
        );
        // Files in /proc have no length, so only reading tells.
        let endless = Path::new("/proc/self/maps");
        assert_eq!(std::fs::metadata(endless).unwrap().len(), 0);
        assert_eq!(
            read(endless, 10).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        assert!(!read(endless, 10 << 20).unwrap().is_empty());
    }

    #[test]
    fn text_is_utf8() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"ab\xff").unwrap();
        assert_eq!(
            read_text(&path).unwrap_err().to_string(),
            "is not UTF-8 text at byte 2"
        );
    }
}
