//! Roots in a folder (`--state-dir`): read with care, and written so that a crash or a full disk leaves the last version.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::RootStoreError;
use crate::ca::rotation::KeptFiles;
use navarch_api::error_chain::chain;
use navarch_api::kubernetes::SecretBytes;
use navarch_api::regular_file::{self, MAX_SETTINGS_BYTES};

/// All files in one, which is replaced in one moment.
const ALL: &str = "state.json";
/// Single files, too: other programs read them, and they count where the one above is missing.
const PLAIN: [&str; 2] = ["ca-key.pem", "ca-cert.pem"];

/// That a file does not hold what it must.
fn damaged(path: &Path, reason: impl Into<String>) -> RootStoreError {
    RootStoreError::Damaged { path: path.to_owned(), reason: reason.into() }
}

/// The bytes of a file; `None` where there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, RootStoreError> {
    match regular_file::read(path, MAX_SETTINGS_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RootStoreError::File { path: path.to_owned(), source }),
    }
}

/// The files that a folder keeps.
pub(super) fn load(folder: &Path) -> Result<KeptFiles, RootStoreError> {
    let path = folder.join(ALL);
    if let Some(all) = read(&path)? {
        return parse(&path, &all);
    }
    let mut files = KeptFiles::new();
    for name in PLAIN {
        let path = folder.join(name);
        if let Some(bytes) = read(&path)? {
            if bytes.trim_ascii().is_empty() {
                return Err(damaged(&path, "is empty; put it back, or remove it and the files beside it"));
            }
            files.insert(name.to_owned(), SecretBytes::new(bytes));
        }
    }
    Ok(files)
}

/// Reads the file that holds all others. What it holds is secret, so errors tell places only.
fn parse(path: &Path, all: &[u8]) -> Result<KeptFiles, RootStoreError> {
    let advice = format!("put it back, or remove it, and {} and {} count", PLAIN[0], PLAIN[1]);
    if all.trim_ascii().is_empty() {
        return Err(damaged(path, format!("is empty; {advice}")));
    }
    let texts: BTreeMap<String, String> = serde_json::from_slice(all).map_err(|error| {
        let what = if error.is_eof() { "ends too early" } else { "is no JSON object of texts" };
        damaged(path, format!("{what}, at line {} column {}; {advice}", error.line(), error.column()))
    })?;
    let mut files = KeptFiles::new();
    for (name, text) in texts {
        let bytes =
            STANDARD.decode(text).map_err(|_| damaged(path, format!("entry {name:?} is no base64; {advice}")))?;
        if bytes.is_empty() && PLAIN.contains(&name.as_str()) {
            return Err(damaged(path, format!("entry {name:?} is empty; {advice}")));
        }
        files.insert(name, SecretBytes::new(bytes));
    }
    if let Some(missing) = PLAIN.iter().find(|name| !files.contains_key(**name)) {
        return Err(damaged(path, format!("has no entry {missing:?}; {advice}")));
    }
    Ok(files)
}

/// Keeps files in a folder: all in one, and then the single ones.
pub(super) fn save(folder: &Path, files: &KeptFiles) -> Result<(), RootStoreError> {
    let failed = |source| RootStoreError::File { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let all: BTreeMap<&str, String> =
        files.iter().map(|(name, bytes)| (name.as_str(), STANDARD.encode(bytes.expose()))).collect();
    let all = serde_json::to_vec(&all).map_err(|error| failed(error.into()))?;
    write(folder, ALL, &all)?;
    // What counts is written; what is missing of the rest is written at the next look.
    if let Err(error) = mend(folder, files) {
        tracing::warn!(problem = chain(&error), "failed to write all files of the CA");
    }
    Ok(())
}

/// Writes the single files where they are missing or differ.
pub(super) fn mend(folder: &Path, files: &KeptFiles) -> Result<(), RootStoreError> {
    for name in PLAIN {
        let Some(wanted) = files.get(name).map(SecretBytes::expose) else { continue };
        let found = read(&folder.join(name)).ok().flatten();
        if found.as_deref() != Some(wanted) {
            write(folder, name, wanted)?;
        }
    }
    Ok(())
}

/// Writes a file beside the old one and puts it in its place once it is on the disk.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), RootStoreError> {
    let (path, partial) = (folder.join(name), folder.join(format!(".{name}.partial")));
    let attempt = || -> io::Result<()> {
        remove(&partial)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)?;
        // The new name, too, must outlive a crash.
        File::open(folder)?.sync_all()
    };
    attempt().map_err(|source| {
        // It takes room that a full disk lacks. Where it cannot be removed either, the first error says why.
        remove(&partial).unwrap_or_default();
        RootStoreError::File { path, source }
    })
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
