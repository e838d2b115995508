//! The workload's certificates and keys: their sources and their rotation.
//!
//! ```text
//! key and CSR ─▶ CA (token or certificate) ─▶ certificate ─┐
//! /etc/certs, workload-spiffe-credentials ─────────────────┼▶ `default`, `ROOTCA` ─▶ SDS, OUTPUT_CERTS
//! proxy config (trust bundle) ─────────────────────────────┘
//! file-cert:, file-root: ─▶ watched files ─────────────────▶ resources of that name ─▶ SDS
//! ```
//!
//! Each resource is a watch channel with one writer, the task that obtains it; readers wait for the
//! first value and then for changes. A certificate is renewed while the current one is still
//! served. Keys have a type that prints nothing, and are written to disk only if `OUTPUT_CERTS` is
//! set.

mod authority;
pub mod ca_client;
mod files;
mod key_format;
mod name;
mod output;
mod pem;
mod request;
mod rotation;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use ca_client::{CaClient, CaError};
pub use files::CertificateFiles;
pub use key_format::KeyFormat;
pub use name::SecretName;
pub use output::OutputFiles;
pub use request::KeyKind;
pub use rotation::Grace;

use crate::Clock;
use crate::metrics::AgentMetrics;
use navarch_api::kubernetes::SecretBytes;

/// Maximum number of watched file resources. A gateway has one per certificate in files.
const MAX_FILE_RESOURCES: usize = 4096;

/// The value of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// A certificate and its key.
    Certificate {
        /// The chain in PEM, leaf first.
        chain: Bytes,
        /// The key in PEM.
        key: SecretBytes,
    },
    /// Roots in PEM.
    Roots(Bytes),
}

/// A watch of a resource; `None` until it has a value.
pub type SecretWatch = watch::Receiver<Option<Arc<Secret>>>;

/// The sender of a resource.
type SecretSender = watch::Sender<Option<Arc<Secret>>>;

/// Configuration of the workload's certificates.
#[derive(Clone, Debug)]
pub struct SecretsConfig {
    /// The workload's identity, for the CSR.
    pub identity: String,
    /// The key type.
    pub key: KeyKind,
    /// `PKCS8_KEY`: the format of the key. Default PKCS#8.
    pub key_format: KeyFormat,
    /// `SECRET_TTL`: requested lifetime of a certificate. Default 24 h.
    pub lifetime: Duration,
    /// When a certificate is renewed.
    pub grace: Grace,
    /// Mounted certificates; those that exist at start replace the CA's.
    pub existing: CertificateFiles,
    /// The root file of `file-root:system`, if there is one.
    pub system_roots: Option<PathBuf>,
    /// `OUTPUT_CERTS`: the files that certificates and keys are written to, if any.
    pub output: Option<OutputFiles>,
    /// `FILE_DEBOUNCE_DURATION`: how long files must be unchanged before they are read. Default 100
    /// ms.
    pub debounce: Duration,
}

/// The workload's secrets. Clones share their state.
#[derive(Clone, Debug)]
pub struct Secrets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: SecretsConfig,
    /// `default`.
    certificate: SecretSender,
    /// `ROOTCA`.
    roots: SecretSender,
    /// Further roots, from the proxy config.
    bundle: watch::Sender<Vec<String>>,
    /// Notified when the certificate must be renewed early.
    renew: Notify,
    /// Resources that come from files, by name.
    files: Mutex<BTreeMap<SecretName, SecretSender>>,
    /// The tasks that read files.
    tasks: TaskTracker,
    metrics: AgentMetrics,
    /// Cancels the file watchers.
    stop: CancellationToken,
}

/// The task behind [`Secrets`].
#[derive(Debug)]
pub struct SecretsTask {
    secrets: Secrets,
    /// The CA; `None` if all comes from files or from another SDS server.
    ca: Option<CaClient>,
    /// The clock for certificate expiry.
    clock: Clock,
}

/// Why a resource cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The agent does not serve a resource of this name.
    #[error("unknown secret {0:?}")]
    Unknown(String),
    /// Too many files are watched.
    #[error("too many file secrets: at most {MAX_FILE_RESOURCES} are watched")]
    TooMany,
}

impl Secrets {
    /// Secrets and the task that obtains them. Without a CA there are only files.
    #[must_use]
    pub fn new(
        config: SecretsConfig,
        ca: Option<CaClient>,
        clock: Clock,
        metrics: AgentMetrics,
        stop: CancellationToken,
    ) -> (Self, SecretsTask) {
        let inner = Inner {
            config,
            certificate: watch::Sender::new(None),
            roots: watch::Sender::new(None),
            bundle: watch::Sender::new(Vec::new()),
            renew: Notify::new(),
            files: Mutex::default(),
            tasks: TaskTracker::new(),
            metrics,
            stop,
        };
        let secrets = Self(Arc::new(inner));
        (secrets.clone(), SecretsTask { secrets, ca, clock })
    }

    /// Watches a resource. A file resource is read until its last watch is dropped.
    ///
    /// # Errors
    /// If the name is unknown, or too many files are watched.
    pub fn watch(&self, name: &str) -> Result<SecretWatch, WatchError> {
        let unknown = || WatchError::Unknown(name.to_owned());
        let name = SecretName::parse(name).ok_or_else(unknown)?;
        let wanted = match &name {
            SecretName::Workload => return Ok(self.0.certificate.subscribe()),
            SecretName::Roots => return Ok(self.0.roots.subscribe()),
            SecretName::SystemRoots => {
                files::FileResource::Roots(self.0.config.system_roots.clone().ok_or_else(unknown)?)
            }
            SecretName::FileRoots(path) => files::FileResource::Roots(path.clone()),
            SecretName::FileCertificate { chain, key } => files::FileResource::Certificate {
                chain: chain.clone(),
                key: key.clone(),
            },
        };

        let mut files = self.0.files.lock();
        if let Some(sender) = files.get(&name) {
            return Ok(sender.subscribe());
        }

        if files.len() >= MAX_FILE_RESOURCES {
            return Err(WatchError::TooMany);
        }

        let (sender, receiver) = watch::channel(None);
        files.insert(name.clone(), sender.clone());
        self.0
            .tasks
            .spawn(self.clone().serve_file(name, wanted, sender));

        Ok(receiver)
    }

    /// Trusts these roots, each in PEM, besides the mesh's own. When they replace others, the
    /// workload's certificate is renewed, since its signer may have changed with them; the first
    /// set does not trigger a renewal.
    pub fn set_trust_bundle(&self, roots: Vec<String>) {
        let mut replaced = false;
        self.0.bundle.send_if_modified(|bundle| {
            let changed = *bundle != roots;
            replaced = changed && !bundle.is_empty();
            *bundle = roots;
            changed
        });
        if replaced {
            self.0.renew.notify_one();
        }
    }

    /// A watch of the time at which the workload's certificate was last replaced.
    #[must_use]
    pub fn certificate(&self) -> SecretWatch {
        self.0.certificate.subscribe()
    }

    /// Follows a file resource while it is watched.
    async fn serve_file(self, name: SecretName, wanted: files::FileResource, sender: SecretSender) {
        let publish = sender.clone();
        let follow = files::follow(
            wanted,
            self.0.config.debounce,
            &self.0.metrics,
            move |secret| replace(&publish, secret),
        );
        let unwatched = async {
            loop {
                sender.closed().await;
                let mut files = self.0.files.lock();
                // Another watch may have been added before the lock was taken.
                if sender.receiver_count() == 0 {
                    files.remove(&name);
                    break;
                }
            }
        };

        tokio::select! {
            () = follow => {}
            () = unwatched => {}
            () = self.0.stop.cancelled() => {}
        }
    }
}

/// Publishes a secret, unless it is unchanged.
fn replace(sender: &SecretSender, secret: Secret) {
    sender.send_if_modified(|current| {
        let changed = current.as_deref() != Some(&secret);
        if changed {
            *current = Some(Arc::new(secret));
        }
        changed
    });
}

impl SecretsTask {
    /// Requests the workload's certificate and roots and renews them until shutdown.
    pub async fn run(self) {
        let Self { secrets, ca, clock } = self;
        let config = &secrets.0.config;
        let metrics = &secrets.0.metrics;
        let existing = config
            .existing
            .present(config.output.as_ref().map(|output| output.folder.as_path()));
        let roots_from_file = existing.roots.is_some();
        let certificate = async {
            match (existing.certificate, &ca) {
                (Some(wanted), _) => {
                    let publish = |secret| replace(&secrets.0.certificate, secret);
                    files::follow(wanted, config.debounce, metrics, publish).await;
                }
                (None, Some(ca)) => {
                    authority::renew_certificate(&secrets, ca, clock, !roots_from_file).await
                }
                (None, None) => std::future::pending().await,
            }
        };

        let roots = async {
            match existing.roots {
                Some(wanted) => authority::follow_roots(&secrets, wanted).await,
                None => std::future::pending().await,
            }
        };

        tokio::select! {
            () = certificate => {}
            () = roots => {}
            () = output::follow(&secrets) => {}
            () = secrets.0.stop.cancelled() => {}
        }

        secrets.0.tasks.close();
        secrets.0.tasks.wait().await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
