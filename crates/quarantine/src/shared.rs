//! The ConfigMaps in which replicas share the answers of their proxies and the judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use navarch_api::any_object::AnyObject;
use navarch_api::kubernetes::PodPhase;
use navarch_api::names::Namespace;
use navarch_api::object::{ObjectMeta, ObjectRef};
use navarch_push::context::PushContext;
use navarch_push::quarantine::jury::Turnout;
use navarch_push::quarantine::votes::Votes;
use navarch_status::{
    KeptQuarantine, QuarantineOutcome, QuarantineStore, ReplicaVotes, StoreError, UnreadableMaps,
};
use tokio::time::Instant;

/// Interval of reading the ConfigMaps while a judgement is awaited, and otherwise.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(3);
/// How long the ConfigMap of another version than the current one is kept: a replica may be slow to
/// read the object.
const LEFT_OVER_TTL: Duration = Duration::from_secs(60);
/// Minimum interval of reports about who has come and gone: clients that do so all the time cost
/// few writes.
const TURNOUT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);
/// Maximum attempts to store an operator's command, as other replicas write concurrently.
const MAX_ATTEMPTS: usize = 4;
/// The label of pods of the control plane, which istiod's have as well.
const APP_LABEL: (&str, &str) = ("app", "istiod");

/// Where replicas are found.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The name of this one: that of its pod.
    pub own: String,
    /// The namespace of the control plane.
    pub namespace: Namespace,
    /// Whether there is only this one.
    pub is_single: bool,
}

/// The answers of the proxies of all replicas.
#[derive(Debug)]
pub(super) struct SharedVotes {
    pub(super) votes: Votes,
    /// Whether the answers of all replicas are known.
    pub(super) is_complete: bool,
}

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

impl Replicas {
    /// The names of all; `None` if they are not known.
    fn all(&self, context: &PushContext) -> Option<BTreeSet<String>> {
        if self.is_single {
            return Some([self.own.clone()].into());
        }

        let (key, value) = APP_LABEL;
        let is_replica =
            |meta: &ObjectMeta| meta.labels.get(key).is_some_and(|label| **label == *value);
        let all: BTreeSet<String> = context
            .objects
            .pods
            .iter()
            .filter(|pod| pod.meta.key.namespace == self.namespace)
            .filter(|pod| pod.spec.phase == PodPhase::Running && is_replica(&pod.meta))
            .map(|pod| pod.meta.key.name.to_string())
            .collect();
        all.contains(&self.own).then_some(all)
    }
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
        let is_undecided = self.kept.values().any(|kept| kept.outcome.is_none());
        let interval = if is_judging || is_undecided {
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
    pub(super) async fn report(&mut self, object: &AnyObject, votes: &Votes, begins: bool) {
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

        let mut kept = self.kept_of(object);
        let at = Timestamp::now();
        let report = ReplicaVotes {
            at,
            votes,
            turnout: None,
        };
        kept.votes.insert(self.replicas.own.clone(), report);
        if let Err(error) = self.put(kept).await {
            tracing::debug!(%error, object = %name, "failed to store the answers of proxies to a rejected object");
        }
    }

    /// Whether other replicas count who comes and goes while an object is quarantined.
    pub(super) fn has_other_replicas(&self, object: &ObjectRef) -> bool {
        !self.replicas.is_single && self.is_writable(object)
    }

    /// Who has come and gone at the other replicas since an object was quarantined.
    pub(super) fn elsewhere(&self, context: &PushContext, object: &AnyObject) -> Turnout {
        let replicas = self.replicas.all(context);
        turnout_of(&self.replicas.own, replicas.as_ref(), self.of(object))
    }

    /// Stores who of this replica's clients has come and gone since an object was quarantined.
    pub(super) async fn report_turnout(&mut self, object: &AnyObject, turnout: &Turnout) {
        let name = object.object_ref();
        let decided = self.of(object).filter(|kept| kept.outcome.is_some());
        let (Some(kept), true) = (decided, self.has_other_replicas(&name)) else {
            return;
        };

        let own = kept.votes.get(&self.replicas.own);
        let stored = own.and_then(|own| own.turnout.as_ref());
        if stored.is_none() && *turnout == Turnout::default() {
            return;
        }

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
        kept.votes.insert(self.replicas.own.clone(), report);
        if let Err(error) = self.put(kept).await {
            tracing::debug!(%error, object = %name, "failed to store which proxies have come and gone since a quarantine");
        }
    }

    /// Stores a judgement, before it is applied.
    pub(super) async fn decide(
        &mut self,
        object: &AnyObject,
        outcome: QuarantineOutcome,
    ) -> Result<KeptQuarantine, StoreError> {
        let mut kept = self.kept_of(object);
        kept.outcome = Some(outcome);
        self.put(kept).await
    }

    /// Like [`Shared::decide`], based on the current state: an operator's command takes precedence
    /// over concurrent writes of replicas.
    pub(super) async fn decide_until_success(
        &mut self,
        object: &AnyObject,
        outcome: &QuarantineOutcome,
    ) -> Result<KeptQuarantine, StoreError> {
        let mut result = Err(StoreError::Stale);
        for _ in 0..MAX_ATTEMPTS {
            self.read().await;
            result = self.decide(object, outcome.clone()).await;
            if !matches!(result, Err(StoreError::Stale)) {
                break;
            }
        }
        result
    }

    /// Stores that an object is in force again and judged anew, before that applies.
    pub(super) async fn judge_again(&mut self, object: &AnyObject) -> Result<(), StoreError> {
        let mut result = Ok(());
        for _ in 0..MAX_ATTEMPTS {
            self.read().await;
            let mut kept = self.kept_of(object);
            kept.outcome = None;
            kept.votes.clear();
            result = self.put(kept).await.map(|_| ());
            if !matches!(result, Err(StoreError::Stale)) {
                break;
            }
        }
        result
    }

    /// Deletes the votes about an object that stays in force.
    pub(super) async fn close(&mut self, object: &AnyObject) {
        let Some(kept) = self.of(object).filter(|kept| kept.outcome.is_none()) else {
            return;
        };
        if let Err(error) = self.store.delete(kept).await {
            tracing::debug!(%error, object = %kept.object, "failed to delete the answers to a rejected object");
        }
        self.kept.remove(&object.object_ref());
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
    fn kept_of(&self, object: &AnyObject) -> KeptQuarantine {
        let name = object.object_ref();
        if let Some(kept) = self.of(object) {
            return kept.clone();
        }

        let meta = object.meta();
        KeptQuarantine {
            version: self.kept.get(&name).and_then(|kept| kept.version.clone()),
            object: name,
            generation: meta.generation,
            uid: meta.uid.clone(),
            votes: BTreeMap::new(),
            outcome: None,
        }
    }

    /// Writes a ConfigMap; after a conflict with another replica, all are read again.
    async fn put(&mut self, kept: KeptQuarantine) -> Result<KeptQuarantine, StoreError> {
        match self.store.put(&kept).await {
            Ok(kept) => {
                self.kept.insert(kept.object.clone(), kept.clone());
                Ok(kept)
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

/// Whether the stored state is of this version of an object.
pub(super) fn is_of(kept: &KeptQuarantine, object: &AnyObject) -> bool {
    let meta = object.meta();
    kept.generation == meta.generation && kept.uid == meta.uid
}

/// The sum of the own answers and those that the other replicas have stored. It is not complete
/// while one has not reported, or the replicas are not known.
fn sum_of(
    own_name: &str,
    replicas: Option<&BTreeSet<String>>,
    kept: Option<&KeptQuarantine>,
    own: &Votes,
) -> SharedVotes {
    let mut sum = SharedVotes {
        votes: own.clone(),
        is_complete: replicas.is_some(),
    };

    for replica in replicas.into_iter().flatten() {
        if replica == own_name {
            continue;
        }
        let stored = kept.and_then(|kept| kept.votes.get(replica));
        match stored.and_then(|stored| Votes::from_json(&stored.votes)) {
            Some(reported) => {
                sum.votes.add(&reported.votes);
                sum.is_complete &= !reported.is_partial;
            }
            None => sum.is_complete = false,
        }
    }
    sum
}

/// The sum of what the other replicas have stored about who has come and gone.
fn turnout_of(
    own_name: &str,
    replicas: Option<&BTreeSet<String>>,
    kept: Option<&KeptQuarantine>,
) -> Turnout {
    let mut sum = Turnout::default();
    let others = replicas.into_iter().flatten();
    for replica in others.filter(|replica| *replica != own_name) {
        let stored = kept.and_then(|kept| kept.votes.get(replica));
        let turnout = stored.and_then(|stored| stored.turnout.as_ref());
        if let Some(turnout) = turnout.and_then(Turnout::from_json) {
            sum.add(turnout);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use navarch_api::object::{Kind, NamespacedName};
    use navarch_api::uid::Uid;
    use navarch_push::quarantine::instance::{Instance, Mark};
    use navarch_push::quarantine::votes::{Answer, VoteCounter, Voter};

    use super::*;

    /// What is stored about an object.
    fn kept(reports: Vec<(String, ReplicaVotes)>) -> KeptQuarantine {
        KeptQuarantine {
            object: ObjectRef {
                kind: Kind::VirtualService,
                name: NamespacedName::new("shop", "v"),
            },
            generation: 1,
            uid: Uid::default(),
            votes: reports.into_iter().collect(),
            outcome: None,
            version: None,
        }
    }

    #[test]
    fn arrivals_and_departures_at_other_live_replicas_are_summed() {
        let instance = |pod: &str| Instance {
            workload: NamespacedName::new("shop", pod),
            mark: Mark::Uid(pod.into()),
        };
        let report = |replica: &str, decider: &str, opponent: &str| {
            let turnout = Turnout {
                deciders: [instance(decider)].into(),
                opponents: [instance(opponent)].into(),
                strangers: 1,
                reaches_outside: replica == "istiod-3",
            };
            let report = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: Votes::default().to_json(&Namespace::new("shop")),
                turnout: Some(turnout.to_json()),
            };
            (replica.to_owned(), report)
        };
        let kept = kept(vec![
            report("istiod-1", "own", "own"),
            report("istiod-2", "a", "c"),
            report("istiod-3", "b", "c"),
            report("istiod-9", "ended", "ended"),
        ]);
        let replicas = ["istiod-1", "istiod-2", "istiod-3"].map(str::to_owned);

        let sum = turnout_of("istiod-1", Some(&replicas.into()), Some(&kept));
        let expected = Turnout {
            deciders: ["a", "b"].map(instance).into(),
            opponents: [instance("c")].into(),
            strangers: 2,
            reaches_outside: true,
        };
        assert_eq!(sum, expected);
    }

    #[test]
    fn answers_of_all_replicas_count_and_are_awaited() {
        let votes = |pod: &str, answer| {
            let mut counter = VoteCounter::default();
            let voter = Voter {
                account: NamespacedName::new("shop", "web"),
                workload: NamespacedName::new("shop", pod),
                mark: Mark::Unknown,
            };
            counter.add(voter, answer);
            counter.votes()
        };
        let own = votes("web-1", Answer::Rejected);
        let shop = Namespace::new("shop");
        let report = |replica: &str, pod: &str| {
            let report = ReplicaVotes {
                at: "2026-01-01T00:00:00Z".parse().unwrap(),
                votes: votes(pod, Answer::Accepted).to_json(&shop),
                turnout: None,
            };
            (replica.to_owned(), report)
        };
        let replicas: BTreeSet<String> = ["istiod-1", "istiod-2"].map(str::to_owned).into();
        let sum = |kept: Option<&KeptQuarantine>, replicas| {
            let sum = sum_of("istiod-1", replicas, kept, &own);
            let of_shop = sum.votes.of_namespace(&shop);
            (of_shop.rejected, of_shop.reached, sum.is_complete)
        };

        assert_eq!(sum(None, Some(&replicas)), (1, 1, false));
        let reported = kept(vec![report("istiod-2", "web-2")]);
        assert_eq!(sum(Some(&reported), Some(&replicas)), (1, 2, true));
        assert_eq!(
            sum(Some(&reported), None),
            (1, 1, false),
            "unknown replicas"
        );

        // What this one has stored, and one that has ended, do not count.
        let others = kept(vec![
            report("istiod-1", "web-3"),
            report("istiod-9", "web-4"),
        ]);
        assert_eq!(sum(Some(&others), Some(&replicas)), (1, 1, false));
    }
}
