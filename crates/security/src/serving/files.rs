//! The certificates and roots that are configured as files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::{ConfiguredFiles, ServerCertificate, ServingConfig, ServingError};
use navarch_api::kubernetes::SecretBytes;
use navarch_base::file_events::{FileEvents, WATCHED_INTERVAL};
use navarch_base::regular_file::{self, MAX_SETTINGS_BYTES};
use navarch_pki::pem;

/// How long files must be unchanged before they are used.
const SETTLE: Duration = Duration::from_millis(200);

/// The content of files, or why reading failed.
#[derive(PartialEq, Eq)]
pub(super) struct Files(BTreeMap<PathBuf, Result<SecretBytes, std::io::ErrorKind>>);

impl Files {
    /// The paths, for a watch of them.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Reads all configured files.
    pub(super) fn read(config: &ServingConfig) -> Self {
        let given = match &config.certificate {
            ServerCertificate::Issued(_) | ServerCertificate::Requested(_) => Vec::new(),
            ServerCertificate::Given(ConfiguredFiles { chain, key, roots }) => {
                [Some(chain), Some(key), roots.as_ref()]
                    .into_iter()
                    .flatten()
                    .collect()
            }
        };
        let all = given.into_iter().chain(&config.further_roots);
        let read = |path: &PathBuf| {
            regular_file::read(path, MAX_SETTINGS_BYTES)
                .map(SecretBytes::new)
                .map_err(|error| error.kind())
        };
        Self(all.map(|path| (path.clone(), read(path))).collect())
    }

    /// The content of a file.
    pub(super) fn get(&self, path: &Path) -> Result<&SecretBytes, ServingError> {
        let missing = |kind: std::io::ErrorKind| ServingError::File(path.to_owned(), kind.into());
        match self.0.get(path) {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(kind)) => Err(missing(*kind)),
            None => Err(missing(std::io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn certificates(
        &self,
        path: &Path,
    ) -> Result<Vec<CertificateDer<'static>>, ServingError> {
        Ok(pem::certificates(self.get(path)?.expose(), path.display())?)
    }
}

/// Waits until files have changed and settled: the files of a mounted Secret are not all replaced
/// at once.
pub(super) async fn files_change(
    config: &ServingConfig,
    files: &mut Files,
    events: &mut FileEvents,
) {
    if files.0.is_empty() {
        return std::future::pending().await;
    }
    loop {
        let found = Files::read(config);
        if found == *files {
            events.wait(WATCHED_INTERVAL).await;
            continue;
        }
        tokio::time::sleep(SETTLE).await;
        if Files::read(config) == found {
            *files = found;
            return;
        }
    }
}
