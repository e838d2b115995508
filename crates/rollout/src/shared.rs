//! The state that replicas of the control plane share: each stores its decisions before it acts,
//! and applies those of others.
//!
//! Each replica has information about its own proxies only. A replica whose proxies have not
//! acknowledged a stage reports that in the ConfigMap every few seconds; without such a report, the
//! first replica advances the change to the next stage.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_status::{KeptRollout, RolloutStore, SharedState, StoreError, UnreadableMaps};

/// Poll interval of ConfigMaps during rollouts, and without rollouts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(15);
/// How long after its start a replica reads them as often as during rollouts.
const START_TIME: Duration = Duration::from_secs(30);
/// Interval of a replica's reports that its proxies have not acknowledged a stage, and how long a
/// report is valid.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
const REPORT_TTL: Duration = Duration::from_secs(15);
/// Minimum duration of a stage, so that every replica can read and report it.
pub(super) const MIN_STAGE: Duration = Duration::from_secs(5);
/// Maximum attempts to store an operator's command, as other replicas write concurrently.
const MAX_ATTEMPTS: usize = 4;
/// How long the state of a finished rollout is kept: a replica may be slow to read it, or the object,
/// whose watch may be half-open for longer than a minute and a half before it is opened again.
const FINISHED_TTL: Duration = Duration::from_mins(3);

/// The ConfigMaps, as last read.
#[derive(Debug)]
pub(super) struct Shared {
    store: RolloutStore,
    replica: String,
    kept: BTreeMap<ObjectRef, KeptRollout>,
    /// Those that could not be decoded, such as those of a later release.
    unreadable: UnreadableMaps,
    /// When this replica started.
    started: Instant,
    /// When they were last read.
    read_at: Option<Instant>,
    /// Why the last read failed.
    failed: Option<String>,
    /// Since when the stored state of an object is unused here.
    left_over: BTreeMap<ObjectRef, Instant>,
}

#[derive(Clone, Debug)]
pub(super) enum StoredState {
    /// It could not be read.
    Unknown(String),
    /// Its ConfigMap could not be decoded, for this reason.
    Unreadable(String),
    /// There is none, or it is of an older change.
    Nothing,
    /// It is of a newer change, which this replica has not received yet.
    Newer,
    /// It is of this change.
    State(SharedState),
}

impl Shared {
    /// Nothing is read yet.
    pub(super) fn new(store: RolloutStore, replica: &str) -> Self {
        let kept = BTreeMap::new();
        let left_over = BTreeMap::new();
        Self {
            store,
            replica: replica.to_owned(),
            kept,
            unreadable: UnreadableMaps::new(),
            started: Instant::now(),
            read_at: None,
            failed: None,
            left_over,
        }
    }

    /// Reads the ConfigMaps if it is time to, and removes unused ones.
    pub(super) async fn read(&mut self, context: &PushContext) {
        let interval = match context.rollouts.is_empty() {
            true => self.idle_interval(),
            false => POLL_INTERVAL,
        };

        if self.read_at.is_some_and(|at| at.elapsed() < interval) {
            return;
        }

        self.read_at = Some(Instant::now());

        match self.store.list().await {
            Ok(stored) => {
                stored.log_unreadable(&self.unreadable);
                self.kept = stored.readable;
                self.unreadable = stored.unreadable;
                self.failed = None;
                self.remove_completed(context).await;
            }
            Err(error) => {
                let error = error.to_string();
                if self.failed.as_ref() != Some(&error) {
                    tracing::warn!(
                        error,
                        "failed to read the rollout state of other replicas; rollouts are paused"
                    );
                }
                self.failed = Some(error);
            }
        }
    }

    /// When they are read next without an event.
    pub(super) fn next_read(&self) -> Instant {
        self.read_at
            .map_or_else(Instant::now, |at| at + self.idle_interval())
    }

    /// The interval without rollouts: short while one may have begun as this replica started, which
    /// another replica has read and not stored yet.
    fn idle_interval(&self) -> Duration {
        if self.started.elapsed() < START_TIME {
            POLL_INTERVAL
        } else {
            IDLE_POLL_INTERVAL
        }
    }

    /// Causes the next read to happen at once.
    fn forget(&mut self) {
        self.read_at = None;
    }

    /// Removes the state of completed rollouts, and of objects with another version.
    async fn remove_completed(&mut self, context: &PushContext) {
        self.left_over
            .retain(|name, _| self.kept.contains_key(name));

        for (name, kept) in &self.kept {
            let is_complete = matches!(kept.state, SharedState::Complete { .. });
            if !is_complete && context.rollouts.contains_key(name) {
                self.left_over.remove(name);
                continue;
            }

            let since = *self
                .left_over
                .entry(name.clone())
                .or_insert_with(Instant::now);
            if since.elapsed() >= FINISHED_TTL
                && let Err(error) = self.store.delete(kept).await
            {
                tracing::debug!(%error, object = %name, "failed to delete the state of a finished rollout");
            }
        }
    }

    /// The stored state of an object's change to this version.
    pub(super) fn of(&self, name: &ObjectRef, new: &AnyObject) -> StoredState {
        if let Some(error) = &self.failed {
            return StoredState::Unknown(error.clone());
        }
        if self.read_at.is_none() {
            return StoredState::Unknown("not read yet".to_owned());
        }
        if let Some(error) = self.unreadable_reason(name) {
            return StoredState::Unreadable(error.to_string());
        }
        match self.kept.get(name) {
            None => StoredState::Nothing,
            Some(kept) if is_version(&kept.new, new) => StoredState::State(kept.state.clone()),
            Some(kept) if is_newer(&kept.new, new) => StoredState::Newer,
            Some(_) => StoredState::Nothing,
        }
    }

    /// Rollouts of others whose objects were read here as if all proxies had the new version,
    /// because this process started meanwhile.
    pub(super) fn missed(&self, context: &PushContext) -> Vec<KeptRollout> {
        let is_missed = |(name, kept): &(&ObjectRef, &KeptRollout)| {
            let exists = || {
                context
                    .objects
                    .any(name)
                    .is_some_and(|object| is_version(&kept.new, &object))
            };
            !matches!(kept.state, SharedState::Complete { .. })
                && !context.rollouts.contains_key(*name)
                && exists()
        };
        self.kept
            .iter()
            .filter(is_missed)
            .map(|(_, kept)| kept.clone())
            .collect()
    }

    /// The size of what is stored about an object, in bytes.
    pub(super) fn bytes(&self, name: &ObjectRef) -> usize {
        self.kept.get(name).map_or(0, |kept| kept.bytes)
    }

    /// The version before the change, as stored by the replica that started the rollout.
    pub(super) fn before(&self, name: &ObjectRef) -> Option<&AnyObject> {
        self.kept.get(name).and_then(|kept| kept.before.as_ref())
    }

    /// Stores the stage of a change; the replicas' reports are kept if the stage is unchanged.
    pub(super) async fn write(
        &mut self,
        name: &ObjectRef,
        context: &PushContext,
        state: SharedState,
    ) -> Result<(), StoreError> {
        let Some(new) = context.new_versions.any(name) else {
            return Ok(());
        };

        let known = self.kept.get(name);
        let version = known.and_then(|kept| kept.version.clone());
        let of_same = known.filter(|kept| is_version(&kept.new, &new));
        let is_same_stage = |kept: &&KeptRollout| match (&kept.state, &state) {
            (SharedState::Stage { at, .. }, SharedState::Stage { at: now, .. }) => at == now,
            _ => false,
        };
        let waits = of_same
            .filter(is_same_stage)
            .map(|kept| kept.waits.clone())
            .unwrap_or_default();

        let before = of_same.map_or_else(|| context.objects.any(name), |kept| kept.before.clone());
        self.put(KeptRollout {
            new,
            before,
            state,
            waits,
            version,
            bytes: 0,
        })
        .await
    }

    /// Like [`Shared::write`], based on the current state: an operator's command takes precedence
    /// over concurrent writes of replicas.
    pub(super) async fn write_until_success(
        &mut self,
        name: &ObjectRef,
        context: &PushContext,
        state: &SharedState,
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

    /// Reports whether proxies of this replica have not acknowledged the stage, unless that is
    /// reported already.
    pub(super) async fn report_pending(&mut self, name: &ObjectRef, are_pending: bool) {
        let Some(kept) = self.kept.get(name) else {
            return;
        };

        let reported = kept.waits.get(&self.replica).copied();
        let now = Timestamp::now();
        let is_reported =
            reported.is_some_and(|at| now.duration_since(at).unsigned_abs() < REPORT_INTERVAL);
        let mut kept = kept.clone();

        match (are_pending, reported) {
            (true, _) if is_reported => return,
            (true, _) => _ = kept.waits.insert(self.replica.clone(), now),
            (false, Some(_)) => _ = kept.waits.remove(&self.replica),
            (false, None) => return,
        }

        // Reports of replicas that have ended expire.
        kept.waits
            .retain(|_, at| now.duration_since(*at).unsigned_abs() < REPORT_TTL);
        if let Err(error) = self.put(kept).await {
            tracing::debug!(%error, object = %name, "failed to record whether proxies accepted a rollout stage");
        }
    }

    /// Whether proxies of other replicas have not acknowledged the stage.
    pub(super) fn is_waited_for(&self, name: &ObjectRef) -> bool {
        self.kept
            .get(name)
            .is_some_and(|kept| kept.is_waited_for(&self.replica, Timestamp::now(), REPORT_TTL))
    }

    /// Why the ConfigMap of an object was not read, if it was not.
    fn unreadable_reason(&self, name: &ObjectRef) -> Option<StoreError> {
        let map = KeptRollout::map_name(name);
        let reason = self.unreadable.get(&map)?.clone();
        Some(StoreError::Unreadable { map, reason })
    }

    /// Writes a ConfigMap; after a conflict with another replica, all are read again.
    async fn put(&mut self, kept: KeptRollout) -> Result<(), StoreError> {
        if let Some(error) = self.unreadable_reason(&kept.name()) {
            return Err(error);
        }

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

/// Whether the stored state is of this version: an object may be edited and changed back.
pub(super) fn is_version(kept: &AnyObject, new: &AnyObject) -> bool {
    kept.meta().generation == new.meta().generation && kept.same_effect(new)
}

/// Whether the stored state is of a later version of the same object.
fn is_newer(kept: &AnyObject, new: &AnyObject) -> bool {
    let kept = kept.meta();
    let new = new.meta();
    kept.uid == new.uid && kept.generation > new.generation
}
