//! The ConfigMaps in which replicas share the answers of their proxies and the judgement.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use navarch_api::any_object::AnyObject;
use navarch_api::object::ObjectRef;
use navarch_push::context::PushContext;
use navarch_push::quarantine::turnout::Turnout;
use navarch_push::quarantine::votes::Votes;
use navarch_status::{
    KeptQuarantine, QuarantineOutcome, QuarantineStore, ReplicaVotes, StoreError, UnreadableMaps,
};
use tokio::time::Instant;

use super::replicas::Replicas;
use super::stored::{
    NotStored, SharedTurnout, SharedVotes, decided, ended, is_abandoned, is_later, is_of,
    is_undecided, judged_again, rejudged_of, remove_ended, sum_of, turnout_of,
};

/// Interval of reading the ConfigMaps while a judgement is awaited, and otherwise.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// How long the ConfigMap of another version than the current one is kept: a replica may be slow to
/// read the object, whose watch may be half-open for longer than a minute and a half.
const LEFT_OVER_TTL: Duration = Duration::from_mins(3);
/// Minimum interval of reports about who has come and gone: clients that do so all the time cost
/// few writes.
const TURNOUT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);
/// Maximum attempts to store an operator's command or an end, as other replicas write concurrently.
const MAX_ATTEMPTS: usize = 4;

/// The ConfigMaps, as last read.
#[derive(Debug)]
pub(super) struct Shared {
    store: QuarantineStore,
    replicas: Replicas,
    kept: BTreeMap<ObjectRef, KeptQuarantine>,
    /// Those that could not be decoded, such as those of a later release: this replica decides
    /// alone about their objects.
    unreadable: UnreadableMaps,
    read_at: Option<Instant>,
    /// Why the last read failed.
    failed: Option<String>,
    /// Whether the rights do not allow writes: then this replica decides alone.
    is_forbidden: bool,
    /// Since when the stored state of an object is of another version than the current one.
    left_over: BTreeMap<ObjectRef, Instant>,
}

impl Shared {
    /// Nothing is read yet.
    pub(super) fn new(store: QuarantineStore, replicas: Replicas) -> Self {
        Self {
            store,
            replicas,
            kept: BTreeMap::new(),
            unreadable: UnreadableMaps::new(),
            read_at: None,
            failed: None,
            is_forbidden: false,
            left_over: BTreeMap::new(),
        }
    }

    /// Whether decisions about an object are stored.
    pub(super) fn is_writable(&self, object: &ObjectRef) -> bool {
        let map = KeptQuarantine::map_name(object);
        !self.is_forbidden && !self.unreadable.contains_key(&map)
    }

    /// When the ConfigMaps are read next; `is_judging`: whether a judgement is awaited.
    pub(super) fn next_read(&self, is_judging: bool) -> Instant {
        let now = Timestamp::now();
        let is_open = |kept: &KeptQuarantine| is_undecided(kept) && !is_abandoned(kept, now);
        let interval = if is_judging || self.kept.values().any(is_open) {
            POLL_INTERVAL
        } else {
            IDLE_POLL_INTERVAL
        };
        self.read_at.map_or_else(Instant::now, |at| at + interval)
    }

    /// Reads the ConfigMaps.
    pub(super) async fn read(&mut self) {
        self.read_at = Some(Instant::now());

        match self.store.list().await {
            Ok(stored) => {
                stored.log_unreadable(&self.unreadable);
                self.kept = stored.readable;
                self.unreadable = stored.unreadable;
                self.failed = None;
            }
            Err(error) => {
                let error = error.to_string();
                if self.failed.as_ref() != Some(&error) {
                    tracing::warn!(error, "failed to read the quarantines of other replicas");
                }
                self.failed = Some(error);
            }
        }
    }

    /// What is stored.
    pub(super) fn all(&self) -> Vec<KeptQuarantine> {
        self.kept.values().cloned().collect()
    }

    /// What is stored about this version of an object.
    fn of(&self, object: &AnyObject) -> Option<&KeptQuarantine> {
        self.kept
            .get(&object.object_ref())
            .filter(|kept| is_of(kept, object))
    }

    /// How often this version of an object was judged again, as far as that is stored.
    pub(super) fn rejudged(&self, object: &AnyObject) -> u32 {
        self.of(object).map_or(0, rejudged_of)
    }

    /// Adds the answers that other replicas have stored.
    pub(super) fn sum(
        &self,
        context: &PushContext,
        object: &AnyObject,
        own: &Votes,
    ) -> SharedVotes {
        let replicas = self.replicas.all(context);
        sum_of(&self.replicas.own, replicas.as_ref(), self.of(object), own)
    }

    /// Stores the answers of this replica's proxies, unless they are stored already or the
    /// judgement is made. `begins`: whether to begin a judgement.
    pub(super) async fn report(
        &mut self,
        context: &PushContext,
        object: &AnyObject,
        votes: &Votes,
        begins: bool,
    ) {
        let name = object.object_ref();
        let known = self.of(object);
        let is_judged = known.is_some_and(|kept| kept.outcome.is_some());
        if !self.is_writable(&name) || is_judged || (known.is_none() && !begins) {
            return;
        }

        let votes = votes.to_json(&name.name.namespace);
        let own = &self.replicas.own;
        if known.is_some_and(|kept| kept.votes.get(own).is_some_and(|own| own.votes == votes)) {
            return;
        }

        let Ok(mut kept) = self.kept_of(object) else {
            return;
        };
        let at = Timestamp::now();
        let report = ReplicaVotes {
            at,
            votes,
            turnout: None,
        };
        self.insert(context, &mut kept, report);
        if let Err(error) = self.put(kept).await {
            tracing::debug!(%error, object = %name, "failed to store the answers of proxies to a rejected object");
        }
    }

    /// Puts in the report of this replica, and takes out those of replicas that have ended: pods
    /// come under ever new names, and a ConfigMap has little room.
    fn insert(&self, context: &PushContext, kept: &mut KeptQuarantine, report: ReplicaVotes) {
        if let Some(running) = self.replicas.all(context) {
            remove_ended(&mut kept.votes, &running, report.at);
        }
        kept.votes.insert(self.replicas.own.clone(), report);
    }

    /// Whether other replicas count who comes and goes while an object is quarantined.
    pub(super) fn has_other_replicas(&self, object: &ObjectRef) -> bool {
        !self.replicas.is_single && self.is_writable(object)
    }

    /// Who has come and gone at the other replicas since an object was quarantined.
    pub(super) fn elsewhere(&self, context: &PushContext, object: &AnyObject) -> SharedTurnout {
        let replicas = self.replicas.answering(context);
        let mut elsewhere = turnout_of(&self.replicas.own, replicas.as_ref(), self.of(object));
        if self.has_other_replicas(&object.object_ref()) {
            elsewhere.is_complete &= self.failed.is_none();
        } else {
            elsewhere.is_complete = true;
        }
        elsewhere
    }

    /// Stores who of this replica's clients has come and gone since an object was quarantined.
    pub(super) async fn report_turnout(
        &mut self,
        context: &PushContext,
        object: &AnyObject,
        turnout: &Turnout,
    ) {
        let name = object.object_ref();
        let decided = self.of(object).filter(|kept| kept.outcome.is_some());
        let (Some(kept), true) = (decided, self.has_other_replicas(&name)) else {
            return;
        };

        // The first report is stored at once, even without clients: other replicas wait for it.
        let own = kept.votes.get(&self.replicas.own);
        let stored = own.and_then(|own| own.turnout.as_ref());
        let at = Timestamp::now();
        let turnout = turnout.to_json();
        let is_recent = own.is_some_and(|own| at.duration_since(own.at) < TURNOUT_INTERVAL);
        if stored == Some(&turnout) || stored.is_some() && is_recent {
            return;
        }

        let votes = own.map(|own| own.votes.clone());
        let report = ReplicaVotes {
            at,
            votes: votes.unwrap_or_else(|| Votes::default().to_json(&name.name.namespace)),
            turnout: Some(turnout),
        };
        let mut kept = kept.clone();
        self.insert(context, &mut kept, report);
        if let Err(error) = self.put(kept).await {
            tracing::debug!(%error, object = %name, "failed to store which proxies have come and gone since a quarantine");
        }
    }

    /// Stores that an object is quarantined, after it was judged again some times, before that
    /// applies.
    pub(super) async fn quarantine(
        &mut self,
        object: &AnyObject,
        outcome: QuarantineOutcome,
        rejudged: u32,
    ) -> Result<(), NotStored> {
        let kept = self.kept_of(object)?;
        let kept = decided(kept, outcome, rejudged).inspect_err(|_| self.read_at = None)?;
        self.put(kept).await?;
        Ok(())
    }

    /// Stores an operator's command that an object is in force until it is edited. It takes
    /// precedence over everything else that is stored.
    pub(super) async fn release(
        &mut self,
        object: &AnyObject,
        reason: &str,
    ) -> Result<(), NotStored> {
        let released = |kept: KeptQuarantine| {
            let reason = reason.to_owned();
            Ok(Some(KeptQuarantine {
                votes: BTreeMap::new(),
                outcome: Some(QuarantineOutcome::Released { reason }),
                ..kept
            }))
        };
        self.update(object, released).await
    }

    /// Stores that a quarantine has ended until the object is edited, before that applies. The
    /// object was judged again some times before.
    pub(super) async fn end(
        &mut self,
        object: &AnyObject,
        reason: &str,
        rejudged: u32,
    ) -> Result<(), NotStored> {
        self.update(object, |kept| ended(kept, reason, rejudged))
            .await
    }

    /// Stores that an object is in force again and judged anew, before that applies; `rejudged` is
    /// how often, with this time.
    pub(super) async fn judge_again(
        &mut self,
        object: &AnyObject,
        rejudged: u32,
    ) -> Result<(), NotStored> {
        self.update(object, |kept| judged_again(kept, rejudged))
            .await
    }

    /// Replaces what is stored about an object now by what `change` makes of it; `None` if it is to
    /// stay. If another replica or an operator writes concurrently, it is read again.
    async fn update(
        &mut self,
        object: &AnyObject,
        change: impl Fn(KeptQuarantine) -> Result<Option<KeptQuarantine>, NotStored>,
    ) -> Result<(), NotStored> {
        for _ in 0..MAX_ATTEMPTS {
            self.read().await;
            let kept = self.kept_of(object)?;
            // What was decided instead is followed at once.
            let changed = change(kept).inspect_err(|_| self.read_at = None)?;
            let Some(kept) = changed else {
                return Ok(());
            };
            match self.put(kept).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Stale.into())
    }

    /// Deletes the votes about an object that stays in force, but not how often it was judged again.
    pub(super) async fn close(&mut self, object: &AnyObject) {
        if let Some(kept) = self.of(object).filter(|kept| kept.outcome.is_none()) {
            self.delete_votes(kept.clone()).await;
        }
    }

    /// Deletes the votes of abandoned judgements: the replicas that had begun
    /// them have ended.
    pub(super) async fn close_abandoned(&mut self) {
        let now = Timestamp::now();
        let is_abandoned = |kept: &&KeptQuarantine| is_undecided(kept) && is_abandoned(kept, now);
        let abandoned: Vec<_> = self.kept.values().filter(is_abandoned).cloned().collect();

        for kept in abandoned {
            self.delete_votes(kept).await;
        }
    }

    /// Deletes the votes of a record; a record that has only votes is deleted.
    async fn delete_votes(&mut self, kept: KeptQuarantine) {
        let object = kept.object.clone();
        let deleted = if kept.rejudged == 0 {
            self.kept.remove(&object);
            self.store.delete(&kept).await
        } else if kept.votes.is_empty() {
            Ok(())
        } else {
            let without = KeptQuarantine {
                votes: BTreeMap::new(),
                ..kept
            };
            self.put(without).await
        };

        if let Err(error) = deleted {
            tracing::debug!(%error, %object, "failed to delete the answers to a rejected object");
        }
    }

    /// Deletes the records of earlier versions that `is_left_over` selects.
    pub(super) async fn remove_left_over(
        &mut self,
        is_left_over: impl Fn(&KeptQuarantine) -> bool,
    ) {
        self.left_over
            .retain(|name, _| self.kept.contains_key(name));

        for (name, kept) in &self.kept {
            if !is_left_over(kept) {
                self.left_over.remove(name);
                continue;
            }

            let since = *self
                .left_over
                .entry(name.clone())
                .or_insert_with(Instant::now);
            if since.elapsed() >= LEFT_OVER_TTL
                && let Err(error) = self.store.delete(kept).await
            {
                tracing::debug!(%error, object = %name, "failed to delete the state of an ended quarantine");
            }
        }
    }

    /// What is stored about a version, or what will be.
    ///
    /// # Errors
    /// If something is stored about a later version, which this replica has not read yet.
    fn kept_of(&self, object: &AnyObject) -> Result<KeptQuarantine, NotStored> {
        if let Some(kept) = self.of(object) {
            return Ok(kept.clone());
        }

        let name = object.object_ref();
        let meta = object.meta();
        let other = self.kept.get(&name);
        if other.is_some_and(|kept| is_later(kept, meta)) {
            return Err(NotStored::Superseded);
        }

        Ok(KeptQuarantine {
            version: other.and_then(|kept| kept.version.clone()),
            object: name,
            generation: meta.generation,
            uid: meta.uid.clone(),
            created: meta.created,
            votes: BTreeMap::new(),
            outcome: None,
            rejudged: 0,
        })
    }

    /// Writes a ConfigMap; after a conflict with another replica, all are read again.
    async fn put(&mut self, kept: KeptQuarantine) -> Result<(), StoreError> {
        match self.store.put(&kept).await {
            Ok(kept) => {
                self.kept.insert(kept.object.clone(), kept);
                Ok(())
            }
            Err(error) => {
                if error.is_forbidden() && !self.is_forbidden {
                    self.is_forbidden = true;
                    tracing::warn!(
                        %error,
                        "quarantines are not shared with other replicas and end with this process: \
                         ConfigMaps cannot be written in the namespace of the control plane"
                    );
                }
                self.read_at = None;
                Err(error)
            }
        }
    }
}
