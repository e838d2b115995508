//! A CA from outside, in a folder (`cacerts` as Kubernetes mounts it).

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Bundle, BundleError};
use navarch_api::kubernetes::SecretBytes;
use navarch_api::regular_file;

/// The names of the files in Istio's own layout: certificate, key, chain, roots.
const OWN_LAYOUT: [&str; 4] = ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"];
/// The names in that of `kubernetes.io/tls`: the certificate's file holds the chain, too.
const TLS_LAYOUT: [&str; 4] = ["tls.crt", "tls.key", "tls.crt", "ca.crt"];
/// Revocations, in Istio's own layout.
const REVOCATIONS: &str = "ca-crl.pem";
/// How long files must have stayed equal to count: a mounted Secret's are not all replaced in one moment.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// A folder that holds a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluggedIn {
    /// The folder.
    pub folder: PathBuf,
}

/// Why a folder's CA cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluggedInError {
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Some files are there and others are not.
    #[error("{folder} holds part of a CA: {missing} is missing")]
    Incomplete {
        folder: PathBuf,
        /// The first file that is missing.
        missing: &'static str,
    },
    /// The files do not belong together.
    #[error("the CA in {folder} cannot be used")]
    Bundle {
        folder: PathBuf,
        /// Why.
        #[source]
        source: BundleError,
    },
}

/// The content of a file; `None` if it is not there.
fn read_if_there(path: &Path) -> Result<Option<String>, PluggedInError> {
    match regular_file::read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PluggedInError::Read { path: path.to_owned(), source }),
    }
}

impl PluggedIn {
    /// The CA in the folder; `None` if none of its files are there.
    ///
    /// # Errors
    /// When it is there in part, or cannot be read.
    pub fn read(&self) -> Result<Option<Bundle>, PluggedInError> {
        let get = |name: &str| read_if_there(&self.folder.join(name));
        let layout = if get("tls.crt")?.is_some() { TLS_LAYOUT } else { OWN_LAYOUT };
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
                Err(PluggedInError::Incomplete { folder: self.folder.clone(), missing })
            }
        }
    }
}
