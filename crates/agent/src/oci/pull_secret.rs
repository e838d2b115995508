//! Credentials of registries in a file that the operator mounts, in the form of Docker's
//! `config.json`. The file is read anew for each pull, so that a replaced Secret counts at once.

use std::io;
use std::path::PathBuf;

use super::credentials::{self, CredentialsError};
use navarch_base::regular_file;

/// Maximum size of the file: that of a Secret of Kubernetes.
const MAX_BYTES: u64 = 1 << 20;

/// The file. Its content is read when it is needed, and not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSecretFile(PathBuf);

/// Why the file cannot be used for a registry. No text has a part of its content.
#[derive(Debug, thiserror::Error)]
pub enum PullSecretError {
    /// It cannot be read.
    #[error("the pull secret {path} cannot be read: {source}")]
    File {
        /// Where it is.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It has nothing that can be used for the registry.
    #[error("the pull secret {path} cannot be used for {registry}: {source}")]
    Unusable {
        /// Where it is.
        path: PathBuf,
        /// The host of the registry, with its port if given.
        registry: String,
        /// What is wrong with it.
        source: CredentialsError,
    },
}

impl PullSecretFile {
    /// The file at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The file's content, if it is usable for a registry, or has nothing for it.
    ///
    /// # Errors
    /// If it cannot be read, or the entry of this registry has no credentials that are supported.
    pub(crate) async fn read(&self, registry: &str) -> Result<Vec<u8>, PullSecretError> {
        let read = regular_file::read_async(&self.0, MAX_BYTES).await;
        let content = read.map_err(|source| PullSecretError::File {
            path: self.0.clone(),
            source,
        })?;

        credentials::check(&content, registry).map_err(|source| PullSecretError::Unusable {
            path: self.0.clone(),
            registry: registry.to_owned(),
            source,
        })?;
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    async fn read(path: &Path, registry: &str) -> Result<Vec<u8>, String> {
        let file = PullSecretFile::new(path.to_owned());
        let content = file.read(registry).await;
        content.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_rejected_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let error = read(&path, "ghcr.io").await.unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");

        for (content, reason) in [
            (r#"{"auths": "hunter2"}"#, "not Docker's config.json"),
            (
                r#"{"auths": {"ghcr.io": {"identitytoken": "hunter2"}}}"#,
                "its entry has none of",
            ),
            (
                r#"{"auths": {"ghcr.io": {"auth": "hunter\n2"}}}"#,
                "a line break",
            ),
            (
                r#"{"credsStore": "hunter2", "auths": {"ghcr.io": {}}}"#,
                "its entry has none of",
            ),
            (
                r#"{"credHelpers": {"ghcr.io": "hunter2"}}"#,
                "credential helpers are not run",
            ),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = read(&path, "ghcr.io").await.unwrap_err();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("hunter"), "{error}");
        }

        std::fs::write(&path, vec![b' '; 2 << 20]).unwrap();
        let error = read(&path, "ghcr.io").await.unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[tokio::test]
    async fn a_file_without_an_entry_of_the_registry_is_none_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let content = r#"{"auths": {"ghcr.io": {"auth": "dTpw"}}}"#;
        std::fs::write(&path, content).unwrap();
        for registry in ["ghcr.io", "registry.example"] {
            assert_eq!(read(&path, registry).await.unwrap(), content.as_bytes());
        }
    }
}
