//! What one stream watches of one type: what it shall have, what it was sent, what it said to that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::changes::{Base, Changes, Names};
use super::compose::Composed;
use super::push_ring::Reason;
use super::request::Rejection;
use navarch_api::names::ResourceName;
use navarch_push::engine::Interest;
use navarch_push::resource::{Collection, Resource, ResourceType};

/// How long a response may stay unanswered before newer ones of its type are sent on top of it. Envoy answers late while it
/// warms clusters; some clients never answer.
pub(super) const ACK_WAIT: Duration = Duration::from_secs(5);
/// Responses remembered as unanswered. One more is added per [`ACK_WAIT`] only; the oldest is then taken as accepted.
const MAX_IN_FLIGHT: usize = 4;

/// Names that a client has and shall lose, with the resources where they are known.
pub(super) type Leavers = BTreeMap<ResourceName, Option<Arc<Resource>>>;

/// One subscription of a stream.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) kind: ResourceType,
    /// What the client wants.
    pub(super) interest: Interest,
    /// Whether it came with something from an earlier stream.
    pub(super) has_brought: bool,
    /// What it shall have; `None` until the push thread has answered.
    pub(super) latest: Option<Arc<Collection>>,
    /// The snapshot that this comes from.
    revision: u64,
    /// What that which is not sent is sent for.
    reason: Reason,
    /// What it has.
    pub(super) held: Held,
    /// Since when some of that waits to be taken away.
    leaving_since: Option<Duration>,
    /// What it must be sent.
    pub(super) owed: Owed,
    /// What it has not answered, oldest first.
    in_flight: VecDeque<InFlight>,
    /// The client rejected the latest: nothing is sent until it changes.
    barred: bool,
    /// For people to read.
    pub(super) history: History,
}

/// What was said last, either way.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Nonce and version of the last response.
    pub(super) sent: Option<Told>,
    /// Nonce and version of the last accepted response.
    pub(super) acked: Option<Told>,
    /// Why the last answered response was rejected, if it was.
    pub(super) rejected: Option<Rejection>,
    /// What it would have had then.
    pub(super) refused: Option<Arc<Collection>>,
}

/// One response, by its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) nonce: Arc<str>,
    /// The version of the whole.
    pub(super) version: Arc<str>,
    /// When it was sent, counted from the stream's begin.
    pub(super) at: Duration,
}

/// What the client has.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// The bulk of it.
    pub(super) base: Base,
    /// What it has, or may have, beside or instead of what is in the base, and shall lose unless it is sent anew. With the
    /// resource where that is known.
    pub(super) leaving: Leavers,
    /// The snapshot that the base comes from.
    pub(super) revision: u64,
}

/// What must be sent though it may not have changed.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// The first answer, even if it is empty.
    pub(super) first: bool,
    /// Names that were asked for.
    pub(super) asked: BTreeSet<ResourceName>,
    /// Names that the client needs again.
    pub(super) forced: Vec<Names>,
}

/// A response that the client has not answered.
#[derive(Debug)]
struct InFlight {
    told: Told,
    /// What the client had before.
    before: Held,
    /// What was owed.
    owed: Owed,
}

impl Owed {
    /// Whether nothing is owed.
    fn is_nothing(&self) -> bool {
        !self.first && self.asked.is_empty() && self.forced.is_empty()
    }
}

impl Watch {
    /// A subscription that owes a first answer. `asked` are those of its names that the client does not have.
    pub(super) fn new(kind: ResourceType, interest: Interest, base: Base) -> Self {
        let asked = interest.names.iter().filter(|name| !base.contains(name)).cloned().collect();
        Self {
            kind,
            interest,
            has_brought: matches!(base, Base::Brought(_)),
            latest: None,
            revision: 0,
            reason: Reason::default(),
            held: Held { base, leaving: BTreeMap::new(), revision: 0 },
            leaving_since: None,
            owed: Owed { first: true, asked, forced: Vec::new() },
            in_flight: VecDeque::new(),
            barred: false,
            history: History::default(),
        }
    }

    /// Takes in what the client shall have from now on.
    pub(super) fn receive(&mut self, collection: Arc<Collection>, revision: u64, reason: Reason) {
        self.reason.add(reason);
        if self.latest.as_ref().is_none_or(|latest| !Arc::ptr_eq(latest, &collection)) {
            self.barred = false;
        }
        self.latest = Some(collection);
        self.revision = revision;
    }

    /// The client forgot everything it had: it gets all anew.
    pub(super) fn restart(&mut self) {
        self.held = Held::default();
        self.in_flight.clear();
        self.barred = false;
        self.owed.first = true;
    }

    /// The client asks for these names, whether or not it asked before.
    pub(super) fn ask(&mut self, names: impl IntoIterator<Item = ResourceName>) {
        let mut names = names.into_iter().peekable();
        if names.peek().is_some() {
            self.barred = false;
        }
        self.owed.asked.extend(names);
    }

    /// The client asks for everything, after it did not. What it was sent of that before, it has forgotten since, unless it
    /// watches it by name or got it late: each is told anew, there or gone.
    pub(super) fn ask_for_all(&mut self) {
        let base = std::mem::take(&mut self.held.base);
        self.held.leaving.extend(base.names().map(|name| (name.clone(), None)));
        self.owed.first = true;
        self.barred = false;
    }

    /// The client wants this name no longer, and forgets it without being told.
    pub(super) fn let_go(&mut self, name: &ResourceName) {
        self.owed.asked.remove(name);
        self.held.leaving.remove(name);
    }

    /// The client needs these again, if it watches them.
    pub(super) fn force(&mut self, names: &Names) {
        if self.interest.wildcard || names.iter().any(|name| self.interest.names.contains(name)) {
            self.owed.forced.push(names.clone());
        }
    }

    /// The nonce of the last response.
    pub(super) fn last_nonce(&self) -> Option<&str> {
        self.history.sent.as_ref().map(|told| &*told.nonce)
    }

    /// The client took the response with this nonce, and all before it. False if no such response is unanswered.
    pub(super) fn acknowledge(&mut self, nonce: &str) -> bool {
        let Some(answered) = self.take_answered(nonce).pop() else { return false };
        self.history.acked = Some(answered.told);
        self.history.rejected = None;
        self.history.refused = None;
        true
    }

    /// The client did not take the response with this nonce. What it has is what it had before, but for a part that it may
    /// have taken; the next change is told from there. False if no such response is unanswered.
    pub(super) fn reject(&mut self, nonce: &str, rejection: Rejection) -> bool {
        let Some(answered) = self.take_answered(nonce).pop() else { return false };
        let sent = std::mem::replace(&mut self.held, answered.before);
        self.held.leaving.extend(sent.leaving);
        if let Base::Sent(collection) = &sent.base {
            self.history.refused = Some(collection.clone());
            // Whether it took these, or what it had of them before, nobody knows: each is told anew, there or gone.
            let Changes { resources, removed, .. } = Changes::between(&self.held.base, collection, None);
            let touched = resources.iter().map(|resource| &resource.name).chain(removed.iter().map(|(name, _)| name));
            self.held.leaving.extend(touched.map(|name| (name.clone(), None)));
        }
        self.owed.asked.extend(answered.owed.asked);
        self.owed.forced.extend(answered.owed.forced);
        for later in &mut self.in_flight {
            later.before = self.held.clone();
        }
        self.history.rejected = Some(rejection);
        self.barred = true;
        true
    }

    /// Takes out what is answered by this nonce, and all before it.
    fn take_answered(&mut self, nonce: &str) -> Vec<InFlight> {
        let Some(at) = self.in_flight.iter().position(|sent| &*sent.told.nonce == nonce) else { return Vec::new() };
        let answered = self.in_flight.drain(..=at).collect();
        if self.in_flight.is_empty() {
            // Most proxies have answered everything most of the time.
            self.in_flight = VecDeque::new();
        }
        answered
    }

    /// Whether a response may go out now, as far as the client's answers count.
    pub(super) fn is_free(&self, now: Duration) -> bool {
        self.free_at().is_none_or(|at| at <= now)
    }

    /// When the last response counts as taken without an answer.
    pub(super) fn free_at(&self) -> Option<Duration> {
        self.in_flight.back().map(|sent| sent.told.at + ACK_WAIT)
    }

    /// Whether there may be something to send, removals that are put off aside.
    pub(super) fn is_unsent(&self) -> bool {
        let Some(latest) = &self.latest else { return false };
        !self.barred && (!self.held.base.is(latest) || !self.owed.is_nothing())
    }

    /// Since when something waits to be taken away.
    pub(super) fn leaving_since(&self) -> Option<Duration> {
        self.leaving_since.filter(|_| !self.barred)
    }

    /// Whether all is sent and answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty() && !self.is_unsent() && self.leaving_since().is_none()
    }

    /// The snapshot that the latest collection comes from.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// What the client has taken, as far as it said, and the snapshot that this comes from.
    pub(super) fn taken(&self) -> Option<(&Arc<Collection>, u64)> {
        let held = self.in_flight.front().map_or(&self.held, |sent| &sent.before);
        match &held.base {
            Base::Sent(collection) => Some((collection, held.revision)),
            Base::Nothing | Base::Brought(_) => None,
        }
    }

    /// What is sent now was sent for this.
    pub(super) fn take_reason(&mut self) -> Reason {
        std::mem::take(&mut self.reason)
    }

    /// What was sent last.
    pub(super) fn sent(&self) -> Option<&Arc<Collection>> {
        match &self.held.base {
            Base::Sent(collection) => Some(collection),
            Base::Nothing | Base::Brought(_) => None,
        }
    }

    /// Notes that what was composed is what the client has from now on: sent as `told`, or without a word where there was
    /// nothing to say.
    pub(super) fn settle(&mut self, composed: &Composed, told: Option<Told>, now: Duration) {
        let Some(latest) = self.latest.clone() else { return };
        let held = Held { base: Base::Sent(latest), leaving: composed.leaving.clone(), revision: self.revision };
        let before = std::mem::replace(&mut self.held, held);
        let owed = std::mem::take(&mut self.owed);
        self.leaving_since = match self.held.leaving.is_empty() {
            true => None,
            false => Some(self.leaving_since.unwrap_or(now)),
        };
        if let Some(told) = told {
            self.history.sent = Some(told.clone());
            if self.in_flight.len() >= MAX_IN_FLIGHT {
                self.in_flight.pop_front();
            }
            self.in_flight.reserve_exact(1);
            self.in_flight.push_back(InFlight { told, before, owed });
        }
    }
}
