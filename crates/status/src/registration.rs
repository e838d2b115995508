//! Auto-registration of workloads that are not pods: each has a WorkloadEntry while its proxy is
//! connected.
//!
//! ```text
//! connect ──▶ create or annotate the entry ──▶ Registered ──reports──▶ condition Healthy
//!                                                  │ dropped
//!                                                  ▼
//!                                   disconnectedAt ──grace──▶ delete, or forget the health
//! ```
//!
//! Access to an entry is checked against the known state of the cluster (`permit`); only authorized
//! workloads cause requests to the API server, a few at a time, fairly among service accounts. The
//! control plane with the connection writes. It reads the entry from the API server, and writes
//! only if it is unchanged, so that a workload that moves between control planes is never lost.

mod entries;
mod entry_state;
mod metrics;
mod permit;
mod sweep;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cluster::Cluster;
use navarch_api::object::NamespacedName;
use navarch_kubernetes::is_stale;
use navarch_net::backoff::Backoff;
use navarch_net::fair_semaphore::FairSemaphore;
use navarch_store::Objects;

pub use entry_state::WorkloadHealth;
use entry_state::{Annotations, Connection};
pub use metrics::RegistrationMetrics;
use workload::Group;
pub use workload::{Claim, Workload};

/// Maximum number of write conflicts.
const MAX_ATTEMPTS: usize = 5;
/// Retry delays.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
/// Timeout of the API server while a proxy waits.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum concurrent and waiting requests to the API server.
const REQUESTS: (usize, usize) = (32, 100_000);
/// Minimum interval of health reports.
const REPORTS: Duration = Duration::from_millis(500);
/// Maximum length of a report's message.
const MAX_MESSAGE: usize = 1024;

/// Settings of workloads that are not pods.
#[derive(Clone, Debug, PartialEq)]
pub struct RegistrationConfig {
    /// `PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION`: workloads are registered. Default true.
    pub auto_registers: bool,
    /// `PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS`: their health is written. Default true.
    pub tells_health: bool,
    /// `ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY`: whether the identity of a workload must match its
    /// entry. Default true.
    pub validates_identity: bool,
    /// `PILOT_WORKLOAD_ENTRY_GRACE_PERIOD`: how long a workload may be disconnected. Default 10 s.
    pub grace: Duration,
    /// Maximum duration of a connection before the workload reconnects, with a margin. An entry
    /// with a longer connection was left behind by a control plane that crashed. `None` disables
    /// the check.
    pub longest: Option<Duration>,
}

impl Default for RegistrationConfig {
    fn default() -> Self {
        let grace = Duration::from_secs(10);
        Self {
            auto_registers: true,
            tells_health: true,
            validates_identity: true,
            grace,
            longest: None,
        }
    }
}

/// Errors of registering a workload.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A name is not a valid object name.
    #[error("the name of its {0} is not a valid object name")]
    Name(&'static str),
    /// The workload's identity may not have entries in the namespace.
    #[error("WorkloadEntry {0}: {1}")]
    Unproved(NamespacedName, String),
    /// The WorkloadGroup does not exist.
    #[error("WorkloadEntry {0}: WorkloadGroup {1} not found")]
    NoGroup(NamespacedName, NamespacedName),
    /// The WorkloadEntry does not exist.
    #[error("WorkloadEntry {0} not found")]
    NoEntry(NamespacedName),
    /// The workload's identity does not match the entry.
    #[error("WorkloadEntry {0}: {1}")]
    Stranger(NamespacedName, String),
    /// There were too many write conflicts.
    #[error("WorkloadEntry {0}: too many write conflicts")]
    Busy(NamespacedName),
    /// There are too many pending registrations.
    #[error("WorkloadEntry {0}: too many pending registrations of its service account")]
    Crowded(NamespacedName),
    /// A request to the API server failed.
    #[error("failed to write WorkloadEntry {0}")]
    Api(NamespacedName, #[source] kube::Error),
    /// A request to the API server timed out.
    #[error("timed out writing WorkloadEntry {0}")]
    Silence(NamespacedName),
}

/// Returns the known objects of the cluster.
pub type KnownObjects = Arc<dyn Fn() -> Objects + Send + Sync>;

/// Registers workloads. Clones share their state.
#[derive(Clone, Debug)]
pub struct Registrar(Arc<Inner>);

/// The shared state of a registrar.
struct Inner {
    cluster: Cluster,
    objects: KnownObjects,
    /// Limits requests to the API server, fairly among service accounts.
    turns: Arc<FairSemaphore<NamespacedName>>,
    /// The name of this control plane.
    instance: String,
    /// Settings from flags and environment.
    config: RegistrationConfig,
    metrics: RegistrationMetrics,
    /// The connected workloads, by entry.
    present: Mutex<BTreeMap<NamespacedName, Present>>,
    /// One task for each stream of a workload.
    tasks: TaskTracker,
    /// Cancels the waits of tasks.
    stop: CancellationToken,
}

/// A workload that is connected here.
#[derive(Clone, Debug)]
struct Present {
    workload: Workload,
    streams: usize,
    /// When the last stream began.
    at: Timestamp,
}

/// A registered workload's stream. Dropping it reports the disconnect.
#[derive(Debug)]
pub struct Registered {
    /// The last report.
    reports: watch::Sender<Option<(WorkloadHealth, Timestamp)>>,
}

impl Registered {
    /// Applies a health report.
    pub fn report(&self, mut health: WorkloadHealth) {
        if let WorkloadHealth::Unhealthy(message) = &mut health {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        }
        self.reports.send_replace(Some((health, Timestamp::now())));
    }
}

impl Registrar {
    /// A registrar named `instance`, which runs until `stop` is cancelled.
    #[must_use]
    pub fn new(
        cluster: Cluster,
        objects: KnownObjects,
        instance: &str,
        config: RegistrationConfig,
        metrics: RegistrationMetrics,
        stop: CancellationToken,
    ) -> Self {
        let present = Mutex::default();
        let tasks = TaskTracker::new();
        let turns = FairSemaphore::new(REQUESTS.0, REQUESTS.1);
        let instance = instance.to_owned();
        Self(Arc::new(Inner {
            cluster,
            objects,
            turns,
            instance,
            config,
            metrics,
            present,
            tasks,
            stop,
        }))
    }

    /// Registers a workload whose stream began at `at`; `None` if it needs no registration.
    ///
    /// # Errors
    /// If it has no access to its entry, or the entry cannot be written.
    pub async fn connect(
        &self,
        workload: Workload,
        at: Timestamp,
    ) -> Result<Option<Registered>, RegistrationError> {
        let config = &self.0.config;
        let counts = match &workload.claim {
            Claim::Group(_) => config.auto_registers,
            Claim::Entry(_) => config.tells_health,
        };
        if !counts {
            return Ok(None);
        }

        let name = workload.entry();
        match self.admit(&workload, &name, at).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                self.0.metrics.failed.inc();
                return Err(error);
            }
        }

        {
            let mut present = self.0.present.lock();
            let here = present.entry(name).or_insert_with(|| Present {
                workload: workload.clone(),
                streams: 0,
                at,
            });
            here.streams += 1;
            here.at = here.at.max(at);
        }

        let (reports, health) = watch::channel(None);
        self.0.tasks.spawn(self.clone().follow(workload, health));
        Ok(Some(Registered { reports }))
    }

    /// Writes that a workload is connected, if it has access to its entry.
    async fn admit(
        &self,
        workload: &Workload,
        name: &NamespacedName,
        at: Timestamp,
    ) -> Result<bool, RegistrationError> {
        if !self.permits(workload)? {
            return Ok(false);
        }
        let write = async {
            let turn = self.0.turns.take(workload.rate_limit_key()).await;
            let _turn = turn.map_err(|_| RegistrationError::Crowded(name.clone()))?;
            self.write_connected(workload, at).await
        };
        let written = tokio::time::timeout(API_TIMEOUT, write).await;
        written.unwrap_or_else(|_| Err(RegistrationError::Silence(name.clone())))
    }

    /// Waits after shutdown until all proxies of this replica are written as disconnected.
    pub async fn ended(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Follows a stream to its end, and then cleans up its entry.
    async fn follow(
        self,
        workload: Workload,
        mut reported: watch::Receiver<Option<(WorkloadHealth, Timestamp)>>,
    ) {
        let name = workload.entry();
        let payer = workload.rate_limit_key();

        while reported.changed().await.is_ok() {
            let report = reported.borrow_and_update().clone();
            if let Some((health, at)) = report.filter(|_| self.0.config.tells_health) {
                // A newer report replaces an older one that could not be written.
                tokio::select! {
                    biased;
                    () = self.retry_until_success(&name, &payer, || {
                        self.write_health(&name, &health, at)
                    }) => {}
                    newer = reported.changed() => {
                        if newer.is_err() {
                            break;
                        }
                        reported.mark_changed();
                    }
                }
                if !pause(&mut reported).await {
                    break;
                }
            }
        }

        let Some(at) = self.remove_stream(&name) else {
            return;
        };

        let now = Timestamp::now();
        self.retry_until_success(&name, &payer, || {
            self.write_disconnected(&workload, at, now)
        })
        .await;
        tokio::select! {
            () = tokio::time::sleep(self.0.config.grace) => {}
            () = self.0.stop.cancelled() => return,
        }

        self.retry_until_success(&name, &payer, || self.clean(&name))
            .await;
    }

    /// Removes a stream. If it was the workload's last one, returns when its newest stream began.
    fn remove_stream(&self, name: &NamespacedName) -> Option<Timestamp> {
        let mut present = self.0.present.lock();
        let here = present.get_mut(name)?;
        here.streams = here.streams.saturating_sub(1);
        if here.streams > 0 {
            return None;
        }
        present.remove(name).map(|here| here.at)
    }

    /// Retries an operation until it succeeds; only once during shutdown.
    async fn retry_until_success<F: Future<Output = Result<(), kube::Error>>>(
        &self,
        name: &NamespacedName,
        payer: &NamespacedName,
        act: impl Fn() -> F,
    ) {
        let act = async || {
            // The operation also runs without a permit, as the number of connections is limited.
            let _turn = self.0.turns.take(payer.clone()).await;
            act().await
        };
        let mut backoff = RETRY;

        while let Err(error) = act().await {
            if is_stale(&error) {
                tracing::debug!(%name, %error, "WorkloadEntry changed concurrently; retrying");
            } else {
                self.0.metrics.failed.inc();
                tracing::warn!(%name, %error, "failed to write the WorkloadEntry");
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = self.0.stop.cancelled() => {
                    drop(act().await);
                    return;
                }
            }
        }
    }

    /// Writes that a workload is connected; `false` if it needs no registration.
    async fn write_connected(
        &self,
        workload: &Workload,
        at: Timestamp,
    ) -> Result<bool, RegistrationError> {
        let Inner {
            cluster,
            instance,
            metrics,
            ..
        } = &*self.0;

        let name = workload.entry();
        let connection = Connection { instance, at };
        let failed = |error| RegistrationError::Api(name.clone(), error);

        for _ in 0..MAX_ATTEMPTS {
            let found = entries::get(cluster, &name).await.map_err(failed)?;
            let is_new = found.is_none();
            let (outcome, counter) = match (found, &workload.claim) {
                (Some(entry), claim) => {
                    let annotations = annotations(&entry);
                    if matches!(claim, Claim::Entry(_))
                        && !annotations.contains_key(entry_state::CHECKED)
                    {
                        return Ok(false);
                    }
                    self.permits_spec(workload, &name, spec(&entry))?;
                    let Some(annotations) = connection.begun(&annotations) else {
                        return Ok(true);
                    };

                    (
                        entries::annotate(cluster, &name, &entry, &annotations).await,
                        &metrics.updated,
                    )
                }
                (None, Claim::Entry(_)) => return Err(RegistrationError::NoEntry(name)),
                (None, Claim::Group(group)) => {
                    let group_name = NamespacedName::new(workload.namespace.as_str(), group);
                    let found = entries::get_group(cluster, &group_name)
                        .await
                        .map_err(failed)?;
                    let found = found
                        .ok_or_else(|| RegistrationError::NoGroup(name.clone(), group_name))?;
                    let uid = found.uid().unwrap_or_default();
                    let entry = workload.entry_of(
                        &Group {
                            name: group,
                            uid: &uid,
                            spec: spec(&found),
                        },
                        &connection,
                    );

                    self.permits_spec(workload, &name, entry.get("spec").unwrap_or(&Value::Null))?;
                    (
                        entries::create(cluster, &name, entry).await,
                        &metrics.created,
                    )
                }
            };

            match outcome {
                Ok(()) => {
                    counter.inc();
                    tracing::info!(%name, proxy = %workload.proxy, "registered workload");
                    return Ok(true);
                }
                // A rejected creation stays invalid; a patch may succeed the next time.
                Err(kube::Error::Api(status)) if is_new && status.code == 422 => {
                    return Err(failed(kube::Error::Api(status)));
                }
                Err(error) if is_stale(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }

        Err(RegistrationError::Busy(name))
    }

    async fn write_disconnected(
        &self,
        workload: &Workload,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let Inner {
            cluster,
            instance,
            metrics,
            ..
        } = &*self.0;

        let name = workload.entry();
        let Some(entry) = entries::get(cluster, &name).await? else {
            return Ok(());
        };

        let Some(annotations) = (Connection { instance, at }).ended(&annotations(&entry), now)
        else {
            return Ok(());
        };

        entries::annotate(cluster, &name, &entry, &annotations).await?;
        if matches!(workload.claim, Claim::Group(_)) {
            metrics.ended.inc();
        }

        tracing::info!(%name, proxy = %workload.proxy, "registered workload disconnected");
        Ok(())
    }

    /// Writes the health of a workload, if it is still connected here.
    async fn write_health(
        &self,
        name: &NamespacedName,
        health: &WorkloadHealth,
        at: Timestamp,
    ) -> Result<(), kube::Error> {
        let Some(entry) = entries::get(&self.0.cluster, name).await? else {
            return Ok(());
        };
        if !entry_state::is_controller(&annotations(&entry), &self.0.instance) {
            return Ok(());
        }
        match entry_state::with_health(entry.data.get("status"), health, at) {
            Some(conditions) => {
                entries::write_conditions(&self.0.cluster, name, &entry, &conditions).await
            }
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("instance", &self.instance)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Waits between reports, so that a flapping proxy causes few writes. False if there will be no
/// more reports.
async fn pause(health: &mut watch::Receiver<Option<(WorkloadHealth, Timestamp)>>) -> bool {
    let end = tokio::time::Instant::now() + REPORTS;
    let mut has_more = health.has_changed().unwrap_or(true);
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => break,
            newer = health.changed() => match newer {
                Ok(()) => has_more = true,
                Err(_) => return false,
            },
        }
    }
    if has_more {
        health.mark_changed();
    }
    true
}

fn annotations(entry: &DynamicObject) -> Annotations {
    entry.annotations().clone()
}

fn spec(object: &DynamicObject) -> &Value {
    object.data.get("spec").unwrap_or(&Value::Null)
}
