//! Who decided that an object is quarantined, and who of them is left.
//!
//! ```text
//! at the judgement        since then
//! rejected it ─▶ deciders ── still connected, as the same instances ─▶ left ───────┐
//!                            reached by the object, and not deciders ─▶ opponents ─┴▶ over once opponents >= max(1, left)
//! ```
//!
//! So a decision of the object's own namespace lasts while those who made it are most of its
//! workloads that the object reaches, and does not outlive them: once none is left for a minute,
//! any client that the object reaches is an opponent. A pod that is replaced under its own name is
//! another instance ([`Instance`]). A decision of other namespaces, which takes all that the object
//! reaches, is over with the first opponent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use navarch_api::names::Namespace;
use navarch_api::object::NamespacedName;
use serde_json::{Value, json};

use super::instance::{Instance, instances_from_json, instances_to_json, recognize};
use super::judgement::Ballot;

/// Number of rejecting workloads that are needed in a namespace with at least as many.
pub(super) const MIN_REJECTING: usize = 2;
/// Minimum duration of a quarantine before it is judged again. It doubles each time, at most
/// [`MAX_DOUBLINGS`] times: an object that stays broken goes to its proxies again only rarely.
const MIN_QUARANTINE: Duration = Duration::from_secs(10);
const MAX_DOUBLINGS: u32 = 6;
/// How long deciders may be away until clients of other namespaces are opponents. A pod that
/// replaces the only decider should find the version that it accepts: a proxy that rejects its
/// first response is not believed.
const MAX_ABSENCE: Duration = Duration::from_secs(60);

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
    /// The same of clients without a voice, by number, in this process.
    pub strangers: usize,
    /// When the quarantine began, as time since the same moment as that of the steps.
    pub since: Duration,
    /// It does not end before: after a start of the control plane all clients connect again.
    pub known_until: Duration,
    /// Whether those that come until then are no opponents: the list of deciders is not complete,
    /// or the reach of the object is unknown.
    pub learns: bool,
    /// Since when no decider is connected to this replica.
    pub deserted_since: Option<Duration>,
}

/// Who of the deciders is left, and who is against them, at one replica or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turnout {
    /// Deciders that are still connected.
    pub deciders: BTreeSet<Instance>,
    /// Other workloads that the object reaches, or might reach.
    pub opponents: BTreeSet<Instance>,
    /// The same of clients without a voice.
    pub strangers: usize,
    /// Whether the object reaches clients of other namespaces, or without a voice: they are
    /// opponents once no decider is left.
    pub reaches_outside: bool,
}

/// The connected clients of an object's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// Those with a voice.
    pub workloads: BTreeSet<Instance>,
    /// Number of streams without a voice that claim the namespace.
    pub strangers: usize,
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
            strangers: 0,
            since: now,
            known_until: now,
            learns: !ballot.votes.is_listed(),
            deserted_since: None,
        };
        if jury.others.is_none() && !ballot.keeps_reach {
            let connected = ballot.connected.workloads.iter();
            let unreached = connected.filter(|one| !ballot.votes.workloads().contains_key(*one));
            jury.apart = unreached.cloned().collect();
            jury.strangers = ballot.connected.strangers;
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
            strangers: 0,
            since: now,
            known_until,
            learns: !shows_reach || stored.is_none_or(|stored| stored.is_partial),
            deserted_since: None,
        }
    }

    /// The workloads that the object reaches, and the number of clients without a voice.
    fn reach(&self, ballot: &Ballot<'_>, namespace: &Namespace) -> (BTreeSet<Instance>, usize) {
        let is_own = self.others.is_none();
        let mut reached: BTreeSet<Instance> = ballot
            .votes
            .workloads()
            .keys()
            .filter(|one| !is_own || one.workload.namespace == *namespace)
            .cloned()
            .collect();
        let mut strangers = ballot.votes.strangers();

        // The version that is served does not show whom the rejected one would reach.
        if is_own && !ballot.keeps_reach {
            reached.extend(ballot.connected.workloads.iter().cloned());
            strangers = strangers.max(ballot.connected.strangers);
        }
        (reached, strangers)
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

    /// Who of this process's clients is left, and who is against them.
    pub(super) fn turnout(
        &mut self,
        ballot: &Ballot<'_>,
        namespace: &Namespace,
        now: Duration,
    ) -> Turnout {
        let (reached, strangers) = self.reach(ballot, namespace);
        recognize(&mut self.deciders, &ballot.connected.workloads);
        recognize(&mut self.deciders, &reached);
        recognize(&mut self.apart, &reached);
        if self.is_learning(now) {
            let others = reached.difference(&self.deciders);
            self.apart.extend(others.cloned());
            self.strangers = self.strangers.max(strangers);
        }

        let is_connected =
            |one: &&Instance| reached.contains(*one) || ballot.connected.workloads.contains(*one);
        let left: BTreeSet<Instance> = self.deciders.iter().filter(is_connected).cloned().collect();
        self.deserted_since = if left.is_empty() {
            self.deserted_since.or(Some(now))
        } else {
            None
        };

        let mut all = ballot.votes.workloads().keys();
        let is_outside = |one: &Instance| one.workload.namespace != *namespace;
        Turnout {
            deciders: left,
            opponents: self.opponents(&reached).cloned().collect(),
            // One is enough, and others store this again whenever it changes.
            strangers: strangers.saturating_sub(self.strangers).min(1),
            reaches_outside: ballot.votes.strangers() > 0 || all.any(is_outside),
        }
    }

    /// Those of some workloads that neither decided nor are apart.
    fn opponents<'a>(
        &'a self,
        workloads: &'a BTreeSet<Instance>,
    ) -> impl Iterator<Item = &'a Instance> {
        let others = workloads.difference(&self.deciders);
        others.filter(move |one| !self.apart.contains(*one))
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

    /// Whether there are as many opponents as deciders are left.
    pub(super) fn is_outnumbered(&self, own: &Turnout, elsewhere: &Turnout, now: Duration) -> bool {
        let of_others = self.opponents(&elsewhere.opponents);
        let opponents: BTreeSet<&Instance> = own.opponents.iter().chain(of_others).collect();

        // Anybody can open streams without identity: they count only against a decision of one
        // workload, which would not have decided beside them.
        let strangers = if self.others.is_none() && self.rejected < MIN_REJECTING {
            own.strangers.saturating_add(elsewhere.strangers)
        } else {
            0
        };

        // Deciders that are not listed, as by an earlier release, may still be there.
        let unlisted = self.rejected.saturating_sub(self.deciders.len());
        let left: BTreeSet<&Instance> = own.deciders.iter().chain(&elsewhere.deciders).collect();
        let left = left.len().saturating_add(unlisted);
        let since = self.deserted_since.filter(|_| left == 0);
        let is_deserted = since.is_some_and(|since| now.saturating_sub(since) >= MAX_ABSENCE);
        if is_deserted && (own.reaches_outside || elsewhere.reaches_outside) {
            return true;
        }

        let needed = match self.others {
            Some(_) => 1,
            None => left.max(1),
        };
        opponents.len().saturating_add(strangers) >= needed
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

impl Turnout {
    /// Adds that of another replica.
    pub fn add(&mut self, other: Self) {
        self.deciders.extend(other.deciders);
        self.opponents.extend(other.opponents);
        self.strangers = self.strangers.saturating_add(other.strangers);
        self.reaches_outside |= other.reaches_outside;
    }

    /// As JSON, for other replicas: the deciders with `true`, the opponents with `false`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let deciders = self.deciders.iter().map(|one| (one, &true));
        let opponents = self.opponents.iter().map(|one| (one, &false));
        let listed = instances_to_json(opponents.chain(deciders));
        json!({
            "workloads": listed.json,
            "strangers": self.strangers,
            "reachesOutside": self.reaches_outside,
        })
    }

    /// Reads what [`Turnout::to_json`] wrote; `None` if it is not valid.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let workloads = instances_from_json(value.get("workloads")?)?;
        let mut turnout = Self {
            strangers: usize::try_from(value.get("strangers")?.as_u64()?).ok()?,
            reaches_outside: value.get("reachesOutside")?.as_bool()?,
            ..Self::default()
        };
        for (instance, is_decider) in workloads {
            let place = if is_decider {
                &mut turnout.deciders
            } else {
                &mut turnout.opponents
            };
            place.insert(instance);
        }
        Some(turnout)
    }
}
