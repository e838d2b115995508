//! The judgement about a rejected object: a pure state machine whose inputs are the answers of
//! proxies and the time.
//!
//! ```text
//! a rejection ─▶ Open ── all have answered, or 10 s are over ─▶ Quarantined ── an operator, or it reaches others ─▶ Released
//!                 └──────────── too few reject ─▶ Kept ── another rejection ─▶ Open
//! ```
//!
//! A proxy can lie. So a rejection by the object's own namespace needs a majority there; one by
//! other namespaces counts only if every proxy that the object reaches rejects it, and each has an
//! identity. Identities of other namespaces therefore never take an object away from a proxy that
//! does not reject it itself, however many they are.

use std::collections::BTreeSet;
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
    /// Whether a previous version would be served. Without one, nothing shows whom the object would
    /// reach later.
    pub has_previous: bool,
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
    /// Every service account that it reaches rejects it, with all of its workloads.
    OtherNamespaces {
        /// Their number.
        accounts: usize,
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
                let has_strangers = ballot.votes.strangers() > 0;
                if !has_strangers && reached.all(|account| others.contains(account)) {
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

    // Streams without an identity may be further workloads of the namespace, so one workload does
    // not decide beside them. They do not count against the others: anybody can open such streams.
    let needed = if votes.strangers() > 0 {
        MIN_REJECTING
    } else {
        MIN_REJECTING.min(reached)
    };
    let is_majority = rejected >= needed && 2 * rejected > reached;

    let grounds = Grounds::OwnNamespace {
        rejecting: rejected,
        reached,
    };
    (is_majority && rejected > accepting).then_some(grounds)
}

/// Whether every proxy that the object reaches rejects it, and each has an identity. A new object is
/// never taken away so: the proxies that it is for may only come later.
fn other_grounds(subject: &Subject, ballot: &Ballot<'_>) -> Option<Grounds> {
    if !ballot.is_complete || !ballot.has_previous || is_guarded(subject) {
        return None;
    }

    let accounts = ballot.votes.accounts();
    let is_unanimous = accounts
        .values()
        .all(|votes| votes.rejected == votes.reached);
    let is_decided = is_unanimous && !accounts.is_empty() && ballot.votes.strangers() == 0;

    let grounds = Grounds::OtherNamespaces {
        accounts: accounts.len(),
    };
    is_decided.then_some(grounds)
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
            Self::OtherNamespaces { accounts: 1 } => {
                f.write_str("rejected by the only service account that it reaches")
            }
            Self::OtherNamespaces { accounts } => {
                write!(
                    f,
                    "rejected by all {accounts} service accounts that it reaches"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
