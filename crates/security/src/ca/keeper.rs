//! Owns the roots: loads and stores them, watches a plugged-in CA's files, and advances the rotation.
//!
//! Any replica may take a step; the version of what is kept sees to it that one does. So there is nobody who must lead, and a
//! restart goes on where the last process was.

mod begin;
mod orders;
mod report;
mod status;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use orders::{Order, Orders, RotateError};
pub use status::{RootRole, RootStatus, RotationStatus};

use super::bundle::BundleError;
use super::plugged_in::{PluggedIn, PluggedInError, SETTLE};
use super::root_store::{RootStore, RootStoreError};
use super::rotation::{Missing, Origin, Phase, RootSet, RotationRules};
use super::{AuthoritySwitch, Bundle, CurrentAuthority, in_force};
use crate::Clock;
use begin::Begun;
use navarch_api::error_chain::chain;
use navarch_api::file_events::{FileEvents, WATCHED_INTERVAL};
use orders::PendingOrder;

/// Names the proxies that do not trust all of these roots (PEM) yet.
pub type Witness = Arc<dyn Fn(&str) -> Vec<Missing> + Send + Sync>;
/// Makes a new self-signed root that begins at a moment.
pub type MakeRoot = Arc<dyn Fn(SystemTime) -> Result<Bundle, BundleError> + Send + Sync>;

/// How often all is looked at, the files of a plugged-in CA aside, whose folder is watched.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Orders that may wait.
const ORDERS: usize = 8;

/// What the keeper works with.
#[derive(Clone)]
pub struct KeeperConfig {
    /// How roots follow each other.
    pub rules: RotationRules,
    /// Where a plugged-in CA is.
    pub plugged_in: PluggedIn,
    /// Where self-signed roots are kept.
    pub self_signed: RootStore,
    /// Where the roots of a plugged-in CA are kept: the one in force, former and coming ones.
    pub rotation: RootStore,
    /// The roots (PEM) that pods have been given last, as far as known at the start.
    pub distributed: Option<String>,
    /// Makes a new root.
    pub make: MakeRoot,
    /// How often it is looked whether a self-signed root is near its end.
    pub check: Duration,
    /// How often all else is looked at.
    pub look: Duration,
    /// The name of this replica.
    pub replica: String,
    /// The time of day.
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

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The root store cannot be read.
    #[error(transparent)]
    Store(#[from] RootStoreError),
    /// It makes no authority.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The plugged-in CA cannot be used.
    #[error("invalid plugged-in CA")]
    PluggedIn(#[from] PluggedInError),
}

/// The keeper, to be run.
pub struct RootKeeper {
    /// What it works with.
    config: KeeperConfig,
    /// Where the set is kept: one of the two places.
    store: RootStore,
    set: RootSet,
    /// Their version in the store, as far as known; `None` where they are not kept.
    version: Option<String>,
    /// The plugged-in CA as it was seen last; an error by its text.
    seen: Result<Option<Bundle>, String>,
    /// Who lacks roots, as of the last look.
    missing: Vec<Missing>,
    /// What went wrong at the last look.
    problem: Option<String>,
    /// What is wrong with the plugged-in CA's files.
    file_problem: Option<String>,
    /// When to look whether the root is near its end.
    due_check: Instant,
    /// When to tell of one's proxies.
    due_report: Instant,
    /// The roots that were published last.
    told: Vec<Missing>,
    /// Whether the set was seen where it is kept.
    is_recorded: bool,
    /// Puts authorities in force.
    switch: AuthoritySwitch,
    /// Tells where things stand.
    status: watch::Sender<Arc<RotationStatus>>,
    /// What operators ask for.
    orders: mpsc::Receiver<PendingOrder>,
}

impl std::fmt::Debug for RootKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RootKeeper")
            .field("store", &self.store)
            .field("phase", &self.set.phase())
            .finish_non_exhaustive()
    }
}

/// Finds the roots, or makes them. Gives the keeper, the authority in force, and where orders go.
///
/// # Errors
/// When there is no authority to be had.
pub async fn start(config: KeeperConfig) -> Result<(RootKeeper, CurrentAuthority, Orders), KeeperError> {
    let Begun { store, set, version, found, problem } = begin::begin(&config).await?;
    let now = (config.clock)();
    let (switch, current) = in_force(set.authority(now)?);
    let first = RotationStatus::of(&set, &store, &[], problem.as_deref(), &config.rules);
    let (status, told) = watch::channel(Arc::new(first));
    let (sender, orders) = mpsc::channel(ORDERS);
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
        told: Vec::new(),
        is_recorded: false,
        switch,
        status,
        orders,
        config,
    };
    if let Err(error) = keeper.announce().await {
        tracing::warn!(problem = chain(&error), "failed to publish this replica's CA state");
    }
    Ok((keeper, current, Orders::new(sender, told)))
}

impl RootKeeper {
    /// Works for ever. `witness` tells which proxies of this replica lack roots.
    pub async fn run(mut self, witness: Witness) {
        let mut at = Instant::now();
        let mut files = FileEvents::of_folders([self.config.plugged_in.folder.clone()]);
        loop {
            tokio::select! {
                () = files.wait(WATCHED_INTERVAL) => self.look(&witness).await,
                () = tokio::time::sleep_until(at) => {
                    self.look(&witness).await;
                    at = Instant::now() + self.config.look;
                }
                Some(asked) = self.orders.recv() => {
                    self.look(&witness).await;
                    let answer = self.obey(asked.order).await;
                    self.tell();
                    // Whoever asked may have gone.
                    drop(asked.answer.send(answer));
                }
            }
        }
    }

    /// Looks at all and takes the next step.
    async fn look(&mut self, witness: &Witness) {
        let outcome = self.step(witness).await;
        let problem = outcome.err().map(|error| chain(&error));
        if let Some(problem) = problem.as_ref().filter(|problem| self.problem.as_ref() != Some(problem)) {
            tracing::error!(problem, "failed to reconcile the root certificates; keeping the current state");
        }
        self.problem = problem;
        self.tell();
    }

    /// Looks at all and takes the next step.
    async fn step(&mut self, witness: &Witness) -> Result<(), KeeperError> {
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
                // Nothing but a settled plugged-in CA may be without a record.
                self.version = None;
                if self.is_recorded && !matches!(self.store, RootStore::Memory) {
                    tracing::warn!(store = ?self.store, "root rotation record was deleted; writing it again");
                    self.keep(self.set.clone()).await?;
                }
                Default::default()
            }
        };
        let mended = if self.is_recorded { self.store.mend(&self.set) } else { Ok(()) };
        let now = (self.config.clock)();
        self.read_files(now).await?;
        self.renew(now).await?;
        if !self.ask_around(witness, &reports).await? {
            return Ok(mended?);
        }
        if let Some(next) = self.set.advance(&self.missing, &self.config.rules, now)? {
            self.keep(next).await?;
        }
        Ok(mended?)
    }

    /// Takes a set over that is kept already.
    fn adopt(&mut self, set: RootSet) -> Result<(), KeeperError> {
        let authority = set.authority((self.config.clock)())?;
        tracing::info!(from = ?self.set.phase(), to = ?set.phase(), "root certificates changed");
        self.set = set;
        self.switch.put(authority);
        // The others wait for what this replica's proxies make of it.
        self.due_report = Instant::now();
        Ok(())
    }

    /// Keeps a set, and takes it over when it is kept. Of several replicas one does; the others see it at their next look.
    async fn keep(&mut self, set: RootSet) -> Result<(), KeeperError> {
        // What cannot sign must not be kept either.
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

    /// Reads the plugged-in CA; what is new and stays for a moment is distributed.
    async fn read_files(&mut self, now: SystemTime) -> Result<(), KeeperError> {
        let plugged_in = self.config.plugged_in.clone();
        let read = async || match plugged_in.read().await {
            // That says nothing of the CA.
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
                let next = self.set.with_files(files, before.as_ref(), &self.config.rules, now);
                next.map_err(|source| chain(&PluggedInError::Bundle { place: place.clone(), source }))
            }
            Ok(None) => Err(format!("the CA's files in {place} are gone")),
            Err(error) => Err(error.clone()),
        };
        self.file_problem = next.as_ref().err().cloned();
        match next {
            Err(problem) => tracing::error!(problem, "new CA certificate is invalid; keeping the current one"),
            Ok(None) => {}
            Ok(Some(next)) => {
                tracing::info!(place, "CA files changed");
                self.keep_files(next, before).await?;
            }
        }
        Ok(())
    }

    /// Keeps what follows from new files. Where it cannot be kept now it is looked at again.
    async fn keep_files(&mut self, next: RootSet, before: Option<Bundle>) -> Result<(), KeeperError> {
        let kept = self.keep(next.clone()).await;
        if let Err(error) = &kept
            && next.phase() == Phase::Settled
        {
            // Another intermediate of the same root is believed with or without a record.
            tracing::warn!(problem = chain(error), "failed to persist the CA in use");
            return self.adopt(next);
        }
        if kept.is_err() || self.set != next {
            self.seen = Ok(before);
        }
        kept
    }

    /// Makes a new self-signed root when the one that signs is near its end.
    async fn renew(&mut self, now: SystemTime) -> Result<(), KeeperError> {
        if Instant::now() < self.due_check {
            return Ok(());
        }
        if self.set.is_due(&self.config.rules, now)? {
            tracing::info!("root certificate expires soon; distributing the next one");
            let next = (self.config.make)(now)?;
            if let Ok(next) = self.set.begin(next, Origin::SelfSigned, &self.config.rules, now)? {
                self.keep(next).await?;
            }
        }
        // Not before: what could not be kept, as where the disk is full, is tried again at the next look.
        self.due_check = Instant::now() + self.config.check;
        Ok(())
    }

    /// Tells where things stand.
    fn tell(&self) {
        let problem = self.problem.as_deref().or(self.file_problem.as_deref());
        let status = RotationStatus::of(&self.set, &self.store, &self.missing, problem, &self.config.rules);
        self.status.send_if_modified(|told| {
            let is_new = **told != status;
            if is_new {
                *told = Arc::new(status);
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests;
