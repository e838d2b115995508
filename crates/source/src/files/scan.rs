//! Scans a directory and reads its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::index::Hash;
use navarch_api::decode::{Decoded, Format, decode_documents};
use navarch_base::regular_file;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Maximum depth of directories that are scanned.
const MAX_DEPTH: usize = 64;

/// Metadata that distinguishes the versions of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileMetadata {
    /// Device and inode: they differ for another file under the same name.
    identity: (u64, u64),
    /// Size in bytes.
    size: u64,
    /// Time of the last change of the content, in seconds and nanoseconds.
    modified: (i64, i64),
    /// Time of the last change of content or metadata, which no tool can set back.
    changed: (i64, i64),
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The files that may hold objects.
    pub(super) files: BTreeMap<PathBuf, FileMetadata>,
    /// The directories inside the root, and the links to directories.
    pub(super) folders: BTreeSet<PathBuf>,
    /// Directories outside the root that contain the targets of links inside.
    pub(super) link_targets: BTreeSet<PathBuf>,
    /// Directories and files that could not be read, with the reason.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
}

/// The result of reading a file.
#[derive(Debug)]
pub(super) enum Reading {
    /// The same bytes as last time.
    Same,
    Objects(Vec<Decoded>, Hash),
    /// The file is not text.
    Unreadable(String),
    /// Reading the file failed, and may succeed later.
    Failed(String),
    /// The file is not supported: it is too large, or not a regular file.
    Unfit(String),
    /// The file is being written: the content that was read may be incomplete.
    Changing,
    /// The path is a directory, to be scanned.
    Folder,
    /// The file does not exist.
    Gone,
}

/// The format of a file, by its name; `None` if it is not read.
pub(super) fn format_of(path: &Path) -> Option<Format> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    }
}

/// Whether a name is ignored: editors, tools and mounted ConfigMaps keep their own files under such
/// names.
pub(super) fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Scans the directory.
///
/// # Errors
/// If the directory itself cannot be read.
pub(super) fn walk(root: &Path) -> io::Result<Walk> {
    let canonical = fs::canonicalize(root)?;
    let mut walker = Walker {
        root: canonical.clone(),
        seen: BTreeSet::from([canonical]),
        found: Walk::default(),
    };
    walker.folder(root, 0)?;
    Ok(walker.found)
}

/// A scan in progress.
struct Walker {
    /// The canonical path of the root.
    root: PathBuf,
    /// Canonical paths of scanned directories, because links may form cycles.
    seen: BTreeSet<PathBuf>,
    found: Walk,
}

impl Walker {
    /// Scans one directory.
    fn folder(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !is_hidden(&path) {
                self.entry(path, depth);
            }
        }
        Ok(())
    }

    /// Scans one entry of a directory.
    fn entry(&mut self, path: PathBuf, depth: usize) {
        let looked = fs::metadata(&path).and_then(|metadata| {
            if metadata.is_dir() {
                self.found.folders.insert(path.clone());
                let real = fs::canonicalize(&path)?;
                if depth < MAX_DEPTH && self.seen.insert(real) {
                    self.folder(&path, depth + 1)?;
                }
            } else if format_of(&path).is_some() {
                // A file that is not regular is rejected, with a reason, when it is to be read.
                if metadata.is_file() {
                    self.note_link(&path)?;
                }
                self.found
                    .files
                    .insert(path.clone(), FileMetadata::of(&metadata));
            }

            Ok(())
        });

        match looked {
            Ok(()) => {}
            // The file was deleted since, or is a dangling link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.found.unreadable.insert(path, error.to_string());
            }
        }
    }

    /// Records the directory of a link's target if it is outside the root, where changes would not
    /// be noticed otherwise.
    fn note_link(&mut self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_symlink() {
            let target = fs::canonicalize(path)?;
            let folder = target
                .parent()
                .filter(|folder| !folder.starts_with(&self.root));
            self.found.link_targets.extend(folder.map(Path::to_owned));
        }
        Ok(())
    }
}

/// The stamp of a file; `None` if the file does not exist.
pub(super) fn stamp(path: &Path) -> Option<FileMetadata> {
    fs::metadata(path)
        .ok()
        .map(|metadata| FileMetadata::of(&metadata))
}

/// Reads a file that has the stamp `known_stamp`, and whose bytes hashed to `known` when it was
/// last read.
pub(super) fn read(path: &Path, known_stamp: Option<FileMetadata>, known: Option<Hash>) -> Reading {
    let Some(format) = format_of(path) else {
        return Reading::Gone;
    };

    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Reading::Gone,
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Reading::Folder,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge
            ) =>
        {
            return Reading::Unfit(error.to_string());
        }
        Err(error) => return Reading::Failed(error.to_string()),
    };

    if stamp(path) != known_stamp {
        return Reading::Changing;
    }

    let hash: Hash = Sha256::digest(&bytes).into();
    if known == Some(hash) {
        return Reading::Same;
    }

    match String::from_utf8(bytes) {
        Ok(text) => Reading::Objects(decode_documents(&text, format), hash),
        Err(error) => Reading::Unreadable(format!(
            "is not UTF-8 text at byte {}",
            error.utf8_error().valid_up_to()
        )),
    }
}

/// The bytes of a regular file, if it is not too large.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    regular_file::read(path, MAX_FILE_BYTES)
}

impl FileMetadata {
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
