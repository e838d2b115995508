//! The judgement about a rejected object: a pure state machine whose inputs are the answers of
//! proxies and the time.
//!
//! ```text
//! a rejection ─▶ Open ── all have answered, or 10 s are over ─▶ Quarantined ── an operator, or it reaches others ─▶ Released
//!                 └──────────── too few reject ─▶ Kept ── another rejection ─▶ Open
//! ```
//!
//! A proxy can lie. So a rejection by the object's own namespace needs a majority there; one by
//! other namespaces needs a majority of everything that the object reaches, from at least two
//! namespaces or from all proxies without exception. Identities of one namespace therefore never
//! take an object of another namespace away from a proxy that accepts it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::votes::{AccountVotes, Votes};
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};

/// How long the judgement waits for proxies that have not answered.
pub const MAX_WAIT: Duration = Duration::from_secs(10);
/// Number of rejecting workloads that are needed in a namespace with at least as many.
const MIN_REJECTING: usize = 2;

/// The object that is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Kind, namespace and name.
    pub object: ObjectRef,
    /// The root namespace of the mesh.
    pub root: Namespace,
}

/// What is known of the answers at one time.
#[derive(Clone, Copy, Debug)]
pub struct Ballot<'a> {
    /// The answers of all proxies that the object reaches, as far as they are known.
    pub votes: &'a Votes,
    /// Whether the answers at all replicas are known.
    pub is_complete: bool,
}

/// Whose rejection decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// Workloads of the object's namespace reject it.
    OwnNamespace {
        /// Workloads that reject it.
        rejecting: usize,
        /// Workloads of the namespace that it reaches.
        reached: usize,
    },
    /// Service accounts of other namespaces reject it.
    OtherNamespaces {
        /// Accounts that reject it.
        rejecting: usize,
        /// Accounts that it reaches.
        reached: usize,
    },
}

/// What a step decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing changes.
    Nothing,
    /// The object stays in force: too few proxies reject it. Another rejection is judged anew.
    Keep,
    /// The previous version of the object is served.
    Quarantine(Grounds),
    /// The object is in force again until it is edited.
    Release,
}

/// The state of a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It waits for answers, since a time.
    Open(Duration),
    /// The object stays in force.
    Kept,
    /// Its previous version is served. If others than its namespace decided: the accounts that it
    /// reached then.
    Quarantined(Option<BTreeSet<NamespacedName>>),
    /// It is in force until it is edited, whoever rejects it.
    Released,
}

/// The judgement about one version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    state: State,
}

impl Judgement {
    /// A proxy rejects the object; `now` is the time since any fixed moment.
    #[must_use]
    pub fn open(now: Duration) -> Self {
        Self {
            state: State::Open(now),
        }
    }

    /// No proxy of this process rejects the object: it stays in force unless others decide
    /// otherwise.
    #[must_use]
    pub fn kept() -> Self {
        Self { state: State::Kept }
    }

    /// The judgement that another replica made; `others` are the accounts that decided, if it was
    /// not the object's own namespace.
    #[must_use]
    pub fn quarantined(others: Option<BTreeSet<NamespacedName>>) -> Self {
        Self {
            state: State::Quarantined(others),
        }
    }

    /// The object is in force until it is edited.
    #[must_use]
    pub fn released() -> Self {
        Self {
            state: State::Released,
        }
    }

    /// Another proxy rejects the object.
    pub fn reject(&mut self, now: Duration) {
        if self.state == State::Kept {
            self.state = State::Open(now);
        }
    }

    /// Whether it waits for answers.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Whether the previous version is served.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        matches!(self.state, State::Quarantined(_))
    }

    /// Whether the previous version is served by decision of other namespaces than the object's:
    /// whom the object reaches must then be watched.
    #[must_use]
    pub fn is_by_others(&self) -> bool {
        matches!(self.state, State::Quarantined(Some(_)))
    }

    /// The accounts that decided, if they are of other namespaces than the object's.
    #[must_use]
    pub fn others(&self) -> Option<&BTreeSet<NamespacedName>> {
        match &self.state {
            State::Quarantined(others) => others.as_ref(),
            State::Open(_) | State::Kept | State::Released => None,
        }
    }

    /// Decides by the answers that are known now.
    pub fn step(&mut self, subject: &Subject, ballot: &Ballot<'_>, now: Duration) -> Verdict {
        match &self.state {
            State::Open(since) => {
                let is_late = now.saturating_sub(*since) >= MAX_WAIT;
                let has_all = ballot.is_complete && !ballot.votes.is_pending();
                if !is_late && !has_all {
                    return Verdict::Nothing;
                }
                self.decide(subject, ballot)
            }
            State::Quarantined(Some(others)) => {
                let mut reached = ballot.votes.accounts().keys();
                if reached.all(|account| others.contains(account)) {
                    return Verdict::Nothing;
                }
                // It was made without them.
                self.state = State::Released;
                Verdict::Release
            }
            State::Kept | State::Quarantined(None) | State::Released => Verdict::Nothing,
        }
    }

    /// Decides at the end of the time for answers.
    fn decide(&mut self, subject: &Subject, ballot: &Ballot<'_>) -> Verdict {
        if let Some(grounds) = own_grounds(subject, ballot.votes) {
            self.state = State::Quarantined(None);
            return Verdict::Quarantine(grounds);
        }

        if let Some(grounds) = other_grounds(subject, ballot) {
            let accounts = ballot.votes.accounts().keys().cloned().collect();
            self.state = State::Quarantined(Some(accounts));
            return Verdict::Quarantine(grounds);
        }

        self.state = State::Kept;
        Verdict::Keep
    }
}

/// Whether most workloads of the object's own namespace that it reaches reject it, and more reject
/// it than accounts of other namespaces accept it.
fn own_grounds(subject: &Subject, votes: &Votes) -> Option<Grounds> {
    let namespace = &subject.object.name.namespace;
    let AccountVotes {
        reached, rejected, ..
    } = votes.of_namespace(namespace);
    let accepting = votes
        .accounts()
        .iter()
        .filter(|(account, votes)| account.namespace != *namespace && votes.accepted > 0)
        .count();

    let is_majority = rejected >= MIN_REJECTING.min(reached) && 2 * rejected > reached;
    let grounds = Grounds::OwnNamespace {
        rejecting: rejected,
        reached,
    };
    (is_majority && rejected > accepting).then_some(grounds)
}

/// Whether most accounts that the object reaches reject it, and most namespaces, at least two, or
/// every proxy without exception.
fn other_grounds(subject: &Subject, ballot: &Ballot<'_>) -> Option<Grounds> {
    if !ballot.is_complete || is_guarded(subject) {
        return None;
    }

    let votes = ballot.votes;
    let mut namespaces: BTreeMap<&Namespace, (usize, usize)> = BTreeMap::new();
    for (account, votes) in votes.accounts() {
        let (rejecting, reached) = namespaces.entry(&account.namespace).or_default();
        *rejecting += usize::from(votes.rejects());
        *reached += 1;
    }

    // Streams without an identity are reached, and agree to nothing.
    let strangers = votes.strangers();
    let rejecting: usize = namespaces.values().map(|(rejecting, _)| rejecting).sum();
    let reached = votes.accounts().len() + strangers;
    let rejecting_namespaces = namespaces
        .values()
        .filter(|(rejecting, reached)| 2 * rejecting > *reached)
        .count();
    let reached_namespaces = namespaces.len() + usize::from(strangers > 0);

    let is_majority = 2 * rejecting > reached;
    let is_of_several = rejecting_namespaces >= 2 && 2 * rejecting_namespaces > reached_namespaces;
    let is_unanimous = strangers == 0
        && votes
            .accounts()
            .values()
            .all(|votes| votes.rejected == votes.reached);

    let grounds = Grounds::OtherNamespaces { rejecting, reached };
    (is_majority && (is_of_several || is_unanimous)).then_some(grounds)
}

/// Whether only proxies of the root namespace may take an object away: it may be access control of
/// the whole mesh.
fn is_guarded(subject: &Subject) -> bool {
    let ObjectRef { kind, name } = &subject.object;
    let writes_for_envoy = matches!(
        kind,
        Kind::EnvoyFilter | Kind::WasmPlugin | Kind::TrafficExtension
    );
    writes_for_envoy && name.namespace == subject.root
}

impl fmt::Display for Grounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnNamespace { rejecting, reached } => write!(
                f,
                "rejected by {rejecting} of {reached} workloads of its namespace"
            ),
            Self::OtherNamespaces { rejecting, reached } => write!(
                f,
                "rejected by {rejecting} of {reached} service accounts that it reaches"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
