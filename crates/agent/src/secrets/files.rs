//! Certificates in files: read after they changed and settled; unchanged content is not published
//! again.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::Secret;
use super::pem::{self, PairError};
use crate::metrics::AgentMetrics;
use navarch_api::kubernetes::SecretBytes;
use navarch_base::file_events::{FileEvents, WATCHED_INTERVAL};
use navarch_base::regular_file;

/// Poll interval while the files are missing or invalid.
const MISSING_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum size of a file: a bundle of all public roots has a quarter of it.
const MAX_BYTES: u64 = 1 << 20;

/// Certificates that are mounted into the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM, leaf first: `cert-chain.pem`, or `certificates.pem` on GKE.
    pub chain: PathBuf,
    /// File of the private key.
    pub key: PathBuf,
    /// PEM of the trusted CAs: `root-cert.pem`, or `ca_certificates.pem` on GKE.
    pub roots: PathBuf,
}

/// Which of them exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) certificate: Option<FileResource>,
    pub(super) roots: Option<FileResource>,
}

/// A secret that is read from files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileResource {
    Certificate { chain: PathBuf, key: PathBuf },
    Roots(PathBuf),
}

/// Errors of loading certificate files.
#[derive(Debug, thiserror::Error)]
enum FileError {
    /// Reading a file failed.
    #[error("failed to read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0} exceeds {MAX_BYTES} bytes")]
    TooLarge(PathBuf),
    /// The content is invalid.
    #[error("{0}: {1}")]
    Pem(PathBuf, PairError),
}

impl CertificateFiles {
    /// The files that exist and were not written by the agent itself to `output`.
    pub(super) fn present(&self, output: Option<&Path>) -> Present {
        let same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => one == other,
        };

        if output.is_some_and(|output| {
            self.chain
                .parent()
                .is_some_and(|folder| same(folder, output))
        }) {
            return Present {
                certificate: None,
                roots: None,
            };
        }

        let filled = |path: &Path| {
            std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0)
        };
        let certificate = FileResource::Certificate {
            chain: self.chain.clone(),
            key: self.key.clone(),
        };
        Present {
            certificate: (filled(&self.chain) && filled(&self.key)).then_some(certificate),
            roots: filled(&self.roots).then(|| FileResource::Roots(self.roots.clone())),
        }
    }
}

impl FileResource {
    fn paths(&self) -> Vec<&Path> {
        match self {
            Self::Certificate { chain, key } => vec![chain, key],
            Self::Roots(path) => vec![path],
        }
    }

    /// The current content of the files.
    async fn read(&self) -> Result<Secret, FileError> {
        match self {
            Self::Certificate { chain, key } => {
                let chain_pem = read(chain).await?;
                let key_pem = read(key).await?;
                pem::check_pair(&chain_pem, &key_pem).map_err(|error| match error {
                    PairError::Certificate(_) => FileError::Pem(chain.clone(), error),
                    PairError::NoKey(_) | PairError::Key(_) => FileError::Pem(key.clone(), error),
                })?;
                Ok(Secret::Certificate {
                    chain: chain_pem,
                    key: SecretBytes::new(key_pem),
                })
            }
            Self::Roots(path) => {
                let roots = read(path).await?;
                pem::merge([&roots[..]]).map_err(|error| FileError::Pem(path.clone(), error))?;
                Ok(Secret::Roots(roots))
            }
        }
    }

    /// A digest of the files, readable or not.
    async fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for path in self.paths() {
            match read(path).await {
                Ok(bytes) => {
                    hash.update([1]);
                    hash.update(Sha256::digest(&bytes));
                }
                Err(_) => hash.update([0]),
            }
        }
        hash.finalize().into()
    }
}

async fn read(path: &Path) -> Result<Bytes, FileError> {
    let read = regular_file::read_async(path, MAX_BYTES).await;
    read.map(Bytes::from).map_err(|error| {
        let is_too_large = error.kind() == io::ErrorKind::FileTooLarge;
        if is_too_large {
            FileError::TooLarge(path.to_owned())
        } else {
            FileError::Read(path.to_owned(), error)
        }
    })
}

/// Publishes the content of the files and every change of it; does not return. Invalid content is
/// reported once, and the last valid one stays.
pub(super) async fn follow(
    wanted: FileResource,
    debounce: Duration,
    metrics: &AgentMetrics,
    publish: impl Fn(Secret),
) {
    let mut events = FileEvents::of_files(wanted.paths());
    let mut seen = None;
    let mut usable = false;

    loop {
        if !events.is_watching() {
            metrics.watcher_failed();
        }

        let digest = wanted.digest().await;
        if seen != Some(digest) {
            // Debounced, as certificate and key are written one after the other.
            if seen.is_some() {
                tokio::time::sleep(debounce).await;
                if wanted.digest().await != digest {
                    continue;
                }
            }

            seen = Some(digest);

            match wanted.read().await {
                Ok(secret) => {
                    usable = true;
                    publish(secret);
                }
                Err(error) => {
                    usable = false;
                    metrics.file_failed();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "failed to load certificates from files");
                }
            }
        }

        events
            .wait(if usable && events.is_watching() {
                WATCHED_INTERVAL
            } else {
                MISSING_POLL_INTERVAL
            })
            .await;
    }
}
