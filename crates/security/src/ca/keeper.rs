//! Owns the roots: loads and stores them, watches a plugged-in CA's files, and advances the
//! rotation.
//!
//! Any replica may take a step; the version of the stored roots ensures that only one does. So no
//! leader is needed, and a restart continues where the last process was.

mod begin;
mod commands;
mod report;
mod status;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use commands::{RotateError, RotationCommand, RotationCommands};
pub use status::{RootRole, RootStatus, RotationStatus};

use super::bundle::BundleError;
use super::plugged_in::{PluggedIn, PluggedInError, SETTLE};
use super::root_store::{RootStore, RootStoreError};
use super::rotation::{Missing, Origin, Phase, RootSet, RotationRules};
use super::{AuthoritySwitch, Bundle, CurrentAuthority, in_force};
use crate::Clock;
use begin::InitialState;
use commands::PendingCommand;
use navarch_base::error_chain::chain;
use navarch_base::file_events::FileEvents;
use navarch_net::backoff::Backoff;
use navarch_net::watched::send_if_changed;

/// Returns the proxies that do not trust all of these roots (PEM) yet.
pub type FindMissing = Arc<dyn Fn(&str) -> Vec<Missing> + Send + Sync>;
/// Generates a new self-signed root that is valid from a time.
pub type MakeRoot = Arc<dyn Fn(SystemTime) -> Result<Bundle, BundleError> + Send + Sync>;

/// Interval of reconciliation; the folder of a plugged-in CA is also watched.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The first and the longest delay between attempts to start while the API server fails.
const START_RETRY: Backoff = Backoff::jittered(Duration::from_millis(500), Duration::from_secs(15));
/// After this time of failures the start is given up, as in istiod.
const MAX_START_TIME: Duration = Duration::from_mins(20);
/// Capacity of the command channel.
const MAX_PENDING_COMMANDS: usize = 8;

/// Where the keeper loads and stores roots, and when it replaces them.
#[derive(Clone)]
pub struct KeeperConfig {
    /// How long a root is trusted before and after it signs, and when a new one is generated.
    pub rules: RotationRules,
    /// Sources of a plugged-in CA.
    pub plugged_in: PluggedIn,
    /// The Secret `istio-ca-secret`, or a directory or memory, for the root that signs if no CA is
    /// plugged in.
    pub self_signed: RootStore,
    /// Store of a plugged-in CA's roots: the current, former and next ones.
    pub rotation: RootStore,
    /// The roots (PEM) that were last distributed to pods, as far as known at the start.
    pub distributed: Option<String>,
    /// Generates a new root.
    pub make: MakeRoot,
    /// Interval of the check whether a self-signed root expires soon.
    pub check: Duration,
    /// Interval of all other checks.
    pub look: Duration,
    /// The name of this replica.
    pub replica: String,
    /// The wall clock.
    pub clock: Clock,
}

impl std::fmt::Debug for KeeperConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeeperConfig")
            .field("rules", &self.rules)
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

/// Errors of starting the CA.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The root store cannot be read.
    #[error(transparent)]
    Store(#[from] RootStoreError),
    /// The stored roots are invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The plugged-in CA is invalid.
    #[error("invalid plugged-in CA")]
    PluggedIn(#[from] PluggedInError),
}

impl KeeperError {
    /// Whether the same attempt may succeed later: the API server failed, or was not reached.
    fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Store(RootStoreError::Kubernetes(_) | RootStoreError::Conflict)
                | Self::PluggedIn(PluggedInError::Secret(_))
        )
    }
}

/// The keeper; call its `run`.
pub struct RootKeeper {
    config: KeeperConfig,
    /// The current store: one of the two.
    store: RootStore,
    set: RootSet,
    /// The last read version of the set in the store; `None` if the set is not stored.
    version: Option<String>,
    /// The plugged-in CA at the last check; an error as text.
    seen: Result<Option<Bundle>, String>,
    /// Proxies without all roots at the last check.
    missing: Vec<Missing>,
    /// The error of the last check.
    problem: Option<String>,
    /// The problem of the plugged-in CA's files.
    file_problem: Option<String>,
    /// When to check whether the root expires soon.
    due_check: Instant,
    /// When to write this replica's report.
    due_report: Instant,
    /// The proxies without all roots in the last published report.
    reported: Vec<Missing>,
    /// Whether the set was read from its store.
    is_recorded: bool,
    /// Publishes authorities.
    switch: AuthoritySwitch,
    /// Publishes the status.
    status: watch::Sender<Arc<RotationStatus>>,
    /// Commands of operators.
    commands: mpsc::Receiver<PendingCommand>,
}

impl std::fmt::Debug for RootKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RootKeeper")
            .field("store", &self.store)
            .field("phase", &self.set.phase())
            .finish_non_exhaustive()
    }
}

/// Loads or generates the roots. Returns the keeper, the current authority, and the command
/// channel. While the API server fails it tries again, for `MAX_START_TIME`.
///
/// # Errors
/// If there is no usable authority.
pub async fn start(
    config: KeeperConfig,
) -> Result<(RootKeeper, CurrentAuthority, RotationCommands), KeeperError> {
    let InitialState {
        store,
        set,
        version,
        found,
        problem,
    } = begin_with_retries(&config).await?;

    let now = (config.clock)();
    let (switch, current) = in_force(set.authority(now)?);
    let first = RotationStatus::of(&set, &store, &[], problem.as_deref(), &config.rules);
    let (status, status_receiver) = watch::channel(Arc::new(first));
    let (sender, commands) = mpsc::channel(MAX_PENDING_COMMANDS);
    let mut keeper = RootKeeper {
        store,
        set,
        version,
        seen: Ok(found),
        missing: Vec::new(),
        problem: None,
        file_problem: problem,
        due_check: Instant::now() + config.check,
        due_report: Instant::now(),
        reported: Vec::new(),
        is_recorded: false,
        switch,
        status,
        commands,
        config,
    };

    if let Err(error) = keeper.announce().await {
        tracing::warn!(
            problem = chain(&error),
            "failed to publish this replica's CA state"
        );
    }

    Ok((
        keeper,
        current,
        RotationCommands::new(sender, status_receiver),
    ))
}

/// Finds the initial roots. A process that exits instead would start again to the same outage, and
/// read all objects of the mesh each time.
async fn begin_with_retries(config: &KeeperConfig) -> Result<InitialState, KeeperError> {
    let begun = Instant::now();
    let mut backoff = START_RETRY;
    loop {
        let error = match begin::begin(config).await {
            Err(error) if error.is_temporary() && begun.elapsed() < MAX_START_TIME => error,
            outcome => return outcome,
        };

        let delay = backoff.next_delay();
        tracing::warn!(
            problem = chain(&error),
            retry_in = ?delay,
            "failed to read or write the roots of the CA; not ready before that succeeds"
        );
        tokio::time::sleep(delay).await;
    }
}

impl RootKeeper {
    /// Runs until the process ends. `find_missing` returns the proxies of this replica that lack
    /// roots.
    pub async fn run(mut self, find_missing: FindMissing) {
        let mut files = FileEvents::of_folders([self.config.plugged_in.folder.clone()]);
        let mut at_most = Duration::ZERO;
        loop {
            tokio::select! {
                () = files.wait(at_most) => {
                    self.reconcile(&find_missing).await;
                    at_most = self.config.look;
                }
                Some(pending) = self.commands.recv() => {
                    self.reconcile(&find_missing).await;
                    let answer = self.execute(pending.command).await;
                    self.publish_status();
                    // The caller may have been dropped.
                    drop(pending.answer.send(answer));
                }
            }
        }
    }

    /// Reconciles, and takes the next rotation step.
    async fn reconcile(&mut self, find_missing: &FindMissing) {
        let outcome = self.step(find_missing).await;
        let problem = outcome.err().map(|error| chain(&error));
        if let Some(problem) = problem
            .as_ref()
            .filter(|problem| self.problem.as_ref() != Some(problem))
        {
            tracing::error!(
                problem,
                "failed to reconcile the root certificates; keeping the current state"
            );
        }
        self.problem = problem;
        self.publish_status();
    }

    /// Reconciles, and takes the next rotation step.
    async fn step(&mut self, find_missing: &FindMissing) -> Result<(), KeeperError> {
        let reports = match self.store.load().await? {
            Some(kept) => {
                self.version = kept.version;
                self.is_recorded = true;
                if kept.set != self.set {
                    self.adopt(kept.set)?;
                }
                kept.reports
            }
            None => {
                // Only a settled plugged-in CA may be without a record.
                self.version = None;
                if self.is_recorded && !matches!(self.store, RootStore::Memory) {
                    tracing::warn!(store = ?self.store, "root rotation record was deleted; writing it again");
                    self.store(self.set.clone()).await?;
                }
                Default::default()
            }
        };

        let mended = if self.is_recorded {
            self.store.repair(&self.set)
        } else {
            Ok(())
        };

        let now = (self.config.clock)();
        self.read_files(now).await?;
        self.renew(now).await?;
        if !self.collect_missing(find_missing, &reports).await? {
            return Ok(mended?);
        }

        if let Some(next) = self.set.advance(&self.missing, &self.config.rules, now)? {
            self.store(next).await?;
        }

        Ok(mended?)
    }

    /// Applies a set that is stored already.
    fn adopt(&mut self, set: RootSet) -> Result<(), KeeperError> {
        let authority = set.authority((self.config.clock)())?;
        tracing::info!(from = ?self.set.phase(), to = ?set.phase(), "root certificates changed");
        self.set = set;
        self.switch.put(authority);
        // Other replicas wait for the report of this replica's proxies.
        self.due_report = Instant::now();
        Ok(())
    }

    /// Stores a set, and applies it once stored. One of several replicas succeeds; the others read
    /// it at their next check.
    async fn store(&mut self, set: RootSet) -> Result<(), KeeperError> {
        // A set that cannot sign must not be stored.
        set.authority((self.config.clock)())?;
        match self.store.save(&set, self.version.as_deref()).await {
            Ok(version) => {
                self.version = version;
                self.is_recorded = true;
            }
            Err(RootStoreError::Conflict) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.adopt(set)
    }

    /// Reads the plugged-in CA; a new one that has settled is distributed.
    async fn read_files(&mut self, now: SystemTime) -> Result<(), KeeperError> {
        let plugged_in = self.config.plugged_in.clone();
        let read = async || match plugged_in.read().await {
            // This is no error of the CA.
            Err(error @ PluggedInError::Secret(_)) => Err(KeeperError::PluggedIn(error)),
            read => Ok(read.map_err(|error| chain(&error))),
        };
        let found = read().await?;
        if found == self.seen {
            return Ok(());
        }

        tokio::time::sleep(SETTLE).await;
        if read().await? != found {
            return Ok(());
        }

        let place = plugged_in.place();
        let before = std::mem::replace(&mut self.seen, found.clone());
        let before = before.ok().flatten();

        // Invalid files are reported once, and not read again before they change.
        let next = match &found {
            Ok(Some(files)) => {
                let next = self
                    .set
                    .with_files(files, before.as_ref(), &self.config.rules, now);
                next.map_err(|source| {
                    chain(&PluggedInError::Bundle {
                        place: place.clone(),
                        source,
                    })
                })
            }
            Ok(None) => Err(format!("the CA's files in {place} no longer exist")),
            Err(error) => Err(error.clone()),
        };

        self.file_problem = next.as_ref().err().cloned();

        match next {
            Err(problem) => tracing::error!(
                problem,
                "new CA certificate is invalid; keeping the current one"
            ),
            Ok(None) => {}
            Ok(Some(next)) => {
                tracing::info!(place, "CA files changed");
                self.keep_files(next, before).await?;
            }
        }

        Ok(())
    }

    /// Stores the set that follows from new files. If storing fails, it is retried.
    async fn keep_files(
        &mut self,
        next: RootSet,
        before: Option<Bundle>,
    ) -> Result<(), KeeperError> {
        let kept = self.store(next.clone()).await;
        if let Err(error) = &kept
            && next.phase() == Phase::Settled
        {
            // Another intermediate of the same root is trusted with or without a record.
            tracing::warn!(problem = chain(error), "failed to persist the CA in use");
            return self.adopt(next);
        }
        if kept.is_err() || self.set != next {
            self.seen = Ok(before);
        }
        kept
    }

    /// Generates a new self-signed root when the signing one expires soon.
    async fn renew(&mut self, now: SystemTime) -> Result<(), KeeperError> {
        if Instant::now() < self.due_check {
            return Ok(());
        }
        if self.set.is_due(&self.config.rules, now)? {
            tracing::info!("root certificate expires soon; distributing the next one");
            let next = (self.config.make)(now)?;
            if let Ok(next) = self
                .set
                .begin(next, Origin::SelfSigned, &self.config.rules, now)?
            {
                self.store(next).await?;
            }
        }
        // Not before: a failed write, as with a full disk, is retried at the next check.
        self.due_check = Instant::now() + self.config.check;
        Ok(())
    }

    fn publish_status(&self) {
        let problem = self.problem.as_deref().or(self.file_problem.as_deref());
        let status = RotationStatus::of(
            &self.set,
            &self.store,
            &self.missing,
            problem,
            &self.config.rules,
        );
        send_if_changed(&self.status, Arc::new(status));
    }
}

#[cfg(test)]
mod tests;
