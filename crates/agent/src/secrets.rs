//! The workload's certificates and keys: where they come from, and when they change.
//!
//! ```text
//! key and CSR ─▶ CA (token or certificate) ─▶ certificate ─┐
//! /etc/certs, workload-spiffe-credentials ─────────────────┼▶ `default`, `ROOTCA` ─▶ SDS, OUTPUT_CERTS
//! proxy config (trust bundle) ─────────────────────────────┘
//! file-cert:, file-root: ─▶ watched files ─────────────────▶ resources of that name ─▶ SDS
//! ```
//!
//! Each resource is a watch channel whose one writer is the task that gets it; whoever wants it waits for the first value
//! and then for the next. A certificate is renewed while the one before is still served. Keys live in a type that prints
//! nothing, and go to disk only where `OUTPUT_CERTS` says so.

mod authority;
pub mod ca_client;
mod files;
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
pub use name::SecretName;
pub use request::KeyKind;
pub use rotation::Grace;

use crate::metrics::AgentMetrics;
use navarch_api::kubernetes::SecretBytes;
use navarch_security::Clock;

/// File resources that may be watched at once. A gateway has as many as it has certificates in files.
const MAX_FILE_RESOURCES: usize = 4096;

/// What a resource is at a moment.
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

/// A resource to be watched; `None` until it is there.
pub type SecretWatch = watch::Receiver<Option<Arc<Secret>>>;

/// The writer's end.
type SecretSender = watch::Sender<Option<Arc<Secret>>>;

/// What the agent knows of its workload's certificates at start.
#[derive(Clone, Debug)]
pub struct SecretsConfig {
    /// The workload's identity, for the CSR.
    pub identity: String,
    /// What kind of key is made.
    pub key: KeyKind,
    /// `SECRET_TTL`: how long a certificate is asked to last. Default 24 h.
    pub lifetime: Duration,
    /// When a certificate is renewed.
    pub grace: Grace,
    /// Certificates that somebody else puts there; each that is there at start is used instead of the CA's.
    pub existing: CertificateFiles,
    /// The root file of `file-root:system`, if there is one.
    pub system_roots: Option<PathBuf>,
    /// `OUTPUT_CERTS`: where certificates and keys are written to, if anywhere.
    pub output: Option<PathBuf>,
    /// `FILE_DEBOUNCE_DURATION`: how long files must have kept still before they are read. Default 100 ms.
    pub debounce: Duration,
}

/// The workload's secrets. Clones are one.
#[derive(Clone, Debug)]
pub struct Secrets(Arc<Inner>);

/// What the clones share.
#[derive(Debug)]
struct Inner {
    config: SecretsConfig,
    /// `default`.
    certificate: SecretSender,
    /// `ROOTCA`.
    roots: SecretSender,
    /// Further roots, from the proxy config.
    bundle: watch::Sender<Vec<String>>,
    /// Told when the certificate shall be renewed before its time.
    renew: Notify,
    /// Resources that come from files, by name.
    files: Mutex<BTreeMap<SecretName, SecretSender>>,
    /// The tasks that read files.
    tasks: TaskTracker,
    /// What is counted.
    metrics: AgentMetrics,
    /// Cancels the file watchers.
    stop: CancellationToken,
}

/// The work behind [`Secrets`]; to be run.
#[derive(Debug)]
pub struct SecretsTask {
    secrets: Secrets,
    /// Who signs; none where all comes from files or from another SDS server.
    ca: Option<CaClient>,
    /// Tells when certificates end.
    clock: Clock,
}

/// Why a resource cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The name is none that the agent serves.
    #[error("unknown secret {0:?}")]
    Unknown(String),
    /// Too many files are watched.
    #[error("too many file secrets: at most {MAX_FILE_RESOURCES} are watched")]
    TooMany,
}

impl Secrets {
    /// Secrets and the task that gets them. Without a CA there are only files.
    #[must_use]
    pub fn new(
        config: SecretsConfig,
        ca: Option<CaClient>,
        (clock, metrics): (Clock, AgentMetrics),
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

    /// Watches a resource. One in files is read from now on, until nobody watches it.
    ///
    /// # Errors
    /// When the name is not the agent's, or too many files are watched.
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
            SecretName::FileCertificate { chain, key } => {
                files::FileResource::Certificate { chain: chain.clone(), key: key.clone() }
            }
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
        self.0.tasks.spawn(self.clone().serve_file(name, wanted, sender));
        Ok(receiver)
    }

    /// Trusts these roots, each in PEM, besides the mesh's own. Where they replace others the workload's certificate is renewed,
    /// since its signer may have changed with them; the first say nothing new of who has just signed.
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

    /// When the workload's certificate was last put in force, to be watched by what counts or reports it.
    #[must_use]
    pub fn certificate(&self) -> SecretWatch {
        self.0.certificate.subscribe()
    }

    /// Keeps a resource that is in files fresh while somebody watches it.
    async fn serve_file(self, name: SecretName, wanted: files::FileResource, sender: SecretSender) {
        let publish = sender.clone();
        let how = (self.0.config.debounce, &self.0.metrics);
        let follow = files::follow(wanted, how, move |secret| replace(&publish, secret));
        let unwatched = async {
            loop {
                sender.closed().await;
                let mut files = self.0.files.lock();
                // Somebody may have come while the lock was waited for.
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

/// Puts a secret in force, unless it is the same.
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
        let (config, metrics) = (&secrets.0.config, &secrets.0.metrics);
        let existing = config.existing.present(config.output.as_deref());
        let roots_from_file = existing.roots.is_some();
        let certificate = async {
            match (existing.certificate, &ca) {
                (Some(wanted), _) => {
                    let publish = |secret| replace(&secrets.0.certificate, secret);
                    files::follow(wanted, (config.debounce, metrics), publish).await;
                }
                (None, Some(ca)) => authority::keep_fresh(&secrets, ca, clock, !roots_from_file).await,
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
