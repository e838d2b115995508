//! Where a self-signed root is kept, so that it outlives the process and all replicas share it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};

use super::Bundle;
use crate::api::kubernetes::SecretBytes;

/// The Secret's name.
pub const SECRET_NAME: &str = "istio-ca-secret";
/// The Secret's type.
const SECRET_TYPE: &str = "istio.io/ca-root";
/// The certificate's name, as a file and in the Secret.
const CERTIFICATE: &str = "ca-cert.pem";
/// The key's.
const KEY: &str = "ca-key.pem";
/// Entries that older readers expect to be there, empty.
const EMPTY: [&str; 3] = ["cert-chain.pem", "key.pem", "root-cert.pem"];

/// A place for a self-signed root.
#[derive(Clone)]
pub enum RootStore {
    /// Nowhere: it goes with the process, and with it the trust of all who have its certificates.
    Memory,
    /// A folder, for one process at a time.
    Folder(PathBuf),
    /// The Secret `istio-ca-secret` of a namespace.
    Secret(Box<Api<Secret>>),
}

/// Why a root is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum RootStoreError {
    /// A file cannot be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Part of it is missing.
    #[error("{0} is there without its certificate or key: take it away, or put back what is missing")]
    Incomplete(String),
    /// The API server does not answer or says no.
    #[error("Secret {SECRET_NAME} cannot be read or written")]
    Kubernetes(#[from] kube::Error),
}

impl std::fmt::Debug for RootStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Secret(_) => f.write_str(SECRET_NAME),
        }
    }
}

/// A root out of its two parts.
fn root(certificate: String, key: SecretBytes) -> Bundle {
    Bundle { roots: certificate.clone(), certificate, key, chain: String::new(), revocations: String::new() }
}

impl RootStore {
    /// The root that is kept; where there is none, one is made and kept. Of several who make one at once, one wins and all
    /// get that.
    ///
    /// # Errors
    /// When the place cannot be read or written.
    pub async fn load_or_create<E>(&self, make: impl Fn() -> Result<Bundle, E>) -> Result<Bundle, E>
    where
        E: From<RootStoreError>,
    {
        match self {
            Self::Memory => make(),
            Self::Folder(folder) => match load(folder)? {
                Some(root) => Ok(root),
                None => {
                    let root = make()?;
                    save(folder, &root)?;
                    Ok(root)
                }
            },
            Self::Secret(api) => {
                if let Some(root) = get(api).await? {
                    return Ok(root);
                }
                let made = make()?;
                match api.create(&PostParams::default(), &secret_of(&made)).await {
                    Ok(_) => Ok(made),
                    // Another replica was faster.
                    Err(kube::Error::Api(answer)) if answer.code == 409 => {
                        Ok(get(api).await?.ok_or_else(|| RootStoreError::Incomplete(SECRET_NAME.to_owned()))?)
                    }
                    Err(error) => Err(RootStoreError::from(error).into()),
                }
            }
        }
    }
}

/// The root in a Secret, if there is one.
async fn get(api: &Api<Secret>) -> Result<Option<Bundle>, RootStoreError> {
    let Some(secret) = api.get_opt(SECRET_NAME).await? else { return Ok(None) };
    let mut data = secret.data.unwrap_or_default();
    let mut take = |name: &str| data.remove(name).filter(|value| !value.0.is_empty());
    let certificate = take(CERTIFICATE).and_then(|value| String::from_utf8(value.0).ok());
    match (certificate, take(KEY)) {
        (Some(certificate), Some(key)) => Ok(Some(root(certificate, SecretBytes::new(key.0)))),
        _ => Err(RootStoreError::Incomplete(SECRET_NAME.to_owned())),
    }
}

/// The Secret that keeps a root.
fn secret_of(root: &Bundle) -> Secret {
    let mut data = std::collections::BTreeMap::new();
    data.insert(CERTIFICATE.to_owned(), ByteString(root.certificate.clone().into_bytes()));
    data.insert(KEY.to_owned(), ByteString(root.key.expose().to_vec()));
    for name in EMPTY {
        data.insert(name.to_owned(), ByteString(Vec::new()));
    }
    Secret {
        metadata: ObjectMeta { name: Some(SECRET_NAME.to_owned()), ..ObjectMeta::default() },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// The root in a folder, if there is one.
fn load(folder: &Path) -> Result<Option<Bundle>, RootStoreError> {
    let read = |name: &str| {
        let path = folder.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RootStoreError::File { path, source }),
        }
    };
    match (read(CERTIFICATE)?.map(String::from_utf8), read(KEY)?) {
        (None, None) => Ok(None),
        (Some(Ok(certificate)), Some(key)) => Ok(Some(root(certificate, SecretBytes::new(key)))),
        _ => Err(RootStoreError::Incomplete(folder.display().to_string())),
    }
}

/// Keeps a root in a folder: the key first, for a certificate without its key would be of no use.
fn save(folder: &Path, root: &Bundle) -> Result<(), RootStoreError> {
    let wrap = |path: &Path| {
        let path = path.to_owned();
        move |source| RootStoreError::File { path, source }
    };
    std::fs::create_dir_all(folder).map_err(wrap(folder))?;
    for (name, bytes) in [(KEY, &root.key.expose()[..]), (CERTIFICATE, root.certificate.as_bytes())] {
        let path = folder.join(name);
        let partial = folder.join(format!(".{name}.partial"));
        let write = || -> std::io::Result<()> {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&partial, &path)
        };
        write().map_err(wrap(&path))?;
    }
    Ok(())
}
