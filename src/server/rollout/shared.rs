//! What replicas of the control plane agree on: each writes down what it decides before it acts, and does what another wrote.
//!
//! Each replica knows its own proxies alone. One whose proxies have not taken a stage says so in the ConfigMap every few seconds;
//! where nobody says so, whoever is first takes the change to the next stage.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_status::{KeptRollout, KeptState, RolloutStore, StoreError};

/// Poll interval of ConfigMaps during rollouts, and without rollouts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of a replica's reports that its proxies have not acknowledged a stage, and how long a report is valid.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
const REPORT_TTL: Duration = Duration::from_secs(15);
/// Minimum duration of a stage, so that every replica can read and report it.
pub(super) const MIN_STAGE: Duration = Duration::from_secs(5);
/// Maximum attempts to store an operator's command, as other replicas write concurrently.
const MAX_ATTEMPTS: usize = 4;
/// How long the state of a finished rollout is kept: a replica may be slow to read it.
const FINISHED_TTL: Duration = Duration::from_secs(60);

/// The ConfigMaps, as they were read last.
#[derive(Debug)]
pub(super) struct Shared {
    store: RolloutStore,
    replica: String,
    kept: BTreeMap<ObjectRef, KeptRollout>,
    /// When they were read.
    read_at: Option<Instant>,
    /// Why they could not be read last.
    failed: Option<String>,
    /// Since when what is kept of an object is not needed here.
    left_over: BTreeMap<ObjectRef, Instant>,
}

/// The stored state of a rollout.
#[derive(Clone, Debug)]
pub(super) enum StoredState {
    /// It could not be read.
    Unknown(String),
    /// There is none, or it is of an older change.
    Nothing,
    /// It is of a newer change, which this replica has not received yet.
    Newer,
    /// It is of this change.
    State(KeptState),
}

impl Shared {
    /// Nothing is read yet.
    pub(super) fn new(store: RolloutStore, replica: &str) -> Self {
        let (kept, left_over) = (BTreeMap::new(), BTreeMap::new());
        Self { store, replica: replica.to_owned(), kept, read_at: None, failed: None, left_over }
    }

    /// Reads the ConfigMaps where it is time to, and takes those away that nobody needs.
    pub(super) async fn read(&mut self, context: &PushContext) {
        let interval = if context.rollouts.is_empty() { IDLE_POLL_INTERVAL } else { POLL_INTERVAL };
        if self.read_at.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        self.read_at = Some(Instant::now());
        match self.store.list().await {
            Ok(kept) => {
                self.kept = kept;
                self.failed = None;
                self.tidy(context).await;
            }
            Err(error) => {
                let error = error.to_string();
                if self.failed.as_ref() != Some(&error) {
                    tracing::warn!(error, "failed to read the rollout state of other replicas; rollouts are paused");
                }
                self.failed = Some(error);
            }
        }
    }

    /// When they are to be read next though nothing happens.
    pub(super) fn next_read(&self) -> Instant {
        self.read_at.map_or_else(Instant::now, |at| at + IDLE_POLL_INTERVAL)
    }

    /// Has them read anew.
    fn forget(&mut self) {
        self.read_at = None;
    }

    /// Takes away what is complete, and what is of objects that say something else now.
    async fn tidy(&mut self, context: &PushContext) {
        self.left_over.retain(|name, _| self.kept.contains_key(name));
        for (name, kept) in &self.kept {
            let is_complete = matches!(kept.state, KeptState::Complete { .. });
            if !is_complete && context.rollouts.contains_key(name) {
                self.left_over.remove(name);
                continue;
            }
            let since = *self.left_over.entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() >= FINISHED_TTL
                && let Err(error) = self.store.delete(kept).await
            {
                tracing::debug!(%error, object = %name, "failed to delete the state of a finished rollout");
            }
        }
    }

    /// What is kept of the change of an object to a version.
    pub(super) fn of(&self, name: &ObjectRef, new: &AnyObject) -> StoredState {
        if let Some(error) = &self.failed {
            return StoredState::Unknown(error.clone());
        }
        if self.read_at.is_none() {
            return StoredState::Unknown("not read yet".to_owned());
        }
        match self.kept.get(name) {
            None => StoredState::Nothing,
            Some(kept) if is_version(&kept.new, new) => StoredState::State(kept.state.clone()),
            Some(kept) if is_newer(&kept.new, new) => StoredState::Newer,
            Some(_) => StoredState::Nothing,
        }
    }

    /// What others have begun with objects that were read here as if all proxies had the new version: this process began meanwhile.
    pub(super) fn missed(&self, context: &PushContext) -> Vec<KeptRollout> {
        let is_missed = |(name, kept): &(&ObjectRef, &KeptRollout)| {
            let is_there = || context.objects.any(name).is_some_and(|object| is_version(&kept.new, &object));
            !matches!(kept.state, KeptState::Complete { .. }) && !context.rollouts.contains_key(*name) && is_there()
        };
        self.kept.iter().filter(is_missed).map(|(_, kept)| kept.clone()).collect()
    }

    /// The version before the change, as whoever began it had it.
    pub(super) fn before(&self, name: &ObjectRef) -> Option<&AnyObject> {
        self.kept.get(name).and_then(|kept| kept.before.as_ref())
    }

    /// Stores the stage of a change; the replicas' reports are kept if the stage is unchanged.
    pub(super) async fn write(
        &mut self,
        name: &ObjectRef,
        context: &PushContext,
        state: KeptState,
    ) -> Result<(), StoreError> {
        let Some(new) = context.new_versions.any(name) else { return Ok(()) };
        let known = self.kept.get(name);
        let version = known.and_then(|kept| kept.version.clone());
        let of_same = known.filter(|kept| is_version(&kept.new, &new));
        let is_same_stage = |kept: &&KeptRollout| match (&kept.state, &state) {
            (KeptState::Stage { at, .. }, KeptState::Stage { at: now, .. }) => at == now,
            _ => false,
        };
        let waits = of_same.filter(is_same_stage).map(|kept| kept.waits.clone()).unwrap_or_default();
        let before = of_same.map_or_else(|| context.objects.any(name), |kept| kept.before.clone());
        self.put(KeptRollout { new, before, state, waits, version }).await
    }

    /// As [`Shared::write`], on what is kept now: an operator's word counts whatever replicas are about to write.
    pub(super) async fn insist(
        &mut self,
        name: &ObjectRef,
        context: &PushContext,
        state: &KeptState,
    ) -> Result<(), StoreError> {
        let mut outcome = Err(StoreError::Stale);
        for _ in 0..MAX_ATTEMPTS {
            self.forget();
            self.read(context).await;
            outcome = self.write(name, context, state.clone()).await;
            if !matches!(outcome, Err(StoreError::Stale)) {
                break;
            }
        }
        outcome
    }

    /// Says whether proxies of this replica have not taken the stage; where that is said already, not again.
    pub(super) async fn say(&mut self, name: &ObjectRef, are_pending: bool) {
        let Some(kept) = self.kept.get(name) else { return };
        let (said, now) = (kept.waits.get(&self.replica).copied(), Timestamp::now());
        let is_said = said.is_some_and(|at| now.duration_since(at).unsigned_abs() < REPORT_INTERVAL);
        let mut kept = kept.clone();
        match (are_pending, said) {
            (true, _) if is_said => return,
            (true, _) => _ = kept.waits.insert(self.replica.clone(), now),
            (false, Some(_)) => _ = kept.waits.remove(&self.replica),
            (false, None) => return,
        }
        // Others that have ended say nothing any more.
        kept.waits.retain(|_, at| now.duration_since(*at).unsigned_abs() < REPORT_TTL);
        if let Err(error) = self.put(kept).await {
            tracing::debug!(%error, object = %name, "failed to record whether proxies accepted a rollout stage");
        }
    }

    /// Whether proxies of other replicas have not taken the stage.
    pub(super) fn is_waited_for(&self, name: &ObjectRef) -> bool {
        self.kept.get(name).is_some_and(|kept| kept.is_waited_for(&self.replica, Timestamp::now(), REPORT_TTL))
    }

    /// Writes a ConfigMap; where another replica was faster, all are read anew.
    async fn put(&mut self, kept: KeptRollout) -> Result<(), StoreError> {
        match self.store.put(&kept).await {
            Ok(kept) => {
                self.kept.insert(kept.name(), kept);
                Ok(())
            }
            Err(error) => {
                self.forget();
                Err(error)
            }
        }
    }
}

/// Whether what is kept is of this version: an object may be edited and come back to what it said.
fn is_version(kept: &AnyObject, new: &AnyObject) -> bool {
    kept.meta().generation == new.meta().generation && kept.same_effect(new)
}

/// Whether what is kept is of a later version of the same object.
fn is_newer(kept: &AnyObject, new: &AnyObject) -> bool {
    let (kept, new) = (kept.meta(), new.meta());
    kept.uid == new.uid && kept.generation > new.generation
}
