//! The store of roots, which outlives the process and is shared by all replicas.

mod folder;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};

use super::rotation::{RootSet, StoredFiles, StoredFilesError};
use navarch_api::kubernetes::SecretBytes;
use navarch_base::state_format::FormatError;
use navarch_kubernetes::is_conflict;

/// The name of the Secret with self-signed roots.
pub const SELF_SIGNED: &str = "istio-ca-secret";
/// The name of the Secret with the roots of a plugged-in CA: the current, former and next ones.
pub const PLUGGED_IN: &str = "navarch-ca-rotation";
const SECRET_TYPE: &str = "istio.io/ca-root";
/// Prefix of the annotations with the replicas' reports.
const REPORT: &str = "replica.navarch.io/";

/// Where roots and their keys are kept between two starts of the process.
#[derive(Clone)]
pub enum RootStore {
    /// In memory: they are lost with the process, and with them the trust of all certificates that
    /// they signed.
    Memory,
    /// A directory, for one process at a time.
    Folder(PathBuf),
    /// A Secret, by its name.
    Secret(Box<Api<Secret>>, &'static str),
}

/// The content of a store, and the version that a replacement must name.
#[derive(Clone, Debug)]
pub struct StoredRoots {
    /// Signing, next and former roots, with the keys of those that sign.
    pub set: RootSet,
    /// The version to pass on replacement, so that two replicas never overwrite each other.
    pub version: Option<String>,
    /// The replicas' reports about their proxies, by replica.
    pub reports: BTreeMap<String, String>,
}

/// Errors of loading and storing roots.
#[derive(Debug, thiserror::Error)]
pub enum RootStoreError {
    /// Reading or writing a file failed.
    #[error("{path}")]
    File {
        /// The file, or the directory if that could not be created.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{path}: {reason}")]
    Damaged {
        /// A file in the directory of the store, such as `state.json`.
        path: PathBuf,
        /// The problem, and what can be done.
        reason: String,
    },
    /// A file has another format.
    #[error("{path}")]
    Format {
        /// A file in the directory of the store.
        path: PathBuf,
        /// Which format it has.
        #[source]
        source: FormatError,
    },
    /// The stored roots are invalid.
    #[error("{place} contains no usable roots")]
    Unusable {
        /// The Secret or directory.
        place: String,
        /// What is wrong with them.
        #[source]
        source: StoredFilesError,
    },
    /// A write conflict with another replica.
    #[error("another replica replaced the roots concurrently")]
    Conflict,
    /// A request to the API server failed.
    #[error("failed to read or write the Secret of the roots")]
    Kubernetes(#[from] kube::Error),
}

impl RootStoreError {
    /// Whether a later release stored the roots: they may be in use.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        match self {
            Self::Format { source, .. }
            | Self::Unusable {
                source: StoredFilesError::Format(_, source),
                ..
            } => source.is_newer(),
            Self::Unusable { .. }
            | Self::File { .. }
            | Self::Damaged { .. }
            | Self::Conflict
            | Self::Kubernetes(_) => false,
        }
    }
}

impl StoredRoots {
    /// Reads a Secret; `None` if it contains no roots.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn from_secret(secret: Secret) -> Result<Option<Self>, StoredFilesError> {
        let annotations = secret.metadata.annotations.unwrap_or_default().into_iter();
        let reports = annotations
            .filter_map(|(name, text)| Some((name.strip_prefix(REPORT)?.to_owned(), text)));
        let files = secret.data.unwrap_or_default().into_iter();
        let files = files
            .map(|(name, bytes)| (name, SecretBytes::new(bytes.0)))
            .collect();

        let set = RootSet::from_files(&files)?;
        Ok(set.map(|set| Self {
            set,
            version: secret.metadata.resource_version,
            reports: reports.collect(),
        }))
    }
}

impl std::fmt::Debug for RootStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Secret(_, name) => f.write_str(name),
        }
    }
}

impl RootStore {
    /// The stored roots, if any.
    ///
    /// # Errors
    /// If the store cannot be read, or its content is invalid.
    pub async fn load(&self) -> Result<Option<StoredRoots>, RootStoreError> {
        let unusable = |source| RootStoreError::Unusable {
            place: format!("{self:?}"),
            source,
        };
        match self {
            Self::Memory => Ok(None),
            Self::Folder(folder) => {
                let set = RootSet::from_files(&folder::load(folder)?).map_err(unusable)?;
                Ok(set.map(|set| StoredRoots {
                    set,
                    version: None,
                    reports: BTreeMap::new(),
                }))
            }
            Self::Secret(api, name) => match api.get_opt(name).await? {
                Some(secret) => StoredRoots::from_secret(secret).map_err(unusable),
                None => Ok(None),
            },
        }
    }

    /// Replaces the set of this version; `None` means that there is none yet. Returns the new
    /// version, if the store has versions.
    ///
    /// # Errors
    /// If the store cannot be written, or another replica wrote first.
    pub async fn save(
        &self,
        set: &RootSet,
        version: Option<&str>,
    ) -> Result<Option<String>, RootStoreError> {
        let unusable = |source| RootStoreError::Unusable {
            place: "memory".to_owned(),
            source,
        };
        let files = set.to_files().map_err(unusable)?;

        match self {
            Self::Memory => Ok(None),
            Self::Folder(folder) => folder::save(folder, &files).map(|()| None),
            Self::Secret(api, name) => {
                let parameters = PostParams::default();
                let secret = match version {
                    None => secret_with(name, files),
                    Some(version) => {
                        let mut secret = api.get(name).await?;
                        if secret.metadata.resource_version.as_deref() != Some(version) {
                            return Err(RootStoreError::Conflict);
                        }
                        // Entries of other writers stay.
                        let data = secret.data.get_or_insert_default();
                        data.retain(|name, _| !OWN.contains(&name.as_str()));
                        data.extend(entries(files));
                        secret
                    }
                };

                let outcome = match version {
                    None => api.create(&parameters, &secret).await,
                    Some(_) => api.replace(name, &parameters, &secret).await,
                };
                outcome
                    .map(|secret| secret.metadata.resource_version)
                    .map_err(conflict)
            }
        }
    }

    /// Restores missing or partial parts of this set, such as a file that did not fit on a full
    /// disk.
    ///
    /// # Errors
    /// If writing fails.
    pub fn repair(&self, set: &RootSet) -> Result<(), RootStoreError> {
        let unusable = |source| RootStoreError::Unusable {
            place: "memory".to_owned(),
            source,
        };
        match self {
            Self::Memory | Self::Secret(..) => Ok(()),
            Self::Folder(folder) => folder::repair(folder, &set.to_files().map_err(unusable)?),
        }
    }

    /// Writes a replica's report beside the roots of this version, and removes expired reports.
    /// Returns the new version, if the store has versions.
    ///
    /// # Errors
    /// If writing fails, or another replica wrote first.
    pub async fn report(
        &self,
        replica: &str,
        text: &str,
        version: Option<&str>,
        is_forgotten: impl Fn(&str) -> bool + Send,
    ) -> Result<Option<String>, RootStoreError> {
        // Without stored roots there is nothing to annotate.
        let (Self::Secret(api, name), Some(version)) = (self, version) else {
            return Ok(version.map(str::to_owned));
        };

        let mut secret = api.get(name).await?;
        if secret.metadata.resource_version.as_deref() != Some(version) {
            return Err(RootStoreError::Conflict);
        }

        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.retain(|name, text| !name.starts_with(REPORT) || !is_forgotten(text));
        annotations.insert(format!("{REPORT}{}", short(replica)), text.to_owned());

        let outcome = api.replace(name, &PostParams::default(), &secret).await;
        outcome
            .map(|secret| secret.metadata.resource_version)
            .map_err(conflict)
    }
}

/// The name of a replica within the 63 characters of an annotation key. Pods of one Deployment
/// differ at the end.
pub(super) fn short(replica: &str) -> String {
    let signs: Vec<char> = replica.chars().collect();
    let end: String = signs.iter().skip(signs.len().saturating_sub(63)).collect();
    end.trim_start_matches(|sign: char| !sign.is_ascii_alphanumeric())
        .to_owned()
}

/// The entries that a set may have.
const OWN: [&str; 3] = ["next-ca-cert.pem", "next-ca-key.pem", "rotation.json"];

/// Converts a conflict response to the conflict error.
fn conflict(error: kube::Error) -> RootStoreError {
    if is_conflict(&error) {
        RootStoreError::Conflict
    } else {
        error.into()
    }
}

/// Files as entries of a Secret.
fn entries(files: StoredFiles) -> impl Iterator<Item = (String, ByteString)> {
    files
        .into_iter()
        .map(|(name, bytes)| (name, ByteString(bytes.expose().to_vec())))
}

/// A new Secret with a set.
///
/// # Errors
/// If a root is invalid.
pub fn secret_of(name: &str, set: &RootSet) -> Result<Secret, StoredFilesError> {
    Ok(secret_with(name, set.to_files()?))
}

/// A new Secret with files as entries.
fn secret_with(name: &str, files: StoredFiles) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(entries(files).collect()),
        ..Secret::default()
    }
}
