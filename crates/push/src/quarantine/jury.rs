//! Who decided that an object is quarantined, and who of them is left.
//!
//! ```text
//! at the judgement        since then
//! rejected it ─▶ deciders ── the same instance is connected, or was 30 s ago ─▶ left ───┐
//!                            reached by the object, and not deciders ─▶ opponents ─┴▶ over once opponents >= max(1, left)
//! ```
//!
//! So a decision of the object's own namespace lasts while those who made it are most of its
//! workloads that the object reaches, and does not outlive them: once none is left for a minute,
//! any client that the object reaches is an opponent. A pod that is replaced under its own name is
//! another instance ([`Instance`]). A decision of other namespaces, which takes all that the object
//! reaches, is over with the first opponent.
//!
//! Connected means to any replica: a decider may move from one to another, which other replicas
//! learn with a delay. While a replica has not told who is connected to it, all deciders may be; but
//! one that hangs is not waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use serde_json::{Value, json};

use super::instance::{Instance, find, instances_from_json, instances_to_json, recognize};
use super::turnout::Turnout;
use super::votes::Votes;
use crate::engine::ProxyId;

/// Number of rejecting workloads that are needed in a namespace with at least as many.
pub(super) const MIN_REJECTING: usize = 2;
/// Minimum duration of a quarantine before it is judged again. It doubles each time, at most
/// [`MAX_DOUBLINGS`] times: an object that stays broken goes to its proxies again only rarely.
const MIN_QUARANTINE: Duration = Duration::from_secs(10);
const MAX_DOUBLINGS: u32 = 6;
/// How long a decider may be connected to no replica until it is gone: time to connect again, and
/// to another replica, which reports that with a delay of up to 20 s.
pub(super) const MAX_ABSENCE: Duration = Duration::from_secs(30);
/// How long all deciders may be away until clients of other namespaces are opponents. A pod that
/// replaces the only decider should find the version that it accepts: a proxy that rejects its first
/// response is not believed.
const MAX_DESERTION: Duration = Duration::from_secs(60);
/// How long a quarantine lasts because a replica does not report who is connected to it: as long as
/// a leader that does not renew its lease keeps it.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// Those who decided that an object is quarantined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jury {
    /// The accounts that it reached, if these are of other namespaces and decided; `None` if the
    /// object's own namespace did. Then all workloads here are of that namespace.
    pub others: Option<BTreeSet<NamespacedName>>,
    /// Number of workloads that rejected the object.
    pub rejected: usize,
    /// Those of them that are listed.
    pub deciders: BTreeSet<Instance>,
    /// Workloads that are no opponents: if the reach of the quarantined object is unknown, those
    /// that were connected and not reached; and those that came while [`learns`](Self::learns).
    pub apart: BTreeSet<Instance>,
    /// The same of streams without a voice, as long as they are open: one that comes later is
    /// another client, whoever has left. Other replicas have other streams, so none is stored.
    pub strangers: BTreeSet<ProxyId>,
    /// When the quarantine began, as time since the same moment as that of the steps.
    pub since: Duration,
    /// It does not end before: after a start of the control plane all clients connect again.
    pub known_until: Duration,
    /// Whether those that come until then are no opponents: the list of deciders is not complete,
    /// or the reach of the object is unknown.
    pub learns: bool,
    /// Deciders that are connected to no replica, each since when.
    pub absent_since: BTreeMap<Instance, Duration>,
    /// Since when a replica has not reported who is connected to it.
    pub silent_since: Option<Duration>,
}

/// The connected clients of an object's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// Those with a voice.
    pub workloads: BTreeSet<Instance>,
    /// Streams without a voice that claim the namespace.
    pub strangers: BTreeSet<ProxyId>,
    /// Number of all streams without a voice, whatever they claim.
    pub voiceless: usize,
}

/// A jury as it is stored for other replicas, and for this one after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJury {
    /// The deciders, with `true`, and those apart, with `false`.
    pub workloads: BTreeMap<Instance, bool>,
    /// How often the object was judged again before.
    pub rejudged: u32,
    /// Whether workloads are missing.
    pub is_partial: bool,
}

/// The answers that have arrived by one time.
#[derive(Clone, Copy, Debug)]
pub struct Ballot<'a> {
    /// The answers of all proxies that the object reaches, as far as they are known; of a
    /// quarantined object, those of this replica's.
    pub votes: &'a Votes,
    /// Whether the answers at all replicas are known; of a quarantined object, who of its clients
    /// has come and gone there.
    pub is_complete: bool,
    /// Whether a previous version would be served that reaches the same proxies: otherwise the
    /// reach of the object would be unknown later.
    pub keeps_reach: bool,
    /// The connected clients of the object's namespace at this replica, whether the object reaches
    /// them or not.
    pub connected: &'a Connected,
    /// The clients of a quarantined object that have come and gone at the other replicas.
    pub elsewhere: &'a Turnout,
}

impl Jury {
    /// The jury of a decision at a time: that of the object's namespace, or of `others`.
    pub(super) fn of(
        ballot: &Ballot<'_>,
        namespace: &Namespace,
        others: Option<BTreeSet<NamespacedName>>,
        now: Duration,
    ) -> Self {
        let workloads = ballot.votes.workloads().iter();
        let deciders: BTreeSet<Instance> = workloads
            .filter(|(one, rejects)| {
                **rejects && (others.is_some() || one.workload.namespace == *namespace)
            })
            .map(|(one, _)| one.clone())
            .collect();
        let rejected = match &others {
            Some(_) => deciders.len(),
            None => ballot.votes.of_namespace(namespace).rejected,
        };

        let mut jury = Self {
            others,
            rejected,
            deciders,
            apart: BTreeSet::new(),
            strangers: BTreeSet::new(),
            since: now,
            known_until: now,
            learns: !ballot.votes.is_listed(),
            absent_since: BTreeMap::new(),
            silent_since: None,
        };
        if jury.others.is_none() && !ballot.keeps_reach {
            let connected = ballot.connected.workloads.iter();
            let unreached = connected.filter(|one| !ballot.votes.workloads().contains_key(*one));
            jury.apart = unreached.cloned().collect();
            jury.strangers.clone_from(&ballot.connected.strangers);
        }
        jury
    }

    /// Takes over a stored decision, which does not end before `known_until`; `shows_reach`:
    /// whether the served version reaches the same proxies as the object.
    #[must_use]
    pub fn stored(
        stored: Option<&StoredJury>,
        others: Option<BTreeSet<NamespacedName>>,
        rejected: usize,
        shows_reach: bool,
        now: Duration,
        known_until: Duration,
    ) -> Self {
        let listed = |is_decider: bool| -> BTreeSet<Instance> {
            let all = stored.into_iter().flat_map(|stored| &stored.workloads);
            all.filter(move |(_, decides)| **decides == is_decider)
                .map(|(one, _)| one.clone())
                .collect()
        };
        Self {
            others,
            rejected,
            deciders: listed(true),
            apart: listed(false),
            strangers: BTreeSet::new(),
            since: now,
            known_until,
            learns: !shows_reach || stored.is_none_or(|stored| stored.is_partial),
            absent_since: BTreeMap::new(),
            silent_since: None,
        }
    }

    /// The workloads that the object reaches, or might reach.
    fn reach(&self, ballot: &Ballot<'_>, namespace: &Namespace) -> BTreeSet<Instance> {
        let is_own = self.others.is_none();
        let mut reached: BTreeSet<Instance> = ballot
            .votes
            .workloads()
            .keys()
            .filter(|one| !is_own || one.workload.namespace == *namespace)
            .cloned()
            .collect();

        if self.is_reach_unknown(ballot) {
            reached.extend(ballot.connected.workloads.iter().cloned());
        }
        reached
    }

    /// Whether the version that is served does not show whom the rejected one would reach.
    fn is_reach_unknown(&self, ballot: &Ballot<'_>) -> bool {
        self.others.is_none() && !ballot.keeps_reach
    }

    /// The number of streams without a voice that the object reaches, or might reach, and that are
    /// not apart.
    fn further_strangers(&self, ballot: &Ballot<'_>) -> usize {
        // Those that the served version reaches may claim any namespace: only their number is
        // known.
        let reached = ballot.votes.strangers();
        let reached = reached.saturating_sub(self.strangers.len());

        if self.is_reach_unknown(ballot) {
            let connected = &ballot.connected.strangers;
            reached.max(connected.difference(&self.strangers).count())
        } else {
            reached
        }
    }

    /// Whether those that come now are no opponents.
    #[must_use]
    pub fn is_learning(&self, now: Duration) -> bool {
        self.learns && now < self.known_until
    }

    /// Whether the object may be judged again, if enough have come.
    #[must_use]
    pub fn may_end(&self, now: Duration, rejudged: u32) -> bool {
        let lasts = MIN_QUARANTINE * 2_u32.pow(rejudged.min(MAX_DOUBLINGS));
        now >= self.known_until && now.saturating_sub(self.since) >= lasts
    }

    /// Notes which deciders are among clients that are connected, when nothing else is looked at.
    pub(super) fn see(&mut self, connected: &Connected, now: Duration) {
        recognize(&mut self.deciders, &connected.workloads);
        self.forget_closed(connected);
        self.note_absence([&connected.workloads], now);
    }

    /// Forgets streams without a voice that are closed: their ids do not come again.
    fn forget_closed(&mut self, connected: &Connected) {
        self.strangers
            .retain(|one| connected.strangers.contains(one));
    }

    /// Notes which deciders are in none of these sets.
    fn note_absence<const N: usize>(&mut self, present: [&BTreeSet<Instance>; N], now: Duration) {
        for decider in &self.deciders {
            if present.iter().any(|set| find(set, decider).is_some()) {
                self.absent_since.remove(decider);
            } else {
                self.absent_since.entry(decider.clone()).or_insert(now);
            }
        }

        // Some may have been recognized under another mark.
        let deciders = &self.deciders;
        self.absent_since.retain(|one, _| deciders.contains(one));
    }

    /// Who of this process's clients is connected, and who is against them.
    pub(super) fn turnout(
        &mut self,
        ballot: &Ballot<'_>,
        namespace: &Namespace,
        now: Duration,
    ) -> Turnout {
        let reached = self.reach(ballot, namespace);
        let connected = &ballot.connected.workloads;
        recognize(&mut self.deciders, connected);
        recognize(&mut self.deciders, &reached);
        recognize(&mut self.apart, &reached);
        if self.is_learning(now) {
            let others = reached.difference(&self.deciders);
            self.apart.extend(others.cloned());
            if self.is_reach_unknown(ballot) {
                let strangers = ballot.connected.strangers.iter();
                self.strangers.extend(strangers.copied());
            }
        }
        self.forget_closed(ballot.connected);

        self.note_absence([&reached, connected, &ballot.elsewhere.deciders], now);
        let is_here = |one: &&Instance| reached.contains(*one) || connected.contains(*one);
        let here: BTreeSet<Instance> = self.deciders.iter().filter(is_here).cloned().collect();

        let mut all = ballot.votes.workloads().keys();
        let is_outside = |one: &Instance| one.workload.namespace != *namespace;
        Turnout {
            deciders: here,
            opponents: self.opponents(&reached).cloned().collect(),
            unlisted_deciders: 0,
            min_opponents: 0,
            // One is enough, and others store this again whenever it changes.
            strangers: self.further_strangers(ballot).min(1),
            reaches_outside: ballot.votes.strangers() > 0 || all.any(is_outside),
        }
    }

    /// Whether the turnout at all replicas is known, or one has been silent for too long; then it
    /// counts as without clients.
    pub(super) fn is_known(&mut self, is_complete: bool, now: Duration) -> bool {
        if is_complete {
            self.silent_since = None;
            return true;
        }
        let since = *self.silent_since.get_or_insert(now);
        now.saturating_sub(since) >= MAX_SILENCE
    }

    /// Those of some workloads that neither decided nor are apart.
    fn opponents<'a>(
        &'a self,
        workloads: &'a BTreeSet<Instance>,
    ) -> impl Iterator<Item = &'a Instance> {
        workloads.iter().filter(move |one| {
            find(&self.deciders, one).is_none() && find(&self.apart, one).is_none()
        })
    }

    /// Whether there may be opponents: a client without a voice, if one workload decided; a
    /// connected workload of the namespace; anyone, if no decider is connected.
    #[must_use]
    pub fn may_have_opponents(&self, connected: &Connected) -> bool {
        self.others.is_some()
            || self.rejected < MIN_REJECTING && connected.voiceless > 0
            || self.opponents(&connected.workloads).next().is_some()
            || self.deciders.is_disjoint(&connected.workloads)
    }

    /// The number of deciders that are left, of which `elsewhere` may not list all; `is_known`:
    /// whether the other replicas have told who is connected to them.
    fn left(&self, elsewhere: &Turnout, is_known: bool, now: Duration) -> usize {
        let is_gone = |since: &&Duration| now.saturating_sub(**since) >= MAX_ABSENCE;
        let gone = self.absent_since.values().filter(is_gone).count();
        let may_be_connected = if is_known {
            gone.min(elsewhere.unlisted_deciders)
        } else {
            gone
        };
        let listed = self.deciders.len().saturating_sub(gone) + may_be_connected;

        // Deciders that are not listed, as by an earlier release, may still be there.
        let unlisted = self.rejected.saturating_sub(self.deciders.len());
        listed.saturating_add(unlisted)
    }

    /// Whether there are as many opponents as deciders are left, of which this process's clients are
    /// `own`; `is_known`: whether the other replicas have told who is connected to them.
    pub(super) fn is_outnumbered(
        &self,
        own: &Turnout,
        elsewhere: &Turnout,
        is_known: bool,
        now: Duration,
    ) -> bool {
        let left = self.left(elsewhere, is_known, now);
        let mut absences = self.absent_since.values();
        let is_deserted =
            left == 0 && absences.all(|since| now.saturating_sub(*since) >= MAX_DESERTION);
        if is_deserted && (own.reaches_outside || elsewhere.reaches_outside) {
            return true;
        }

        let further = self.opponents(&elsewhere.opponents);
        let further = further.filter(|one| find(&own.opponents, one).is_none());
        let opponents = own.opponents.len().saturating_add(further.count());
        let opponents = opponents.max(elsewhere.min_opponents);

        // Anybody can open streams without identity: they count only against a decision of one
        // workload, which would not have decided beside them.
        let strangers = if self.others.is_none() && self.rejected < MIN_REJECTING {
            own.strangers.saturating_add(elsewhere.strangers)
        } else {
            0
        };

        let needed = match self.others {
            Some(_) => 1,
            None => left.max(1),
        };
        opponents.saturating_add(strangers) >= needed
    }

    /// Whether the object reaches an account that did not decide, or a client without a voice,
    /// though other namespaces decided because every proxy that it reached rejected it.
    pub(super) fn reaches_further(&self, ballot: &Ballot<'_>) -> bool {
        let Some(accounts) = &self.others else {
            return false;
        };
        let mut reached = ballot.votes.accounts().keys();
        ballot.votes.strangers() > 0 || reached.any(|account| !accounts.contains(account))
    }

    /// As it is stored; `rejudged` is how often the object was judged again before. The deciders
    /// are listed first.
    #[must_use]
    pub fn to_json(&self, rejudged: u32) -> Value {
        let decided = self.deciders.iter().map(|one| (one, &true));
        let apart = self.apart.iter().map(|one| (one, &false));
        let listed = instances_to_json(decided.chain(apart));
        json!({
            "workloads": listed.json,
            "rejudged": rejudged,
            "isPartial": listed.is_partial || self.learns,
        })
    }
}

impl StoredJury {
    /// Reads what [`Jury::to_json`] wrote; `None` if it is not valid.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            workloads: instances_from_json(value.get("workloads")?)?,
            rejudged: u32::try_from(value.get("rejudged")?.as_u64()?).ok()?,
            is_partial: value.get("isPartial")?.as_bool()?,
        })
    }
}
