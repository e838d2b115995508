//! Reads a plugged-in CA from a folder (a mounted `cacerts`), or from the Secret itself if it is in
//! another cluster.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{Bundle, BundleError};
use navarch_api::kubernetes::SecretBytes;
use navarch_base::regular_file;

/// The file names in Istio's layout: certificate, key, chain, roots.
const OWN_LAYOUT: [&str; 4] = [
    "ca-cert.pem",
    "ca-key.pem",
    "cert-chain.pem",
    "root-cert.pem",
];
/// The file names in the layout of `kubernetes.io/tls`: the certificate's file also contains the
/// chain.
const TLS_LAYOUT: [&str; 4] = ["tls.crt", "tls.key", "tls.crt", "ca.crt"];
/// The file name of CRLs in Istio's layout.
const REVOCATIONS: &str = "ca-crl.pem";
/// How long files must be unchanged before they are used: the files of a mounted Secret are not all
/// replaced at once.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// The name of the Secret with a CA.
const SECRET: &str = "cacerts";

/// The sources of a plugged-in CA.
#[derive(Clone)]
pub struct PluggedIn {
    /// `ROOT_CA_DIR`, in Istio's layout or in that of `kubernetes.io/tls`. It may be empty.
    pub folder: PathBuf,
    /// `USE_REMOTE_CERTS`: the API for the Secret `cacerts`, which is read if the folder has no
    /// complete CA.
    pub secrets: Option<Api<Secret>>,
}

/// Why a plugged-in CA cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluggedInError {
    /// A file cannot be read.
    #[error("failed to read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The request to the API server failed.
    #[error("failed to read the Secret {SECRET}")]
    Secret(#[source] Box<kube::Error>),
    /// Some files are missing.
    #[error("incomplete CA in {place}: {missing} is missing")]
    Incomplete {
        /// The folder or Secret.
        place: String,
        /// The first missing file.
        missing: &'static str,
    },
    /// A value of the Secret is not UTF-8.
    #[error("Secret {SECRET}: {0} is not UTF-8")]
    NoText(&'static str),
    /// The files are not a valid CA.
    #[error("invalid CA in {place}")]
    Bundle {
        /// The folder or Secret.
        place: String,
        /// The error of validation.
        #[source]
        source: BundleError,
    },
}

impl fmt::Debug for PluggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uses_secret = self.secrets.is_some();
        f.debug_struct("PluggedIn")
            .field("folder", &self.folder)
            .field("uses_secret", &uses_secret)
            .finish()
    }
}

/// The content of a file; `None` if the file is missing.
fn read_if_exists(path: &Path) -> Result<Option<String>, PluggedInError> {
    match regular_file::read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PluggedInError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The CA whose files `get` returns by name; `None` if all files are missing.
fn bundle(
    place: impl Fn() -> String,
    get: impl Fn(&'static str) -> Result<Option<String>, PluggedInError>,
) -> Result<Option<Bundle>, PluggedInError> {
    let layout = if get("tls.crt")?.is_some() {
        TLS_LAYOUT
    } else {
        OWN_LAYOUT
    };

    let [certificate, key, chain, roots] = layout;
    let found = [get(certificate)?, get(key)?, get(roots)?];
    match (found, [certificate, key, roots]) {
        ([None, None, None], _) => Ok(None),
        ([Some(certificate), Some(key), Some(roots)], _) => Ok(Some(Bundle {
            certificate,
            key: SecretBytes::new(key),
            chain: get(chain)?.unwrap_or_default(),
            roots,
            revocations: get(REVOCATIONS)?.unwrap_or_default(),
        })),
        (found, names) => {
            let missing = found.iter().zip(names).find(|(file, _)| file.is_none());
            let missing = missing.map_or("a file", |(_, name)| name);
            Err(PluggedInError::Incomplete {
                place: place(),
                missing,
            })
        }
    }
}

impl PluggedIn {
    /// The CA in the folder, or in the Secret; `None` if both are empty.
    ///
    /// # Errors
    /// If the CA is incomplete or cannot be read.
    pub async fn read(&self) -> Result<Option<Bundle>, PluggedInError> {
        let in_folder = bundle(
            || self.folder.display().to_string(),
            |name| read_if_exists(&self.folder.join(name)),
        );
        let Some(secrets) = &self.secrets else {
            return in_folder;
        };

        match in_folder {
            Ok(None) => Self::in_secret(secrets).await,
            // As in istiod. If the Secret is missing too, the missing file of the folder is
            // reported.
            Err(error @ PluggedInError::Incomplete { .. }) => match Self::in_secret(secrets).await?
            {
                Some(found) => Ok(Some(found)),
                None => Err(error),
            },
            found => found,
        }
    }

    /// The CA in the Secret; `None` if the Secret has none.
    async fn in_secret(secrets: &Api<Secret>) -> Result<Option<Bundle>, PluggedInError> {
        let secret = secrets
            .get_opt(SECRET)
            .await
            .map_err(|error| PluggedInError::Secret(Box::new(error)))?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let get = |name: &'static str| {
            let text = data
                .get(name)
                .map(|bytes| String::from_utf8(bytes.0.clone()));
            text.transpose().map_err(|_| PluggedInError::NoText(name))
        };
        bundle(|| format!("the Secret {SECRET}"), get)
    }

    /// The name of the source in messages.
    pub(super) fn place(&self) -> String {
        let folder = self.folder.display();
        if self.secrets.is_some() {
            format!("{folder} or the Secret {SECRET}")
        } else {
            folder.to_string()
        }
    }
}
