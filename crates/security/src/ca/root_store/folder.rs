//! Roots in a folder (`--state-dir`), written so that the last version survives a crash or a full
//! disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::RootStoreError;
use crate::ca::rotation::StoredFiles;
use navarch_api::kubernetes::SecretBytes;
use navarch_base::error_chain::chain;
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};
use navarch_base::state_format::{self, KEY};

/// The format of the file below. Its number is an entry in base64 as the others are: readers that
/// know no number expect that of every entry.
const FORMAT: u32 = 1;
/// The file with all content, which is replaced atomically.
const ALL: &str = "state.json";
/// Separate files, which other programs read. They are loaded if the file above is missing.
const PLAIN: [&str; 2] = ["ca-key.pem", "ca-cert.pem"];

/// The error for a file with invalid content.
fn damaged(path: &Path, reason: impl Into<String>) -> RootStoreError {
    RootStoreError::Damaged {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

/// The bytes of a file; `None` if the file is missing.
fn read(path: &Path) -> Result<Option<Vec<u8>>, RootStoreError> {
    match regular_file::read(path, MAX_SETTINGS_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RootStoreError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

pub(super) fn load(folder: &Path) -> Result<StoredFiles, RootStoreError> {
    let path = folder.join(ALL);
    if let Some(all) = read(&path)? {
        return parse(&path, &all);
    }

    let mut files = StoredFiles::new();

    for name in PLAIN {
        let path = folder.join(name);
        if let Some(bytes) = read(&path)? {
            if bytes.trim_ascii().is_empty() {
                return Err(damaged(
                    &path,
                    "is empty; restore it, or remove it and the files beside it",
                ));
            }
            files.insert(name.to_owned(), SecretBytes::new(bytes));
        }
    }

    Ok(files)
}

/// Parses the file with all content. The content is secret, so errors contain positions only.
fn parse(path: &Path, all: &[u8]) -> Result<StoredFiles, RootStoreError> {
    let advice = format!(
        "restore it, or remove it to use {} and {}",
        PLAIN[0], PLAIN[1]
    );
    if all.trim_ascii().is_empty() {
        return Err(damaged(path, format!("is empty; {advice}")));
    }

    let texts: BTreeMap<String, String> = serde_json::from_slice(all).map_err(|error| {
        let what = if error.is_eof() {
            "ends unexpectedly"
        } else {
            "is not a JSON object of strings"
        };
        damaged(
            path,
            format!(
                "{what}, at line {} column {}; {advice}",
                error.line(),
                error.column()
            ),
        )
    })?;

    let mut files = StoredFiles::new();

    for (name, text) in texts {
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| damaged(path, format!("entry {name:?} is not base64; {advice}")))?;
        if bytes.is_empty() && PLAIN.contains(&name.as_str()) {
            return Err(damaged(path, format!("entry {name:?} is empty; {advice}")));
        }
        files.insert(name, SecretBytes::new(bytes));
    }

    if let Some(found) = files.remove(KEY) {
        let found = String::from_utf8_lossy(found.expose());
        state_format::check_text(Some(&found), FORMAT).map_err(|source| {
            RootStoreError::Format {
                path: path.to_owned(),
                source,
            }
        })?;
    }

    if let Some(missing) = PLAIN.iter().find(|name| !files.contains_key(**name)) {
        return Err(damaged(path, format!("has no entry {missing:?}; {advice}")));
    }

    Ok(files)
}

/// Stores files in a folder: first the file with all content, then the separate files.
pub(super) fn save(folder: &Path, files: &StoredFiles) -> Result<(), RootStoreError> {
    let failed = |source| RootStoreError::File {
        path: folder.to_owned(),
        source,
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut all: BTreeMap<&str, String> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), STANDARD.encode(bytes.expose())))
        .collect();
    all.insert(KEY, STANDARD.encode(FORMAT.to_string()));
    let all = serde_json::to_vec(&all).map_err(|error| failed(error.into()))?;
    write(folder, ALL, &all)?;

    // The authoritative file is written; missing separate files are written at the next check.
    if let Err(error) = repair(folder, files) {
        tracing::warn!(
            problem = chain(&error),
            "failed to write all files of the CA"
        );
    }

    Ok(())
}

/// Writes the separate files that are missing or differ.
pub(super) fn repair(folder: &Path, files: &StoredFiles) -> Result<(), RootStoreError> {
    for name in PLAIN {
        let Some(wanted) = files.get(name).map(SecretBytes::expose) else {
            continue;
        };
        let found = read(&folder.join(name)).ok().flatten();
        if found.as_deref() != Some(wanted) {
            write(folder, name, wanted)?;
        }
    }
    Ok(())
}

/// Writes a temporary file, and renames it once it is on the disk.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), RootStoreError> {
    let path = folder.join(name);
    let partial = folder.join(format!(".{name}.partial"));
    let attempt = || -> io::Result<()> {
        remove(&partial)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)?;
        // The rename must survive a crash, too.
        File::open(folder)?.sync_all()
    };

    attempt().map_err(|source| {
        // The temporary file uses space that a full disk lacks. If it cannot be removed, the first
        // error is still the cause.
        remove(&partial).unwrap_or_default();
        RootStoreError::File { path, source }
    })
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
