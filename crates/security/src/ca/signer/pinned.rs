//! The roots of a signer in a file (`NAVARCH_SIGNER_ROOTS`), which are then the only ones.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::super::bundle::{BundleError, certificates};
use navarch_base::file_events::{FileEvents, WATCHED_INTERVAL};
use navarch_base::regular_file;
use navarch_net::watched::send_if_changed;
use navarch_pki::pem::PemError;

/// Why a file of roots is not used.
#[derive(Debug, thiserror::Error)]
pub enum PinnedRootsError {
    /// It cannot be read.
    #[error("failed to read the signer's roots in {path}")]
    Read {
        /// `NAVARCH_SIGNER_ROOTS`
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// It has no readable certificates.
    #[error("the signer's roots in {path} cannot be used")]
    Content {
        /// `NAVARCH_SIGNER_ROOTS`
        path: PathBuf,
        /// What is wrong with its text.
        #[source]
        source: BundleError,
    },
}

/// Reads a file of roots in PEM. Returns a watch of its content, and the task that follows the
/// file; while it is unreadable, the last roots stay.
///
/// # Errors
/// If it cannot be read, or has no certificates.
pub fn pinned(
    path: &Path,
) -> Result<
    (
        watch::Receiver<Arc<str>>,
        impl Future<Output = ()> + Send + use<>,
    ),
    PinnedRootsError,
> {
    let (sender, roots) = watch::channel(read(path)?);
    let path = path.to_owned();
    let follow = async move {
        let mut events = FileEvents::of_files([path.as_path()]);
        loop {
            events.wait(WATCHED_INTERVAL).await;
            match read(&path) {
                Ok(text) => send_if_changed(&sender, text),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the signer's last roots stay in use"
                ),
            }
        }
    };

    Ok((roots, follow))
}

/// The roots in a file.
fn read(path: &Path) -> Result<Arc<str>, PinnedRootsError> {
    let text = regular_file::read_text(path).map_err(|source| PinnedRootsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let content = |source: BundleError| PinnedRootsError::Content {
        path: path.to_owned(),
        source,
    };
    let roots = certificates(&text, "the file").map_err(content)?;
    if roots.is_empty() {
        let none = PemError::NoCertificate("the file".to_owned());
        return Err(content(none.into()));
    }
    Ok(text.into())
}
