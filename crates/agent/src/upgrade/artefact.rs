//! Signed artefacts with a program: one layer, which is Envoy itself or a `tar.gz` with one file
//! `envoy`. Nothing of an artefact is written before its signature is verified, and nothing is run
//! before its digest is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read, Seek as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use http::StatusCode;
use serde::Deserialize;
use tokio::time::Instant;

use super::signature::{Keys, SignatureError};
use super::wanted::ArtefactName;
use crate::oci::fetch::FetchError;
use crate::oci::pull_secret::{PullSecretError, PullSecretFile};
use crate::oci::reference::is_sha256;
use crate::oci::registry::{Blob, Registry, RegistryAccess, RegistryError};
use navarch_net::destination::AddressPolicy;

/// Maximum size of a layer.
const MAX_LAYER_BYTES: u64 = 256 << 20;
/// Maximum size of a program. Envoy 1.40 has 120 MB.
const MAX_PROGRAM_BYTES: u64 = 512 << 20;
/// Maximum size of a payload of a signature.
const MAX_PAYLOAD_BYTES: u64 = 64 << 10;
/// Maximum number of signatures that are looked at.
const MAX_SIGNATURES: usize = 16;
/// The annotation of cosign with a signature.
const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// The name of the program, in the store and in archives.
const FILE: &str = "envoy";
/// The beginning of the names of folders that are not complete.
const PARTIAL: &str = "partial-";
/// How much is unpacked at once.
const COPY_BYTES: usize = 64 << 10;
/// The magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The magic number of programs.
const ELF: [u8; 4] = *b"\x7fELF";

/// Why an artefact is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArtefactError {
    /// No program can be unpacked without a folder.
    #[error("failed to write to the store {path}: {source}")]
    Store {
        /// `NAVARCH_PROXY_UPGRADE_STORE`.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The registry failed, or a digest does not match.
    #[error("failed to fetch the artefact: {reason}")]
    Registry {
        /// With its causes.
        reason: String,
        /// Whether it may be different in a minute.
        is_temporary: bool,
    },
    /// The file with the credentials cannot be used.
    #[error("failed to fetch the artefact: {0}")]
    PullSecret(#[from] PullSecretError),
    /// The repository has no signature of the artefact.
    #[error("the artefact has no signature: there is no tag sha256-{0}.sig")]
    Unsigned(String),
    /// No signature of the artefact can be accepted.
    #[error("no signature of the artefact is accepted: {0}")]
    Signature(#[from] SignatureError),
    /// A manifest is invalid.
    #[error("the manifest of {what} is invalid: {reason}")]
    Manifest {
        /// The artefact or its signature.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The layer has no program.
    #[error("the layer of the artefact is refused: {0}")]
    Layer(String),
}

impl ArtefactError {
    /// Whether the same artefact may be accepted in a minute.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            // A mounted file may come later, and be replaced.
            Self::Store { .. } | Self::PullSecret(_) => true,
            Self::Registry { is_temporary, .. } => *is_temporary,
            Self::Unsigned(_) | Self::Signature(_) | Self::Manifest { .. } | Self::Layer(_) => {
                false
            }
        }
    }
}

/// Why a layer is not unpacked.
#[derive(Debug, thiserror::Error)]
enum UnpackError {
    /// It is not what it should be.
    #[error("{0}")]
    Layer(String),
    /// A file of the store cannot be read or written.
    #[error(transparent)]
    Store(#[from] io::Error),
}

impl From<RegistryError> for ArtefactError {
    fn from(error: RegistryError) -> Self {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        let is_temporary = matches!(&error, RegistryError::Fetch(error) if error.is_temporary());
        Self::Registry {
            reason: text,
            is_temporary,
        }
    }
}

/// A manifest, as far as it is read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Manifest {
    layers: Vec<Layer>,
    manifests: Vec<Layer>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Layer {
    digest: String,
    /// In bytes.
    size: u64,
    annotations: BTreeMap<String, String>,
}

/// How an artefact is fetched and verified.
#[derive(Clone, Copy, Debug)]
pub struct FetchRules<'a> {
    /// One of them must have signed it.
    pub keys: &'a Keys,
    /// The credentials of registries.
    pub pull_secret: Option<&'a PullSecretFile>,
    /// The time for all of it.
    pub timeout: Duration,
}

/// Unpacked artefacts, each in a folder with the name of its digest.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// A store in this folder, which is created when it is needed.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The program of an artefact: from the store, or fetched and verified within the time.
    ///
    /// # Errors
    /// If it cannot be fetched, no key has signed it, or it has no program.
    pub async fn program(
        &self,
        name: &ArtefactName,
        rules: FetchRules<'_>,
    ) -> Result<PathBuf, ArtefactError> {
        let path = self.0.join(&name.digest).join(FILE);
        if path.is_file() {
            return Ok(path);
        }

        let FetchRules {
            keys,
            pull_secret,
            timeout,
        } = rules;
        let secret = match pull_secret {
            Some(file) => Some(file.read(&name.reference.registry).await?),
            None => None,
        };

        let insecure = BTreeSet::new();
        let addresses = AddressPolicy {
            allow_loopback: true,
            ..AddressPolicy::default()
        };
        let access = RegistryAccess {
            insecure: &insecure,
            request_timeout: timeout,
            addresses: &addresses,
            allows_plain_credentials: false,
        };
        let end = Instant::now() + timeout;
        let mut registry = Registry::new(access, &name.reference, secret.as_deref(), end);

        verify(&mut registry, &name.digest, keys).await?;
        let layer = program_layer(&mut registry, &name.digest).await?;
        self.save(&registry, &name.digest, &layer).await?;
        Ok(path)
    }

    /// Downloads and unpacks a layer. The folder appears when it is complete.
    async fn save(
        &self,
        registry: &Registry<'_>,
        digest: &str,
        wanted: &Layer,
    ) -> Result<(), ArtefactError> {
        debug_assert!(is_sha256(digest), "folders are named by digests");
        let failed = |source| ArtefactError::Store {
            path: self.0.clone(),
            source,
        };
        let partial = self.0.join(format!("{PARTIAL}{digest}"));
        let packed = partial.join("layer");
        let program = partial.join(FILE);
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(failed)?;
        }
        fs::create_dir_all(&partial).map_err(failed)?;

        let mut layer = new_file(&packed)
            .map(tokio::fs::File::from_std)
            .map_err(failed)?;
        let hex = sha256(&wanted.digest, "the artefact")?;
        let blob = Blob {
            digest: hex,
            size: wanted.size,
        };
        let saved = registry.save_blob(blob, MAX_LAYER_BYTES, &mut layer).await;

        let unpacked = match saved {
            Ok(()) => {
                let layer = layer.into_std().await;
                let work = move || unpack(layer, &program, MAX_PROGRAM_BYTES);
                let unpacked = tokio::task::spawn_blocking(work).await;
                let unpacked = unpacked.unwrap_or_else(|error| Err(io::Error::other(error).into()));
                unpacked.map_err(|error| match error {
                    UnpackError::Layer(reason) => ArtefactError::Layer(reason),
                    UnpackError::Store(source) => failed(source),
                })
            }
            Err(RegistryError::Fetch(FetchError::Write(error))) => Err(failed(error)),
            Err(error) => Err(error.into()),
        };
        if unpacked.is_err() {
            // A refused artefact leaves nothing; the next one replaces what cannot be removed.
            let _ = fs::remove_dir_all(&partial);
            return unpacked;
        }
        fs::remove_file(&packed).map_err(failed)?;
        fs::rename(&partial, self.0.join(digest)).map_err(failed)
    }

    /// Removes all artefacts but those of these programs.
    pub fn keep_only(&self, programs: &[&Path]) {
        // Without a folder there is nothing to remove.
        let Ok(entries) = fs::read_dir(&self.0) else {
            return;
        };
        // The folder may be that of something else, by mistake.
        let is_own = |name: &str| is_sha256(name) || name.starts_with(PARTIAL);
        for entry in entries.flatten() {
            if !entry.file_name().to_str().is_some_and(is_own) {
                continue;
            }
            let path = entry.path();
            let is_used = programs.iter().any(|program| program.starts_with(&path));
            if !is_used && let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "failed to remove an old version of Envoy");
            }
        }
    }
}

/// Verifies that one of the signatures beside an artefact is of one of the keys.
async fn verify(
    registry: &mut Registry<'_>,
    digest: &str,
    keys: &Keys,
) -> Result<(), ArtefactError> {
    let tag = format!("sha256-{digest}.sig");
    let manifest = match registry.manifest(&tag).await {
        Err(RegistryError::Fetch(FetchError::Status(StatusCode::NOT_FOUND))) => {
            return Err(ArtefactError::Unsigned(digest.to_owned()));
        }
        fetched => fetched?,
    };
    let manifest = parse(&manifest.json, "the signature")?;

    let mut refused = None;
    for layer in manifest.layers.iter().take(MAX_SIGNATURES) {
        let Some(signature) = layer.annotations.get(SIGNATURE_ANNOTATION) else {
            continue;
        };
        match verify_layer(registry, layer, signature, digest, keys).await {
            Ok(()) => return Ok(()),
            // Another signature may be good, and the registry may answer in a minute.
            Err(error) => refused = refused.filter(ArtefactError::is_temporary).or(Some(error)),
        }
    }

    Err(refused.unwrap_or_else(|| ArtefactError::Unsigned(digest.to_owned())))
}

/// Verifies one signature, whose payload is a layer.
async fn verify_layer(
    registry: &mut Registry<'_>,
    layer: &Layer,
    signature: &str,
    digest: &str,
    keys: &Keys,
) -> Result<(), ArtefactError> {
    let blob = Blob {
        digest: sha256(&layer.digest, "the signature")?,
        size: layer.size,
    };
    let payload = registry.blob(blob, MAX_PAYLOAD_BYTES).await?;
    keys.verify(&payload, signature, digest)?;
    Ok(())
}

/// The only layer of an artefact.
async fn program_layer(registry: &mut Registry<'_>, digest: &str) -> Result<Layer, ArtefactError> {
    let manifest = registry.manifest(&format!("sha256:{digest}")).await?;
    let mut manifest = parse(&manifest.json, "the artefact")?;
    let invalid = |reason: String| ArtefactError::Manifest {
        what: "the artefact",
        reason,
    };
    if !manifest.manifests.is_empty() {
        let reason = "it is an index: name the digest of the artefact for this platform";
        return Err(invalid(reason.to_owned()));
    }

    let count = manifest.layers.len();
    match (manifest.layers.pop(), count) {
        (Some(layer), 1) => Ok(layer),
        _ => Err(invalid(format!("it has {count} layers, not one"))),
    }
}

fn parse(json: &[u8], what: &'static str) -> Result<Manifest, ArtefactError> {
    serde_json::from_slice(json).map_err(|error| ArtefactError::Manifest {
        what,
        reason: error.to_string(),
    })
}

/// The hexadecimal part of a digest.
fn sha256<'a>(digest: &'a str, what: &'static str) -> Result<&'a str, ArtefactError> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_sha256(hex));
    hex.ok_or_else(|| ArtefactError::Manifest {
        what,
        reason: "a digest is not sha256".to_owned(),
    })
}

/// Creates a file that is written, and read by the same handle.
fn new_file(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
}

/// Writes the program in a layer to an executable file.
fn unpack(mut layer: File, program: &Path, max_bytes: u64) -> Result<(), UnpackError> {
    let mut file = new_file(program)?;
    let is_packed = begins_with(&mut layer, GZIP)?;
    layer.rewind()?;
    let layer = BufReader::new(layer);

    if is_packed {
        // Folders and the ends of files count as well.
        let bounded = GzDecoder::new(layer).take(max_bytes.saturating_add(1 << 20));
        unpack_archive(bounded, &mut file, max_bytes)?;
    } else {
        copy(layer, &mut file, max_bytes)?;
    }

    if !begins_with(&mut file, ELF)? {
        return Err(UnpackError::Layer("it is not a program".to_owned()));
    }
    file.set_permissions(Permissions::from_mode(0o755))?;
    Ok(())
}

/// Whether a file begins with these bytes.
fn begins_with<const LENGTH: usize>(file: &mut File, magic: [u8; LENGTH]) -> io::Result<bool> {
    let mut found = [0; LENGTH];
    file.rewind()?;
    match file.read_exact(&mut found) {
        Ok(()) => Ok(found == magic),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// An error of what is read: of the operating system, or of gzip and tar.
fn broken(error: io::Error) -> UnpackError {
    match error.raw_os_error() {
        Some(_) => UnpackError::Store(error),
        None => UnpackError::Layer(error.to_string()),
    }
}

/// Writes the only file of an archive.
fn unpack_archive(
    archive: impl Read,
    program: &mut File,
    max_bytes: u64,
) -> Result<(), UnpackError> {
    let mut archive = tar::Archive::new(archive);
    let mut is_found = false;
    for entry in archive.entries().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }

        let name = entry.path_bytes().into_owned();
        let name = name.rsplit(|sign| *sign == b'/').next().unwrap_or_default();
        if is_found || !kind.is_file() || name != FILE.as_bytes() {
            let reason = "the archive has other files than envoy";
            return Err(UnpackError::Layer(reason.to_owned()));
        }
        // It is never written under a name from the archive.
        copy(entry, program, max_bytes)?;
        is_found = true;
    }

    if is_found {
        Ok(())
    } else {
        let reason = "the archive has no file envoy";
        Err(UnpackError::Layer(reason.to_owned()))
    }
}

/// Copies to a file, up to the size limit. A failure to read refuses the artefact; a failure to
/// write is an error of the store.
fn copy(from: impl Read, to: &mut impl Write, max_bytes: u64) -> Result<(), UnpackError> {
    let mut from = from.take(max_bytes.saturating_add(1));
    let mut buffer = vec![0; COPY_BYTES];
    let mut written = 0_u64;
    loop {
        let length = match from.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(broken(error)),
        };
        let Some(read) = buffer.get(..length).filter(|read| !read.is_empty()) else {
            return Ok(());
        };

        written = written.saturating_add(length as u64);
        if written > max_bytes {
            let reason = format!("the program has more than {max_bytes} bytes");
            return Err(UnpackError::Layer(reason));
        }
        to.write_all(read)?;
    }
}

#[cfg(test)]
mod tests;
