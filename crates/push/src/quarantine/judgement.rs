//! The judgement about a rejected object: a pure state machine whose inputs are the answers of
//! proxies and the time.
//!
//! ```text
//! a rejection ─▶ Open ── all have answered, or 10 s are over ─▶ Quarantined ── an operator, or it reaches others ─▶ Released
//!                 │                                                 │ those who decided are no majority any more
//!                 └──────────── too few reject ─▶ Kept ◀────────────┘ ── another rejection ─▶ Open
//! ```
//!
//! A proxy can lie. So a rejection by the object's own namespace needs a majority there, and is
//! judged again when those who decided, as far as they are still connected, may no longer be one
//! ([`jury`](super::jury)); a rejection by other namespaces counts only if every proxy that the
//! object reaches rejects it, each has an identity, and the version that is served instead shows
//! whom the object reaches later ([`keeps_reach`](super::keeps_reach)). It is judged again when the
//! object reaches another workload of the accounts that decided, and ends when it reaches anyone
//! else. Identities of other namespaces therefore never take an object away from a proxy that does
//! not reject it itself, however many they are, except from one of their own account, and from that
//! for a limited time.

use std::fmt;
use std::time::Duration;

use super::jury::{Connected, Jury, MIN_REJECTING};
use super::turnout::Turnout;
use super::votes::{NamespaceVotes, Votes};
use navarch_api::names::Namespace;
use navarch_api::object::{Kind, ObjectRef};

pub use super::jury::Ballot;

/// How long the judgement waits for proxies that have not answered.
pub const MAX_WAIT: Duration = Duration::from_secs(10);
/// The object that is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Kind, namespace and name.
    pub object: ObjectRef,
    /// The root namespace of the mesh.
    pub root: Namespace,
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
        /// Accounts that reject it.
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
    /// The object is in force again, and a rejection is judged anew.
    JudgeAgain,
}

/// What a look at a quarantined object has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// What becomes of the quarantine.
    pub verdict: Verdict,
    /// Who of this process's clients has come and gone since the object was quarantined; `None` if
    /// the quarantine is over.
    pub turnout: Option<Turnout>,
}

/// The state of a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It waits for answers, since a time.
    Open(Duration),
    /// The object stays in force.
    Kept,
    /// Its previous version is served, by decision of these.
    Quarantined(Jury),
    /// It is in force until it is edited, whoever rejects it.
    Released,
}

/// The judgement about one version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    state: State,
    /// How often it was judged again.
    rejudged: u32,
}

impl Judgement {
    /// A judgement in a state.
    fn of(state: State) -> Self {
        Self { state, rejudged: 0 }
    }

    /// A proxy rejects the object; `now` is the time since any fixed moment.
    #[must_use]
    pub fn open(now: Duration) -> Self {
        Self::of(State::Open(now))
    }

    /// No proxy of this process rejects the object: it stays in force unless others decide
    /// otherwise.
    #[must_use]
    pub fn kept() -> Self {
        Self::of(State::Kept)
    }

    /// The object is in force until it is edited.
    #[must_use]
    pub fn released() -> Self {
        Self::of(State::Released)
    }

    /// Another replica, or this process before a restart, has quarantined the object, after it was
    /// judged again some times.
    pub fn follow(&mut self, jury: Jury, rejudged: u32) {
        self.state = State::Quarantined(jury);
        self.remember(rejudged);
    }

    /// Other replicas, or this process before a restart, have judged the object again some times.
    pub fn remember(&mut self, rejudged: u32) {
        self.rejudged = self.rejudged.max(rejudged);
    }

    /// The object is in force again, and another rejection is judged anew.
    pub fn judge_again(&mut self) {
        self.state = State::Kept;
        self.rejudged = self.rejudged.saturating_add(1);
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

    /// Whether the object stays in force until another proxy rejects it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.state == State::Kept
    }

    /// Whether the previous version is served: then it is watched who connects.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.jury().is_some()
    }

    /// How often the object was judged again.
    #[must_use]
    pub fn rejudged(&self) -> u32 {
        self.rejudged
    }

    /// Those who decided, if the previous version is served.
    #[must_use]
    pub fn jury(&self) -> Option<&Jury> {
        match &self.state {
            State::Quarantined(jury) => Some(jury),
            State::Open(_) | State::Kept | State::Released => None,
        }
    }

    /// Whether it matters now who is connected: a quarantine may end, or learns who is there.
    #[must_use]
    pub fn is_watching(&self, connected: &Connected, now: Duration) -> bool {
        self.jury().is_some_and(|jury| {
            jury.is_learning(now)
                || jury.others.is_some()
                || jury.may_end(now, self.rejudged) && jury.may_have_opponents(connected)
        })
    }

    /// Notes which of those who decided are connected to this process, when nothing else about a
    /// quarantined object is looked at.
    pub fn see(&mut self, connected: &Connected, now: Duration) {
        if let State::Quarantined(jury) = &mut self.state {
            jury.see(connected, now);
        }
    }

    /// Looks whether a quarantine is over.
    pub fn watch(&mut self, subject: &Subject, ballot: &Ballot<'_>, now: Duration) -> Watched {
        let over = |verdict| Watched {
            verdict,
            turnout: None,
        };
        let State::Quarantined(jury) = &mut self.state else {
            return over(Verdict::Nothing);
        };

        // It was made without them.
        if jury.reaches_further(ballot) {
            self.state = State::Released;
            return over(Verdict::Release);
        }

        let turnout = jury.turnout(ballot, &subject.object.name.namespace, now);
        let is_known = jury.is_known(ballot.is_complete, now);
        let may_end = jury.may_end(now, self.rejudged);
        if may_end && jury.is_outnumbered(&turnout, ballot.elsewhere, is_known, now) {
            self.judge_again();
            return over(Verdict::JudgeAgain);
        }

        Watched {
            verdict: Verdict::Nothing,
            turnout: Some(turnout),
        }
    }

    /// Decides by the answers that are known now.
    pub fn step(&mut self, subject: &Subject, ballot: &Ballot<'_>, now: Duration) -> Verdict {
        match &mut self.state {
            State::Open(since) => {
                let is_late = now.saturating_sub(*since) >= MAX_WAIT;
                let has_all = ballot.is_complete && !ballot.votes.is_pending();
                if !is_late && !has_all {
                    return Verdict::Nothing;
                }
                self.decide(subject, ballot, now)
            }
            State::Quarantined(_) => self.watch(subject, ballot, now).verdict,
            State::Kept | State::Released => Verdict::Nothing,
        }
    }

    /// Decides at the end of the time for answers.
    fn decide(&mut self, subject: &Subject, ballot: &Ballot<'_>, now: Duration) -> Verdict {
        let namespace = &subject.object.name.namespace;
        if let Some(own) = own_majority(subject, ballot) {
            self.state = State::Quarantined(Jury::of(ballot, namespace, None, now));
            return Verdict::Quarantine(Grounds::OwnNamespace {
                rejecting: own.rejected,
                reached: own.reached,
            });
        }

        if ballot.keeps_reach && others_agree(subject, ballot.votes, ballot.is_complete) {
            let accounts = ballot.votes.accounts().keys().cloned().collect();
            let jury = Jury::of(ballot, namespace, Some(accounts), now);
            self.state = State::Quarantined(jury);
            return Verdict::Quarantine(Grounds::OtherNamespaces {
                accounts: ballot.votes.accounts().len(),
            });
        }

        self.state = State::Kept;
        Verdict::Keep
    }
}

/// The votes of the object's own namespace, if most of its workloads that the object reaches reject
/// it, and more than accounts of other namespaces accept it.
fn own_majority(subject: &Subject, ballot: &Ballot<'_>) -> Option<NamespaceVotes> {
    let votes = ballot.votes;
    let namespace = &subject.object.name.namespace;
    let own = votes.of_namespace(namespace);
    let accepting = votes
        .accounts()
        .iter()
        .filter(|(account, votes)| account.namespace != *namespace && votes.accepted > 0)
        .count();

    // Streams without an identity, and those at replicas that have not reported, may be further
    // workloads of the namespace, so one workload does not decide beside them. They do not count
    // against the others: anybody can open such streams.
    let needed = if votes.strangers() > 0 || !ballot.is_complete {
        MIN_REJECTING
    } else {
        MIN_REJECTING.min(own.reached)
    };
    let is_majority = own.rejected >= needed && 2 * own.rejected > own.reached;

    (is_majority && own.rejected > accepting).then_some(own)
}

/// Whether every proxy that the object reaches rejects it, and each has an identity: then other
/// namespaces than the object's decide, if the version that is served instead reaches the same
/// proxies.
fn others_agree(subject: &Subject, votes: &Votes, is_complete: bool) -> bool {
    if !is_complete || is_guarded(subject) {
        return false;
    }

    let accounts = votes.accounts();
    let is_unanimous = accounts
        .values()
        .all(|votes| votes.rejected == votes.reached);
    is_unanimous && !accounts.is_empty() && votes.strangers() == 0
}

/// Whether only proxies of the object's own namespace may take it away. In the root namespace it
/// may be access control of the whole mesh; in any other, it reaches no proxies outside.
fn is_guarded(subject: &Subject) -> bool {
    matches!(
        subject.object.kind,
        Kind::EnvoyFilter | Kind::WasmPlugin | Kind::TrafficExtension
    )
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
