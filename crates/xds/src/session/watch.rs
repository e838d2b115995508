//! The subscription of one stream to one type: the wanted state, what was sent, and the client's
//! ACKs and NACKs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::session::compose::Composed;
use crate::session::diff::{Base, Diff, Names, find};
use crate::session::discovery_request::Rejection;
use crate::session::history::History;
use crate::session::name_sets::NameSets;
use crate::session::push_ring::Reason;
use crate::session::withheld::{Withheld, WithheldNames};
use navarch_api::names::ResourceName;
use navarch_push::engine::Interest;
use navarch_push::resource::{Collection, Resource, ResourceType};
use navarch_push::resources::Resources;

/// How long a response may stay unanswered before newer ones of its type are sent. Envoy answers
/// late while it warms clusters; some clients never answer.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of unanswered responses. One more is added per [`ACK_WAIT`] only; the oldest then
/// counts as accepted.
const MAX_IN_FLIGHT: usize = 4;

/// Names of the client's resources that must be removed, with the resource if it is known.
pub(crate) type PendingRemovals = BTreeMap<ResourceName, Option<Arc<Resource>>>;

/// One subscription of a stream.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) resource_type: ResourceType,
    /// The client's subscription.
    pub(crate) interest: Interest,
    /// Whether it began with `initial_resource_versions`.
    pub(crate) has_initial_versions: bool,
    /// The newest collection; `None` until the push thread has answered.
    pub(crate) latest: Option<Arc<Collection>>,
    /// The snapshot of the newest collection.
    revision: u64,
    /// The reasons of unsent changes.
    reason: Reason,
    pub(crate) held: ClientState,
    /// The collection that the client has last acknowledged without any doubt, but for resources that
    /// are withheld, and the snapshot of the last one without these.
    accepted: Option<(Arc<Collection>, u64)>,
    /// The last collection of which it has acknowledged all but what was withheld (delta only).
    rest: Option<AcknowledgedRest>,
    /// Resources of `held` that the client has rejected, and does not have (delta only).
    pub(crate) withheld: Withheld,
    /// Since when removals are pending.
    leaving_since: Option<Duration>,
    /// What must be sent.
    pub(crate) owed: Pending,
    /// Unanswered responses, oldest first.
    pub(super) in_flight: VecDeque<InFlight>,
    /// The client rejected the newest collection: it is not sent until it changes, or a pause is over
    /// (state of the world only).
    pub(super) barred: bool,
    /// Whether the newest collection counts as rejected without a NACK, since
    /// [`Self::take_rejected_again`].
    is_rejected_again: bool,
    /// State for debug pages.
    pub(crate) history: History,
}

/// What a client has acknowledged beside resources that it has rejected.
#[derive(Clone, Debug)]
pub struct AcknowledgedRest {
    /// The collection of its last response.
    pub collection: Arc<Collection>,
    /// The snapshot of the collection.
    pub revision: u64,
    /// The resources of the collection that it has rejected, or may have.
    pub without: WithheldNames,
}

/// Nonce and version of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentResponse {
    pub(crate) nonce: Arc<str>,
    /// The version of the collection.
    pub(crate) version: Arc<str>,
    /// When it was sent, since the start of the stream.
    pub(crate) at: Duration,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClientState {
    /// The collection that it is based on.
    pub(crate) base: Base,
    /// Resources that the client has, or may have, in addition to or instead of those in the base;
    /// they are removed unless they are sent again. With the resource if it is known.
    pub(crate) leaving: PendingRemovals,
    /// The snapshot of the base.
    pub(crate) revision: u64,
}

/// What must be sent even if it is unchanged.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The first response, even if it is empty.
    pub(crate) first: bool,
    /// Newly subscribed names.
    pub(crate) requested: BTreeSet<ResourceName>,
    /// Names that the client needs again.
    pub(crate) forced: NameSets,
    /// Whether resources or removals of a rejected response, which are among those that leave, are
    /// to be sent again.
    pub(super) is_in_doubt: bool,
}

/// A response that the client has neither acknowledged nor rejected.
#[derive(Debug)]
pub(super) struct InFlight {
    response: SentResponse,
    /// The collection that the client has once it has accepted the response.
    pub(super) collection: Arc<Collection>,
    /// The snapshot of the collection.
    revision: u64,
    /// Whether the client then has all of the collection: no part of it was rejected so far.
    pub(super) is_whole: bool,
    pub(super) before: ClientState,
    /// The pending state before.
    pub(super) owed: Pending,
}

impl Pending {
    /// Whether no resource is pending.
    fn is_empty(&self) -> bool {
        !self.first && !self.is_in_doubt && self.requested.is_empty() && self.forced.is_empty()
    }
}

impl Watch {
    /// A subscription that waits for its first response. `requested` are those of its names that
    /// the client does not have.
    pub(crate) fn new(resource_type: ResourceType, interest: Interest, base: Base) -> Self {
        let requested = interest
            .names
            .iter()
            .filter(|name| !base.contains(name))
            .cloned()
            .collect();

        Self {
            resource_type,
            interest,
            has_initial_versions: matches!(base, Base::InitialVersions(_)),
            latest: None,
            revision: 0,
            reason: Reason::default(),
            held: ClientState {
                base,
                leaving: BTreeMap::new(),
                revision: 0,
            },
            accepted: None,
            rest: None,
            withheld: Withheld::default(),
            leaving_since: None,
            owed: Pending {
                first: true,
                requested,
                forced: NameSets::default(),
                is_in_doubt: false,
            },
            in_flight: VecDeque::new(),
            barred: false,
            is_rejected_again: false,
            history: History::default(),
        }
    }

    /// Applies a new collection.
    pub(crate) fn receive(&mut self, collection: Arc<Collection>, revision: u64, reason: Reason) {
        self.reason.add(reason);
        if self
            .latest
            .as_ref()
            .is_none_or(|latest| !Arc::ptr_eq(latest, &collection))
        {
            self.barred = false;
        }
        self.latest = Some(collection);
        self.revision = revision;
    }

    /// Resets the state of a client that has lost its own: everything is sent again.
    pub(crate) fn restart(&mut self) {
        self.held = ClientState::default();
        self.accepted = None;
        self.in_flight.clear();
        self.barred = false;
        self.owed.first = true;
    }

    /// Subscribes to these names, whether or not the client was subscribed before.
    pub(crate) fn subscribe(&mut self, mut names: BTreeSet<ResourceName>) {
        if !names.is_empty() {
            self.barred = false;
        }
        self.owed.requested.append(&mut names);
    }

    /// Subscribes to the wildcard again. The client has dropped earlier resources meanwhile, except
    /// those that it watches by name or that arrived late: each is sent again, as a resource or a
    /// removal.
    pub(crate) fn subscribe_to_all(&mut self) {
        let base = std::mem::take(&mut self.held.base);
        self.held
            .leaving
            .extend(base.names().map(|name| (name, None)));
        self.withheld = Withheld::default();
        self.owed.first = true;
        self.barred = false;
    }

    /// Removes these names from the state: the client unsubscribed from them, and drops them
    /// without a removal.
    pub(crate) fn remove_names(&mut self, names: &BTreeSet<ResourceName>) {
        if !self.owed.requested.is_disjoint(names) {
            self.owed.requested = &self.owed.requested - names;
        }
        if !self.held.leaving.is_empty() {
            self.held.leaving.retain(|name, _| !names.contains(name));
        }
        if !self.withheld.is_empty() {
            names
                .iter()
                .for_each(|name| self.withheld.forget_changed(name));
        }
    }

    /// Sends these names again, if the client is subscribed to them and has not rejected them.
    pub(crate) fn force(&mut self, names: &Names) {
        let is_subscribed =
            self.interest.wildcard || names.iter().any(|name| self.interest.names.contains(name));
        if !is_subscribed {
            return;
        }

        let rejected = self.withheld.rejected();
        if rejected.is_disjoint(names) {
            self.owed.forced.add(names);
        } else {
            self.owed.forced.add(&Arc::new(&**names - rejected));
        }
    }

    /// Whether the response with this nonce is not answered yet.
    pub(crate) fn awaits(&self, nonce: &str) -> bool {
        self.in_flight
            .iter()
            .any(|sent| &*sent.response.nonce == nonce)
    }

    /// The nonce of the last response.
    pub(crate) fn last_nonce(&self) -> Option<&str> {
        self.history.sent.as_ref().map(|response| &*response.nonce)
    }

    /// Records the ACK of the response with this nonce, and of all before it. Returns false if no
    /// such response is unanswered.
    pub(crate) fn acknowledge(&mut self, nonce: &str) -> bool {
        let Some(answered) = self.take_answered(nonce) else {
            return false;
        };

        self.accept(&answered);
        self.history.acked = Some(answered.response);
        self.withheld.end_retries();
        self.try_suspects();
        self.settle();
        true
    }

    /// Records the NACK of the response of the state of the world with this nonce. The client's
    /// state is the one before, except for a part that it may have applied; the next diff starts
    /// from there. Returns false if no such response is unanswered.
    pub(crate) fn reject_state(&mut self, nonce: &str, rejection: Rejection) -> bool {
        let Some(answered) = self.take_answered(nonce) else {
            return false;
        };

        let sent = std::mem::replace(&mut self.held, answered.before);
        self.held.leaving.extend(sent.leaving);

        if let Base::Sent(collection) = &sent.base {
            // It is unknown whether the client accepted these: each is sent again, as a resource or
            // a removal.
            let Diff {
                resources, removed, ..
            } = Diff::between(&self.held.base, collection, None);
            let touched = resources
                .iter()
                .map(|resource| &resource.name)
                .chain(removed.iter().map(|(name, _)| name));
            self.held
                .leaving
                .extend(touched.map(|name| (name.clone(), None)));
        }

        self.owed.requested.extend(answered.owed.requested);
        self.owed.forced.extend(answered.owed.forced);
        for later in &mut self.in_flight {
            later.before = self.held.clone();
            later.is_whole = false;
        }

        // What has changed since the rejected response was sent is not held back.
        let latest = self.latest.as_ref();
        self.barred = latest.is_none_or(|latest| Arc::ptr_eq(latest, &answered.collection));
        self.begin_pause(&answered.collection);
        self.history
            .reject(nonce, rejection, Some(answered.collection));
        true
    }

    /// Removes the response with this nonce, and accepts all before it.
    pub(super) fn take_answered(&mut self, nonce: &str) -> Option<InFlight> {
        let at = self
            .in_flight
            .iter()
            .position(|sent| &*sent.response.nonce == nonce)?;

        let mut answered: Vec<InFlight> = self.in_flight.drain(..=at).collect();
        if self.in_flight.is_empty() {
            // Most proxies have usually answered everything.
            self.in_flight = VecDeque::new();
        }

        let last = answered.pop();
        for earlier in &answered {
            self.accept(earlier);
        }
        last
    }

    /// Records that the client has accepted a response.
    fn accept(&mut self, answered: &InFlight) {
        if answered.is_whole {
            self.accepted = Some((answered.collection.clone(), answered.revision));
            self.rest = None;
            self.history.end_rejection();
        }
    }

    /// Records what the client has once it has answered everything: all of the last collection, or all
    /// but what it has rejected, with which the collection counts as rejected. No response may have been
    /// needed for it.
    pub(super) fn settle(&mut self) {
        let Base::Sent(collection) = &self.held.base else {
            return;
        };
        if !self.in_flight.is_empty() || self.owed.is_in_doubt {
            return;
        }

        let collection = collection.clone();
        if self.is_whole() {
            self.accepted = Some((collection, self.held.revision));
            self.rest = None;
            self.withheld.end();
            self.history.end_rejection();
        } else if self.withheld.is_certain() {
            let without = self.withheld.names();
            let with_former = self.with_former(&collection, &without);
            if let Some((accepted, _)) = &mut self.accepted {
                *accepted = with_former;
            }
            self.rest = Some(AcknowledgedRest {
                collection: collection.clone(),
                revision: self.held.revision,
                without,
            });
            let earlier = self.withheld.earlier();
            self.is_rejected_again |= self.history.reject_again(collection, earlier);
        }
    }

    /// A collection with resources of these names as they were when the client had last accepted them.
    fn with_former(&self, collection: &Collection, names: &WithheldNames) -> Arc<Collection> {
        let nothing = Resources::default();
        let accepted = self.accepted.as_ref();
        let former = accepted.map_or(&nothing, |(accepted, _)| &accepted.resources);
        let replace = |all: Resources, names: &BTreeSet<ResourceName>| all.replaced(names, former);

        Arc::new(Collection {
            resource_type: collection.resource_type,
            resources: names.sets().fold(collection.resources.clone(), replace),
            unknown: collection.unknown.clone(),
        })
    }

    /// Whether the newest collection has begun to count as rejected without a NACK since the last
    /// call.
    pub(crate) fn take_rejected_again(&mut self) -> bool {
        std::mem::take(&mut self.is_rejected_again)
    }

    /// Whether the client has all of the collection of the last response once it has accepted that:
    /// no part of it is withheld, or to be sent again after a rejection.
    fn is_whole(&self) -> bool {
        let Base::Sent(collection) = &self.held.base else {
            return false;
        };
        let mut leaving = self.held.leaving.keys();
        self.withheld.is_empty() && !leaving.any(|name| find(collection, name).is_some())
    }

    /// Whether the client's answers allow a response now.
    pub(crate) fn is_free(&self, now: Duration) -> bool {
        self.free_at().is_none_or(|at| at <= now)
    }

    /// When the last response counts as accepted without an answer.
    pub(crate) fn free_at(&self) -> Option<Duration> {
        self.in_flight
            .back()
            .map(|sent| sent.response.at + ACK_WAIT)
    }

    /// Whether there may be something to send, except delayed removals.
    pub(crate) fn is_unsent(&self) -> bool {
        let Some(latest) = &self.latest else {
            return false;
        };
        !self.barred && (!self.held.base.is(latest) || !self.owed.is_empty())
    }

    /// The first snapshot with unsent changes.
    pub(crate) fn unsent_since(&self) -> Option<u64> {
        self.reason
            .changes
            .map(|[first, _]| first)
            .filter(|_| self.is_unsent())
    }

    /// Since when removals are pending.
    pub(crate) fn removals_pending_since(&self) -> Option<Duration> {
        self.leaving_since.filter(|_| !self.barred)
    }

    /// Whether everything is sent and acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.in_flight.is_empty() && !self.is_unsent() && self.removals_pending_since().is_none()
    }

    /// The snapshot of the newest collection.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The last collection that the client has acknowledged, with withheld resources as they were when
    /// it had last acknowledged all, and the snapshot of that.
    pub(crate) fn taken(&self) -> Option<(&Arc<Collection>, u64)> {
        let (collection, revision) = self.accepted.as_ref()?;
        Some((collection, *revision))
    }

    /// The last collection of which the client has acknowledged all but what it has rejected, if it
    /// has not acknowledged all of one since.
    pub(crate) fn rest(&self) -> Option<&AcknowledgedRest> {
        self.rest.as_ref()
    }

    /// The reasons of the current response.
    pub(crate) fn take_reason(&mut self) -> Reason {
        std::mem::take(&mut self.reason)
    }

    /// The collection of the last response, with resources that the client has rejected as they were
    /// when it had last acknowledged all.
    pub(crate) fn sent(&self) -> Option<Arc<Collection>> {
        let Base::Sent(collection) = &self.held.base else {
            return None;
        };
        if self.withheld.is_empty() {
            return Some(collection.clone());
        }

        Some(self.with_former(collection, &self.withheld.names()))
    }

    /// Records that the client now has the composed state: sent as `response`, or `None` if no
    /// response was needed.
    pub(crate) fn record_sent(
        &mut self,
        composed: &Composed,
        response: Option<SentResponse>,
        now: Duration,
    ) {
        let Some(latest) = self.latest.clone() else {
            return;
        };

        self.forget_withheld(&composed.changes);
        let held = ClientState {
            base: Base::Sent(latest.clone()),
            leaving: composed.leaving.clone(),
            revision: self.revision,
        };
        let before = std::mem::replace(&mut self.held, held);
        let owed = std::mem::take(&mut self.owed);
        self.leaving_since = composed
            .owes_removals
            .then(|| self.leaving_since.unwrap_or(now));

        match response {
            Some(response) => self.push_in_flight(response, latest, before, owed),
            None => {
                self.try_suspects();
                self.settle();
            }
        }
    }

    /// Adds a response to those that are not answered. If they are too many, the oldest one counts
    /// as accepted.
    fn push_in_flight(
        &mut self,
        response: SentResponse,
        collection: Arc<Collection>,
        before: ClientState,
        owed: Pending,
    ) {
        self.history.sent = Some(response.clone());
        if self.in_flight.len() >= MAX_IN_FLIGHT
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.accept(&oldest);
        }

        self.in_flight.reserve_exact(1);
        self.in_flight.push_back(InFlight {
            response,
            collection,
            revision: self.revision,
            is_whole: self.is_whole(),
            before,
            owed,
        });
    }
}
