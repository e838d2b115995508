//! The state of one stream: events in, effects out, no I/O and no clock.

mod aliases;
mod blame;
mod compose;
pub(crate) mod diff;
pub(crate) mod discovery_request;
pub(crate) mod encoding_cache;
mod history;
pub(crate) mod initial_resource_versions;
pub(crate) mod mailbox;
mod name_sets;
mod order;
pub(crate) mod payload;
pub(crate) mod push_ring;
mod shared_set;
pub(crate) mod subscription;
mod virtual_hosts;
pub(crate) mod watch;
pub(crate) mod withheld;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::session::compose::{RemovalPolicy, ResponseRules};
use crate::session::diff::{Base, Versions};
use crate::session::discovery_request::Request;
use crate::session::encoding_cache::EncodingCache;
use crate::session::initial_resource_versions::InitialVersions;
use crate::session::mailbox::Update;
use crate::session::order::{ORDER_WAIT, Order};
use crate::session::payload::Payload;
use crate::session::push_ring::{PushRecord, PushRing, Reason};
use crate::session::watch::{SentResponse, Watch};
use navarch_api::names::ResourceName;
use navarch_push::engine::Interest;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::resources::Resources;

pub use discovery_request::{Protocol, Rejection, check_first_request};

/// Maximum number of names that one stream may subscribe to, of all types.
pub(crate) const MAX_WATCHED: usize = 200_000;
/// Maximum number of unknown types that one stream may request.
const MAX_UNSERVED: usize = 64;

/// An input of the state machine.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request of the client.
    Request(Request),
    /// A new collection from the push thread.
    Update(ResourceType, Update),
}

/// An output of the state machine, for the stream's task.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Send the subscription of a type to the push thread.
    Subscribe(ResourceType, Interest),
    /// End the subscription of a type at the push thread.
    Unsubscribe(ResourceType),
    /// A response was rejected.
    Rejected(ResourceType, Rejection),
    /// A request had an outdated nonce.
    Stale(ResourceType),
    /// The client exceeds a limit: end the stream.
    LimitExceeded(&'static str),
}

/// One response to send.
#[derive(Debug)]
pub(crate) struct Response {
    /// The type, `None` for an unknown one.
    pub(crate) resource_type: Option<ResourceType>,
    pub(crate) type_url: String,
    /// The version of the collection.
    pub(crate) version: Arc<str>,
    /// The nonce that the client returns.
    pub(crate) nonce: Arc<str>,
    /// Removed names (delta only).
    pub(crate) removed: Vec<ResourceName>,
    /// The `resources` field, encoded.
    pub(crate) payload: Payload,
    /// The number of resources.
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

/// The state of a stream.
#[derive(Debug)]
pub(crate) struct Session {
    /// The protocol of the client.
    protocol: Protocol,
    /// Limits of the stream.
    pub(crate) bounds: Bounds,
    /// The parts of the next nonce and version.
    marks: Marks,
    /// By type; no entry for types that were never requested. Boxed, as the first node of the map
    /// has room for eleven.
    pub(crate) watches: BTreeMap<ResourceType, Box<Watch>>,
    /// Number of subscriptions that the push thread has not answered. Updates before that are for
    /// an earlier subscription.
    unanswered: BTreeMap<ResourceType, u32>,
    /// Types that wait for others.
    pub(crate) order: Order,
    /// Types with requested names (state of the world).
    pub(crate) named: BTreeSet<ResourceType>,
    /// Unknown types that were requested.
    unserved: BTreeSet<String>,
    /// Unknown types that are to be answered.
    to_answer: VecDeque<String>,
    /// The newest known snapshot.
    revision: u64,
    /// The time of the last call of [`Session::next`].
    looked_at: Duration,
    /// History of responses.
    pub(super) pushes: PushRing,
}

/// Limits of one stream, and how its subscriptions are read and answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Names that it may subscribe to.
    pub(crate) names: usize,
    /// Responses in its history.
    pub(crate) history: usize,
    /// Whether clusters of services that the client has, from an earlier stream or from this one, count
    /// as requested by name, beside the wildcard: those that are not sent without a request would be
    /// removed.
    pub(crate) keeps_clusters: bool,
    /// Whether responses have the versions of resources.
    pub(crate) versions: Versions,
    /// The first pause after which rejected resources are sent again.
    pub(crate) retry_pause: Duration,
}

/// The parts of versions and nonces. A client sends a nonce back on the stream that it came with, so
/// it has no part of the version: every response, and every answer, would have it twice.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// The server's start, which distinguishes versions of two processes.
    pub(crate) started: Arc<str>,
    /// The stream's number within the process.
    pub(crate) stream: u64,
    /// Responses sent so far.
    pub(crate) count: u64,
}

impl Marks {
    /// The version and nonce of the next response.
    pub(crate) fn next(&mut self, revision: u64, at: Duration) -> SentResponse {
        self.count += 1;
        let version: Arc<str> = format!("{}/{revision}", self.started).into();
        let nonce = format!("{}.{}", self.stream, self.count).into();
        SentResponse { nonce, version, at }
    }
}

impl Session {
    /// A stream without subscriptions.
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
            looked_at: Duration::ZERO,
            pushes: PushRing::new(bounds.history),
        }
    }

    /// Applies an event.
    pub(crate) fn step(&mut self, event: Event, cache: &EncodingCache) -> Vec<Effect> {
        let mut effects = Vec::new();

        match event {
            Event::Request(Request::State(request)) => {
                self.on_state(request, cache, &mut effects);
                self.bound(&mut effects);
            }
            Event::Request(Request::Delta(request)) => {
                self.on_delta(request, cache, &mut effects);
                self.bound(&mut effects);
            }
            Event::Request(Request::Unserved { url }) => {
                if self.unserved.len() >= MAX_UNSERVED {
                    effects.push(Effect::LimitExceeded(
                        "too many unsupported resource types on one stream",
                    ));
                } else if self.unserved.insert(url.clone()) {
                    self.to_answer.push_back(url);
                }
            }
            // These are not for the session; the stream has handled them.
            Event::Request(Request::Health(_) | Request::Question { .. }) => {}
            Event::Update(resource_type, update) => {
                self.on_update(resource_type, update);
                if resource_type == ResourceType::Cluster && self.bounds.keeps_clusters {
                    self.keep_clusters(cache, &mut effects);
                    self.bound(&mut effects);
                }
            }
        }

        effects
    }

    /// Rejects a client that subscribes to too many names.
    fn bound(&self, effects: &mut Vec<Effect>) {
        let names: usize = self
            .watches
            .values()
            .map(|watch| watch.interest.names.len())
            .sum();
        if names > self.bounds.names {
            // Before anything is sent to the push thread.
            effects.insert(
                0,
                Effect::LimitExceeded("too many resource names on one stream"),
            );
        }
    }

    /// Records the answer to the response with this nonce. Returns its type unless it was answered
    /// before.
    pub(crate) fn answered(
        &mut self,
        nonce: &str,
        is_taken: bool,
        now: Duration,
    ) -> Option<ResourceType> {
        self.pushes.answered(nonce, is_taken, now);
        self.watches
            .values()
            .find(|watch| watch.awaits(nonce))
            .map(|watch| watch.resource_type)
    }

    /// The last rejection of a response of a type, unless the client has acknowledged all since.
    pub(crate) fn rejection(&self, resource_type: ResourceType) -> Option<Rejection> {
        self.watches.get(&resource_type)?.history.rejected.clone()
    }

    /// The types of new collections that count as rejected, since the client has rejected some of
    /// their resources before. Each is returned once.
    pub(crate) fn take_rejected_again(&mut self) -> BTreeSet<ResourceType> {
        let watches = self.watches.iter_mut();
        watches
            .filter_map(|(resource_type, watch)| {
                watch.take_rejected_again().then_some(*resource_type)
            })
            .collect()
    }

    /// The number of names of all types that are held since it is unknown whether the client has these
    /// resources.
    pub(crate) fn uncertain_names(&self) -> usize {
        let watches = self.watches.values();
        watches.map(|watch| watch.uncertain_names()).sum()
    }

    /// The client's `initial_resource_versions` of a type, until the first response.
    pub(crate) fn initial_versions(
        &self,
        resource_type: ResourceType,
    ) -> Option<&Arc<InitialVersions>> {
        match &self.watches.get(&resource_type)?.held.base {
            Base::InitialVersions(initial_versions) => Some(initial_versions),
            Base::Nothing | Base::Sent(_) => None,
        }
    }

    /// Applies a new collection from the push thread.
    fn on_update(&mut self, resource_type: ResourceType, update: Update) {
        self.revision = self.revision.max(update.revision);
        let unanswered = self.unanswered.entry(resource_type).or_default();
        *unanswered = unanswered.saturating_sub(update.answers);
        if *unanswered > 0 {
            return;
        }
        if let Some(watch) = self.watches.get_mut(&resource_type)
            && !is_empty(resource_type, &watch.interest)
        {
            watch.receive(update.collection, update.revision, update.reason);
        }
    }

    /// Sends the client's current subscription of a type to the push thread.
    pub(crate) fn refresh(
        &mut self,
        resource_type: ResourceType,
        cache: &EncodingCache,
        effects: &mut Vec<Effect>,
    ) {
        if resource_type == ResourceType::VirtualHost && !self.follow_routes() {
            return;
        }

        let Some(watch) = self.watches.get_mut(&resource_type) else {
            return;
        };

        if is_empty(resource_type, &watch.interest) {
            let nothing = Arc::new(Collection::new(resource_type, Resources::default()));
            watch.receive(nothing, self.revision, Reason::default());
            effects.push(Effect::Unsubscribe(resource_type));
        } else {
            watch.interest.names = cache.names.intern(&watch.interest.names);
            *self.unanswered.entry(resource_type).or_default() += 1;
            effects.push(Effect::Subscribe(resource_type, watch.interest.clone()));
        }

        if resource_type == ResourceType::Route {
            self.refresh(ResourceType::VirtualHost, cache, effects);
        }
    }

    /// Sends everything again: existing resources, and removals of the others.
    pub(super) fn resend(&mut self) {
        for watch in self.watches.values_mut() {
            match watch.interest.wildcard {
                true => watch.subscribe_to_all(),
                false => watch.subscribe((*watch.interest.names).clone()),
            }
        }
    }

    /// The version and nonce of a response that is not to a subscription.
    pub(crate) fn mark(&mut self, now: Duration) -> SentResponse {
        self.marks.next(self.revision, now)
    }

    /// The next response, if any may be sent now. Call it only when the stream can send: a later
    /// call returns newer resources.
    pub(crate) fn next(&mut self, now: Duration, cache: &EncodingCache) -> Option<Response> {
        self.looked_at = now;
        if let Some(type_url) = self.to_answer.pop_front() {
            let SentResponse { nonce, version, .. } = self.marks.next(self.revision, now);
            let removed = Vec::new();
            let payload = Payload::default();
            return Some(Response {
                resource_type: None,
                type_url,
                version,
                nonce,
                removed,
                payload,
                count: 0,
            });
        }

        loop {
            let mut has_moved = false;
            for resource_type in ResourceType::ALL {
                match self.next_output(resource_type, now, cache) {
                    WatchOutput::Idle => {}
                    WatchOutput::CaughtUp => has_moved = true,
                    WatchOutput::Response(response) => return Some(response),
                }
            }
            // A type that caught up without a response may unblock an earlier type.
            if !has_moved {
                self.release();
                return None;
            }
        }
    }

    /// The next step of one type when the stream can send.
    fn next_output(
        &mut self,
        resource_type: ResourceType,
        now: Duration,
        cache: &EncodingCache,
    ) -> WatchOutput {
        if self.is_unanswered(resource_type)
            || !self
                .watches
                .get(&resource_type)
                .is_some_and(|watch| watch.is_free(now))
        {
            return WatchOutput::Idle;
        }

        let pause = self.bounds.retry_pause;
        if let Some(watch) = self.watches.get_mut(&resource_type) {
            watch.retry_withheld(now, pause);
        }
        let removals = self.removals(resource_type, now);
        let has = |what: fn(&Watch) -> bool| {
            self.watches
                .get(&resource_type)
                .is_some_and(|watch| what(watch))
        };
        let takes_away = removals == RemovalPolicy::Allowed
            && has(|watch| watch.removals_pending_since().is_some());
        if !has(Watch::is_unsent) && !takes_away || !self.may_send(resource_type, now) {
            return WatchOutput::Idle;
        }

        let Some(watch) = self.watches.get_mut(&resource_type) else {
            return WatchOutput::Idle;
        };

        let rules = ResponseRules {
            protocol: self.protocol,
            versions: self.bounds.versions,
            removals,
        };
        let Some(composed) = watch.compose(rules, cache) else {
            return WatchOutput::Idle;
        };

        let response = composed
            .worth_sending
            .then(|| self.marks.next(watch.revision(), now));
        watch.record_sent(&composed, response.clone(), now);
        let reason = watch.take_reason();
        if resource_type == ResourceType::Cluster {
            self.clusters_removed(&composed.changes);
        }
        if resource_type == ResourceType::Endpoint {
            self.endpoints_sent();
        }
        if matches!(
            resource_type,
            ResourceType::Address | ResourceType::Workload
        ) {
            self.workloads_sent();
        }

        let Some(SentResponse { nonce, version, .. }) = response else {
            return WatchOutput::CaughtUp;
        };

        if resource_type == ResourceType::Route {
            self.routes_sent();
        }

        if resource_type == ResourceType::Cluster {
            self.clusters_sent(&composed.changes.warming);
        }

        if resource_type == ResourceType::Authorization {
            let policies = &composed.changes.resources;
            self.policies_sent(policies.iter().map(|policy| policy.name.clone()));
        }

        let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.pushes.sent(PushRecord {
            resource_type,
            number: self.marks.count,
            reason,
            at: now,
            count: short(composed.count),
            removed: short(composed.removed.len()),
            bytes: short(composed.payload.plain().len()),
            answer: None,
        });

        WatchOutput::Response(Response {
            resource_type: Some(resource_type),
            type_url: resource_type.type_url().to_owned(),
            version,
            nonce,
            removed: composed.removed,
            payload: composed.payload,
            count: composed.count,
        })
    }

    /// The time after that of the last [`Session::next`] at which something may be sent without a
    /// further event. It may be over: what becomes due while a stream looks is found by its next look.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let waits = self.watches.values().flat_map(|watch| {
            let free = watch
                .free_at()
                .filter(|_| watch.is_unsent() || watch.removals_pending_since().is_some());
            [
                free,
                watch
                    .removals_pending_since()
                    .map(|since| since + ORDER_WAIT),
                watch.retry_at(),
            ]
        });
        waits
            .chain([self.held_until()])
            .flatten()
            .filter(|at| *at > self.looked_at)
            .min()
    }

    /// Whether everything is sent, except what a rejection blocks.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.watches
            .keys()
            .all(|resource_type| !self.is_unsent(*resource_type))
    }

    /// Whether no response is due, now or later, until the next event.
    pub(crate) fn is_at_rest(&self) -> bool {
        let mut watches = self.watches.iter();
        let is_busy = watches.any(|(resource_type, watch)| {
            self.is_unsent(*resource_type)
                || watch.removals_pending_since().is_some()
                || watch.is_pausing()
        });
        self.to_answer.is_empty() && self.held_until().is_none() && !is_busy
    }

    /// Whether the collection of a type is for an earlier subscription.
    fn is_unanswered(&self, resource_type: ResourceType) -> bool {
        self.unanswered
            .get(&resource_type)
            .is_some_and(|count| *count > 0)
    }

    /// Whether a type has unsent changes.
    pub(crate) fn is_unsent(&self, resource_type: ResourceType) -> bool {
        self.watches
            .get(&resource_type)
            .is_some_and(|watch| watch.is_unsent() || self.is_unanswered(resource_type))
    }

    /// The first snapshot with unsent changes.
    pub(super) fn unsent_since(&self) -> Option<u64> {
        self.watches
            .values()
            .filter_map(|watch| watch.unsent_since())
            .min()
    }

    /// Whether everything of a type is sent and acknowledged.
    pub(crate) fn is_acknowledged(&self, resource_type: ResourceType) -> bool {
        self.watches
            .get(&resource_type)
            .is_none_or(|watch| watch.is_acknowledged() && !self.is_unanswered(resource_type))
    }
}

/// Whether a subscription is empty. Clients that subscribe by address get the resources of their
/// node without asking.
fn is_empty(resource_type: ResourceType, interest: &Interest) -> bool {
    !interest.wildcard && interest.names.is_empty() && !resource_type.is_by_address()
}

#[cfg(test)]
mod tests;
