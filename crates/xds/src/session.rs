//! The state of one stream: events in, effects out, no I/O and no clock.

mod aliases;
mod compose;
pub(crate) mod diff;
pub(crate) mod discovery_request;
pub(crate) mod encoding_cache;
pub(crate) mod initial_resource_versions;
mod interner;
pub(crate) mod mailbox;
mod order;
pub(crate) mod push_ring;
mod subscription;
mod virtual_hosts;
pub(crate) mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::session::compose::RemovalPolicy;
use crate::session::diff::{Base, Payload};
use crate::session::discovery_request::Request;
use crate::session::encoding_cache::EncodingCache;
use crate::session::initial_resource_versions::InitialVersions;
use crate::session::mailbox::Update;
use crate::session::order::{ORDER_WAIT, Order};
use crate::session::push_ring::{PushRecord, PushRing, Reason};
use crate::session::watch::{SentResponse, Watch};
use navarch_api::names::ResourceName;
use navarch_push::engine::Interest;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::resources::Resources;

pub use discovery_request::{Protocol, Rejection, would_be_taken};

/// Names that one stream may watch, of all types.
pub(crate) const MAX_WATCHED: usize = 200_000;
/// Types that are not served and that one stream may ask for.
const MAX_UNSERVED: usize = 64;

/// What happens to a stream.
#[derive(Debug)]
pub(crate) enum Event {
    /// The client said something.
    Request(Request),
    /// The push thread said what the client shall have of a type.
    Update(ResourceType, Update),
}

/// What a stream's task does upon an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Tell the push thread what the client wants.
    Subscribe(ResourceType, Interest),
    /// Tell the push thread that the client wants nothing of a type.
    Unsubscribe(ResourceType),
    /// A response was rejected.
    Rejected(ResourceType, Rejection),
    /// A request was about a response that is not the last.
    Stale(ResourceType),
    /// The client asks for more than any honest one: end the stream.
    Refuse(&'static str),
}

/// One response to send.
#[derive(Debug)]
pub(crate) struct Response {
    /// The type, `None` for one that is not served.
    pub(crate) kind: Option<ResourceType>,
    pub(crate) type_url: String,
    /// The version of the whole.
    pub(crate) version: Arc<str>,
    /// What the client quotes in its answer.
    pub(crate) nonce: Arc<str>,
    /// Names that no longer stand for anything (delta only).
    pub(crate) removed: Vec<ResourceName>,
    /// The `resources` field, encoded.
    pub(crate) payload: Payload,
    /// How many there are.
    pub(crate) count: usize,
}

/// The next step of a type when the stream can send.
#[derive(Debug)]
enum WatchOutput {
    /// Nothing to do.
    Idle,
    /// Caught up; no response is needed.
    CaughtUp,
    /// The response to send.
    Response(Response),
}

/// The state.
#[derive(Debug)]
pub(crate) struct Session {
    /// What the client speaks.
    protocol: Protocol,
    /// What it may hold.
    bounds: Bounds,
    /// What the next response is marked with.
    marks: Marks,
    /// By type; no entry for types that were never asked for. Boxed: the map has room for eleven from the first on.
    pub(crate) watches: BTreeMap<ResourceType, Box<Watch>>,
    /// Subscriptions that the push thread has yet to answer. What it sends before is for what the client wanted earlier.
    unanswered: BTreeMap<ResourceType, u32>,
    /// What types wait for.
    pub(crate) order: Order,
    /// Types of which names were asked for (state of the world).
    pub(crate) named: BTreeSet<ResourceType>,
    /// Types that are not served and were asked for.
    unserved: BTreeSet<String>,
    /// Those of them that are to be answered.
    to_answer: VecDeque<String>,
    /// The newest snapshot heard of.
    revision: u64,
    /// The last responses.
    pub(super) pushes: PushRing,
}

/// What one stream may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Names that it may watch.
    pub(crate) names: usize,
    /// Responses of it that are remembered.
    pub(crate) history: usize,
}

/// What versions and nonces are made of.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// The server's start: tells versions of two processes apart.
    pub(crate) started: Arc<str>,
    /// The stream's number within the process.
    pub(crate) stream: u64,
    /// Responses sent so far.
    pub(crate) count: u64,
}

impl Marks {
    /// Marks of the next response.
    fn next(&mut self, revision: u64, at: Duration) -> SentResponse {
        self.count += 1;
        let version: Arc<str> = format!("{}/{revision}", self.started).into();
        let nonce = format!("{version}-{}.{}", self.stream, self.count).into();
        SentResponse { nonce, version, at }
    }
}

impl Session {
    /// A stream that has asked for nothing yet.
    pub(crate) fn new(protocol: Protocol, marks: Marks, bounds: Bounds) -> Self {
        Self {
            protocol,
            bounds,
            marks,
            watches: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            order: Order::default(),
            named: BTreeSet::new(),
            unserved: BTreeSet::new(),
            to_answer: VecDeque::new(),
            revision: 0,
            pushes: PushRing::new(bounds.history),
        }
    }

    /// Takes an event in.
    pub(crate) fn step(&mut self, event: Event, frames: &EncodingCache) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Request(Request::State(request)) => {
                self.on_state(request, frames, &mut effects);
                self.bound(&mut effects);
            }
            Event::Request(Request::Delta(request)) => {
                self.on_delta(request, frames, &mut effects);
                self.bound(&mut effects);
            }
            Event::Request(Request::Unserved { url }) => {
                if self.unserved.len() >= MAX_UNSERVED {
                    effects.push(Effect::Refuse("too many types that are not served"));
                } else if self.unserved.insert(url.clone()) {
                    self.to_answer.push_back(url);
                }
            }
            // These are not for the session; the stream has handled them.
            Event::Request(Request::Health(_) | Request::Question { .. }) => {}
            Event::Update(kind, update) => self.on_update(kind, update),
        }
        effects
    }

    /// Refuses a client that has come to watch too much.
    fn bound(&self, effects: &mut Vec<Effect>) {
        let names: usize = self.watches.values().map(|watch| watch.interest.names.len()).sum();
        if names > self.bounds.names {
            // Before anything is asked of the push thread.
            effects.insert(0, Effect::Refuse("too many resource names on one stream"));
        }
    }

    /// The client answered the response with this nonce. Gives its type where it has not answered that before.
    pub(crate) fn answered(&mut self, nonce: &str, is_taken: bool, now: Duration) -> Option<ResourceType> {
        self.pushes.answered(nonce, is_taken, now);
        self.watches.values().find(|watch| watch.awaits(nonce)).map(|watch| watch.kind)
    }

    /// What the client brought of a type from an earlier stream and was not answered yet.
    pub(crate) fn initial_versions(&self, kind: ResourceType) -> Option<&Arc<InitialVersions>> {
        match &self.watches.get(&kind)?.held.base {
            Base::InitialVersions(initial_versions) => Some(initial_versions),
            Base::Nothing | Base::Sent(_) => None,
        }
    }

    /// The push thread said what the client shall have.
    fn on_update(&mut self, kind: ResourceType, update: Update) {
        self.revision = self.revision.max(update.revision);
        let unanswered = self.unanswered.entry(kind).or_default();
        *unanswered = unanswered.saturating_sub(update.answers);
        if *unanswered > 0 {
            return;
        }
        if let Some(watch) = self.watches.get_mut(&kind)
            && !is_empty(kind, &watch.interest)
        {
            watch.receive(update.collection, update.revision, update.reason);
        }
    }

    /// Sends the client's current subscription of a type to the push thread.
    pub(crate) fn refresh(&mut self, kind: ResourceType, frames: &EncodingCache, effects: &mut Vec<Effect>) {
        if kind == ResourceType::VirtualHost && !self.follow_routes() {
            return;
        }
        let Some(watch) = self.watches.get_mut(&kind) else { return };
        if is_empty(kind, &watch.interest) {
            let nothing = Arc::new(Collection::new(kind, Resources::default()));
            watch.receive(nothing, self.revision, Reason::default());
            effects.push(Effect::Unsubscribe(kind));
        } else {
            watch.interest.names = frames.names.intern(watch.interest.names.clone());
            *self.unanswered.entry(kind).or_default() += 1;
            effects.push(Effect::Subscribe(kind, watch.interest.clone()));
        }
        if kind == ResourceType::Route {
            self.refresh(ResourceType::VirtualHost, frames, effects);
        }
    }

    /// Has all that is watched sent once more: what is there anew, and what is not as gone.
    pub(super) fn resend(&mut self) {
        for watch in self.watches.values_mut() {
            match watch.interest.wildcard {
                true => watch.ask_for_all(),
                false => watch.ask((*watch.interest.names).clone()),
            }
        }
    }

    /// Marks of a response to something else than a subscription.
    pub(crate) fn mark(&mut self, now: Duration) -> SentResponse {
        self.marks.next(self.revision, now)
    }

    /// The next response, if any may be sent now. To be asked whenever there is room on the wire: what is asked later is
    /// newer.
    pub(crate) fn next(&mut self, now: Duration, frames: &EncodingCache) -> Option<Response> {
        if let Some(type_url) = self.to_answer.pop_front() {
            let SentResponse { nonce, version, .. } = self.marks.next(self.revision, now);
            let (removed, payload) = (Vec::new(), Payload::default());
            return Some(Response { kind: None, type_url, version, nonce, removed, payload, count: 0 });
        }
        loop {
            let mut has_moved = false;
            for kind in ResourceType::ALL {
                match self.turn_of(kind, now, frames) {
                    WatchOutput::Idle => {}
                    WatchOutput::CaughtUp => has_moved = true,
                    WatchOutput::Response(response) => return Some(response),
                }
            }
            // What came to rest without a word may be what an earlier type waited for.
            if !has_moved {
                self.release();
                return None;
            }
        }
    }

    /// What one type does when there is room on the wire.
    fn turn_of(&mut self, kind: ResourceType, now: Duration, frames: &EncodingCache) -> WatchOutput {
        if self.is_unanswered(kind) || !self.watches.get(&kind).is_some_and(|watch| watch.is_free(now)) {
            return WatchOutput::Idle;
        }
        let removals = self.removals(kind, now);
        let has = |what: fn(&Watch) -> bool| self.watches.get(&kind).is_some_and(|watch| what(watch));
        let takes_away = removals == RemovalPolicy::Allowed && has(|watch| watch.leaving_since().is_some());
        if !has(Watch::is_unsent) && !takes_away || !self.may_send(kind, now) {
            return WatchOutput::Idle;
        }
        let Some(watch) = self.watches.get_mut(&kind) else { return WatchOutput::Idle };
        let Some(composed) = watch.compose(self.protocol, frames, removals) else { return WatchOutput::Idle };
        let response = composed.worth_sending.then(|| self.marks.next(watch.revision(), now));
        watch.settle(&composed, response.clone(), now);
        let reason = watch.take_reason();
        if kind == ResourceType::Endpoint {
            self.endpoints_sent();
        }
        let Some(SentResponse { nonce, version, .. }) = response else { return WatchOutput::CaughtUp };
        if kind == ResourceType::Route {
            self.routes_sent();
        }
        if kind == ResourceType::Cluster {
            self.clusters_sent(&composed.changes.warming);
        }
        let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.pushes.sent(PushRecord {
            kind,
            number: self.marks.count,
            reason,
            at: now,
            count: short(composed.count),
            removed: short(composed.removed.len()),
            bytes: short(composed.payload.0.len()),
            answer: None,
        });
        WatchOutput::Response(Response {
            kind: Some(kind),
            type_url: kind.type_url().to_owned(),
            version,
            nonce,
            removed: composed.removed,
            payload: composed.payload,
            count: composed.count,
        })
    }

    /// When, after `now`, something may be sent though nothing happens before.
    pub(crate) fn wake_at(&self, now: Duration) -> Option<Duration> {
        let waits = self.watches.values().flat_map(|watch| {
            let free = watch.free_at().filter(|_| watch.is_unsent() || watch.leaving_since().is_some());
            [free, watch.leaving_since().map(|since| since + ORDER_WAIT)]
        });
        waits.chain([self.held_until()]).flatten().filter(|at| *at > now).min()
    }

    /// Whether there is nothing left to send but what a rejection bars.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.watches.keys().all(|kind| !self.is_unsent(*kind))
    }

    /// Whether there is nothing to send, now or later, until something happens.
    pub(crate) fn is_at_rest(&self) -> bool {
        let mut watches = self.watches.iter();
        let is_busy = watches.any(|(kind, watch)| self.is_unsent(*kind) || watch.leaving_since().is_some());
        self.to_answer.is_empty() && self.held_until().is_none() && !is_busy
    }

    /// Whether what is known of a type is for what the client wanted earlier.
    fn is_unanswered(&self, kind: ResourceType) -> bool {
        self.unanswered.get(&kind).is_some_and(|count| *count > 0)
    }

    /// Whether a type has changes that are not sent.
    pub(crate) fn is_unsent(&self, kind: ResourceType) -> bool {
        self.watches.get(&kind).is_some_and(|watch| watch.is_unsent() || self.is_unanswered(kind))
    }

    /// The first snapshot of whose changes something is not sent.
    pub(super) fn unsent_since(&self) -> Option<u64> {
        self.watches.values().filter_map(|watch| watch.unsent_since()).min()
    }

    /// Whether all of a type is sent and answered.
    pub(crate) fn is_quiet(&self, kind: ResourceType) -> bool {
        self.watches.get(&kind).is_none_or(|watch| watch.is_quiet() && !self.is_unanswered(kind))
    }
}

/// Whether nothing is wanted. Clients that ask by address get what is on their node without asking.
fn is_empty(kind: ResourceType, interest: &Interest) -> bool {
    !interest.wildcard && interest.names.is_empty() && !kind.is_by_address()
}

#[cfg(test)]
mod tests;
