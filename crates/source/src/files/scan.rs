//! Walking a directory and reading its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::index::Hash;
use navarch_api::decode::{Decoded, Format, decode_documents};
use navarch_api::regular_file;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The deepest folder that is looked into.
const MAX_DEPTH: usize = 64;

/// What tells a version of a file from others without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Device and inode: another file under the same name.
    identity: (u64, u64),
    /// Size in bytes.
    size: u64,
    /// Last change of the content, in seconds and nanoseconds.
    modified: (i64, i64),
    /// Last change of anything, which no tool can set back.
    changed: (i64, i64),
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The files that may hold objects.
    pub(super) files: BTreeMap<PathBuf, Stamp>,
    /// Folders outside the root in which files stand that links inside lead to.
    pub(super) link_targets: BTreeSet<PathBuf>,
    /// Folders and files that could not be looked at, with the reason.
    pub(super) unreadable: BTreeMap<PathBuf, String>,
}

/// What a file gave.
#[derive(Debug)]
pub(super) enum Reading {
    /// The same bytes as last time.
    Same,
    Objects(Vec<Decoded>, Hash),
    /// It is no text.
    Unreadable(String),
    /// Reading it failed, and may go well later.
    Failed(String),
    /// It is nothing that is read: too large, or no regular file.
    Unfit(String),
    /// Somebody writes at this moment: what was read may be half of it.
    Changing,
    /// It is a folder, to be walked.
    Folder,
    /// There is none.
    Gone,
}

/// How a file is written, by its name; `None` for one that is not read.
pub(super) fn format_of(path: &Path) -> Option<Format> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    }
}

/// Whether a name is ignored: editors, tools and mounted ConfigMaps keep their own files under such names.
pub(super) fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Walks the directory.
///
/// # Errors
/// When the directory itself cannot be looked into.
pub(super) fn walk(root: &Path) -> io::Result<Walk> {
    let canonical = fs::canonicalize(root)?;
    let mut walker = Walker { root: canonical.clone(), seen: BTreeSet::from([canonical]), found: Walk::default() };
    walker.folder(root, 0)?;
    Ok(walker.found)
}

/// A walk under way.
struct Walker {
    /// The root as it really is.
    root: PathBuf,
    /// Folders that were looked into, as they really are: links may lead in circles.
    seen: BTreeSet<PathBuf>,
    /// What was found so far.
    found: Walk,
}

impl Walker {
    /// Looks into one folder.
    fn folder(&mut self, folder: &Path, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !is_hidden(&path) {
                self.entry(path, depth);
            }
        }
        Ok(())
    }

    /// Looks at one entry of a folder.
    fn entry(&mut self, path: PathBuf, depth: usize) {
        let looked = fs::metadata(&path).and_then(|metadata| {
            if metadata.is_dir() {
                let real = fs::canonicalize(&path)?;
                if depth < MAX_DEPTH && self.seen.insert(real) {
                    self.folder(&path, depth + 1)?;
                }
            } else if format_of(&path).is_some() {
                // What is no regular file is refused, with a reason, when it is to be read.
                if metadata.is_file() {
                    self.note_link(&path)?;
                }
                self.found.files.insert(path.clone(), Stamp::of(&metadata));
            }
            Ok(())
        });
        match looked {
            Ok(()) => {}
            // Gone since, or a link that leads nowhere.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                self.found.unreadable.insert(path, error.to_string());
            }
        }
    }

    /// Notes where a link leads to, where nobody would hear of changes otherwise.
    fn note_link(&mut self, path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_symlink() {
            let target = fs::canonicalize(path)?;
            let folder = target.parent().filter(|folder| !folder.starts_with(&self.root));
            self.found.link_targets.extend(folder.map(Path::to_owned));
        }
        Ok(())
    }
}

/// The stamp of a file; `None` where there is none.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata))
}

/// Reads a file that has this stamp, and whose bytes hashed to `known` when it was last read.
pub(super) fn read(path: &Path, known_stamp: Option<Stamp>, known: Option<Hash>) -> Reading {
    let Some(format) = format_of(path) else { return Reading::Gone };
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Reading::Gone,
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Reading::Folder,
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge) => {
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
        Err(error) => Reading::Unreadable(format!("is not UTF-8 text at byte {}", error.utf8_error().valid_up_to())),
    }
}

/// The bytes of a regular file of sane size.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    regular_file::read(path, MAX_FILE_BYTES)
}

impl Stamp {
    /// From what the file system says.
    fn of(metadata: &Metadata) -> Self {
        Self {
            identity: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
