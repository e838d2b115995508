//! The judgement about a rejected object: a pure state machine whose inputs are the answers of
//! proxies and the time.
//!
//! ```text
//! a rejection ─▶ Open ── all have answered, or 10 s are over ─▶ Quarantined ── an operator, or it reaches others ─▶ Released
//!                 │                                                 │ as many new workloads as rejected it
//!                 └──────────── too few reject ─▶ Kept ◀────────────┘ ── another rejection ─▶ Open
//! ```
//!
//! A proxy can lie. So a rejection by the object's own namespace needs a majority there, and is
//! judged again when that may no longer be one; a rejection by other namespaces counts only if
//! every proxy that the object reaches rejects it, each has an identity, and the version that is
//! served instead shows whom the object reaches later ([`keeps_reach`](super::keeps_reach)).
//! Identities of other namespaces therefore never take an object away from a proxy that does not
//! reject it itself, however many they are.

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
/// Minimum duration of a quarantine before it is judged again. It doubles each time, at most
/// [`MAX_DOUBLINGS`] times: an object that stays broken goes to its proxies again only rarely.
const MIN_QUARANTINE: Duration = Duration::from_secs(10);
const MAX_DOUBLINGS: u32 = 6;

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
    /// Whether a previous version would be served that reaches the same proxies: otherwise nothing
    /// shows whom the object would reach later.
    pub keeps_reach: bool,
    /// The connected workloads of the object's namespace, whether the object reaches them or not.
    pub connected: &'a BTreeSet<NamespacedName>,
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
    /// The object is in force again, and a rejection is judged anew.
    JudgeAgain,
}

/// The state of a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It waits for answers, since a time.
    Open(Duration),
    /// The object stays in force.
    Kept,
    /// Its previous version is served, by decision of its own namespace.
    ByOwn(Jury),
    /// Its previous version is served, by decision of others: the accounts that it reached then.
    ByOthers(BTreeSet<NamespacedName>),
    /// It is in force until it is edited, whoever rejects it.
    Released,
}

/// The workloads of the object's namespace when these decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jury {
    /// Number of workloads that rejected the object.
    pub rejecting: usize,
    /// The workloads that were connected, whether the object reached them or not.
    pub known: BTreeSet<NamespacedName>,
    /// When the quarantine began, as time since the same moment as that of the steps.
    pub since: Duration,
    /// Until when connecting workloads are counted as known: after a start of the control plane all
    /// connect again.
    pub known_until: Duration,
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

    /// Another replica has quarantined the object, by decision of its own namespace.
    pub fn follow_own(&mut self, jury: Jury) {
        self.state = State::ByOwn(jury);
    }

    /// Another replica has quarantined the object, by decision of these accounts.
    pub fn follow_others(&mut self, accounts: BTreeSet<NamespacedName>) {
        self.state = State::ByOthers(accounts);
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
        matches!(self.state, State::ByOwn(_) | State::ByOthers(_))
    }

    /// The workloads of the object's own namespace when these decided.
    #[must_use]
    pub fn jury(&self) -> Option<&Jury> {
        match &self.state {
            State::ByOwn(jury) => Some(jury),
            State::Open(_) | State::Kept | State::ByOthers(_) | State::Released => None,
        }
    }

    /// The accounts that decided, if they are of other namespaces than the object's.
    #[must_use]
    pub fn others(&self) -> Option<&BTreeSet<NamespacedName>> {
        match &self.state {
            State::ByOthers(accounts) => Some(accounts),
            State::Open(_) | State::Kept | State::ByOwn(_) | State::Released => None,
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
            State::ByOwn(jury) => {
                if !jury.is_outnumbered(ballot.connected, now, self.rejudged) {
                    return Verdict::Nothing;
                }

                // The newcomers were not asked.
                self.judge_again();
                Verdict::JudgeAgain
            }
            State::ByOthers(accounts) => {
                let mut reached = ballot.votes.accounts().keys();
                let has_strangers = ballot.votes.strangers() > 0;
                if !has_strangers && reached.all(|account| accounts.contains(account)) {
                    return Verdict::Nothing;
                }

                // It was made without them.
                self.state = State::Released;
                Verdict::Release
            }
            State::Kept | State::Released => Verdict::Nothing,
        }
    }

    /// Decides at the end of the time for answers.
    fn decide(&mut self, subject: &Subject, ballot: &Ballot<'_>, now: Duration) -> Verdict {
        if let Some(own) = own_majority(subject, ballot) {
            self.state = State::ByOwn(Jury {
                rejecting: own.rejected,
                known: ballot.connected.clone(),
                since: now,
                known_until: now,
            });
            return Verdict::Quarantine(Grounds::OwnNamespace {
                rejecting: own.rejected,
                reached: own.reached,
            });
        }

        if ballot.keeps_reach && others_agree(subject, ballot.votes, ballot.is_complete) {
            let accounts: BTreeSet<NamespacedName> =
                ballot.votes.accounts().keys().cloned().collect();
            let grounds = Grounds::OtherNamespaces {
                accounts: accounts.len(),
            };
            self.state = State::ByOthers(accounts);
            return Verdict::Quarantine(grounds);
        }

        self.state = State::Kept;
        Verdict::Keep
    }
}

impl Jury {
    /// Whether as many workloads of the namespace have connected since as had rejected the object,
    /// and the quarantine has lasted long enough to be judged again.
    fn is_outnumbered(
        &mut self,
        connected: &BTreeSet<NamespacedName>,
        now: Duration,
        rejudged: u32,
    ) -> bool {
        if now < self.known_until {
            self.known.extend(connected.iter().cloned());
            return false;
        }

        let lasts = MIN_QUARANTINE * 2_u32.pow(rejudged.min(MAX_DOUBLINGS));
        let newcomers = connected.difference(&self.known).count();
        newcomers >= self.rejecting.max(1) && now.saturating_sub(self.since) >= lasts
    }
}

/// The votes of the object's own namespace, if most of its workloads that the object reaches reject
/// it, and more than accounts of other namespaces accept it.
fn own_majority(subject: &Subject, ballot: &Ballot<'_>) -> Option<AccountVotes> {
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
#[must_use]
pub fn others_agree(subject: &Subject, votes: &Votes, is_complete: bool) -> bool {
    if !is_complete || is_guarded(subject) {
        return false;
    }

    let accounts = votes.accounts();
    let is_unanimous = accounts
        .values()
        .all(|votes| votes.rejected == votes.reached);
    is_unanimous && !accounts.is_empty() && votes.strangers() == 0
}

/// Whether only proxies of the object's own namespace may take it away. In the root namespace it may
/// be access control of the whole mesh; in any other, it reaches no proxies outside.
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
