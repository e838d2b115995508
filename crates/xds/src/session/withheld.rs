//! What a delta client has rejected is not sent to it again, while the rest is.
//!
//! A NACK rejects a response, which may have many resources, with one text. What follows for each
//! resource of the response:
//!
//! | the resource | is | what follows |
//! | --- | --- | --- |
//! | is the first that the text names, or has no other beside it | rejected | it is sent again once its content has changed, the client subscribes to its name anew, or it is time |
//! | is also named | a suspect | the same; and once another resource that is withheld has changed, and the client has acknowledged the change |
//! | is not named, but others are | in doubt | it is sent again at once, without these |
//! | is beside others, and the text names none | in doubt | halves of them are sent again in turn, until the rejected ones are found |
//!
//! Whatever the client then has, it is treated as having all of them: the next diff has neither what is
//! rejected nor suspects. So a response to a subscription has what was requested and what has
//! changed. A new stream begins with all resources.
//!
//! The reason of a rejection may pass by itself, as that of a listener whose port another process
//! uses, or of a cluster with a file that does not exist yet. So what is withheld is sent again after a
//! pause, alone, and again after twice the pause. A new rejection begins with a short pause again, also
//! while others wait for the end of a long one.
//!
//! Envoy adds all other clusters and listeners of a response that it rejects because of some
//! (`CdsApiHelper::onConfigUpdate`, `LdsApiImpl::onConfigUpdate`), and ztunnel all other resources;
//! they name those that failed. But Envoy adds none of a response with a resource that it cannot
//! decode or validate, of resources of other types only those before the rejected one, and possibly
//! none beside a rejected cluster that requests wait for. With a NACK it also gives up the clusters
//! that requests wait for (`XdstpOdcdsSubscriptionsManager::onFailure`), so that a rejected cluster
//! beside a requested one costs the requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::session::blame::{Blamed, blamed};
use crate::session::compose::changes;
use crate::session::diff::{Base, Diff, find, missing, required_endpoints};
use crate::session::discovery_request::Rejection;
use crate::session::encoding_cache::EncodingCache;
use crate::session::shared_set::SharedSet;
use crate::session::watch::{InFlight, Watch};
use navarch_api::names::ResourceName;
use navarch_push::resource::{Collection, Resource};

/// How often the rest of a rejected response is sent again until the client acknowledges one: else a
/// client that rejects one resource at a time would get all others as often. Envoy's messages name
/// several.
const MAX_RETRIES: u32 = 8;
/// The same for halves: enough to find one resource of 65,536.
const MAX_HALVINGS: u32 = 16;
/// The maximum number of parts that wait to be tried in turn.
const MAX_PARTS: usize = 32;
/// The first pause after which withheld resources are sent again. Istiod sends them with each push.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause. Each retry that fails costs requests that wait for clusters at that moment.
const MAX_RETRY_PAUSE: Duration = Duration::from_mins(10);
/// The maximum number of names in the text about what is withheld.
const MAX_SHOWN: usize = 8;

/// Resources of the last response's collection that the client has rejected, or may have. There are
/// none that it was not sent.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    rejected: SharedSet,
    suspects: SharedSet,
    /// Suspects that are tried in turn, a part in a response; the last one is next.
    parts: Vec<SharedSet>,
    /// Those that the newest NACK is about.
    newest: SharedSet,
    /// Whether a resource that was withheld has changed: suspects are tried again.
    is_retry_due: bool,
    /// How often the rest of a response was sent again since the last ACK.
    retries: u32,
    /// When what is withheld is sent again as it is.
    retry_at: Option<Duration>,
    /// The pause before that; `None` if there was none yet.
    pause: Option<Duration>,
    /// Whether something was rejected that the client had not got as it is before: it does not wait
    /// for as long as what is rejected again and again.
    is_first_pause: bool,
    /// Whether suspects were sent again after the last pause, and what is rejected is next.
    are_suspects_tried: bool,
}

/// Names that are withheld from a client. A clone shares the sets.
#[derive(Clone, Debug, Default)]
pub struct WithheldNames(Vec<Arc<BTreeSet<ResourceName>>>);

impl WithheldNames {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of the names.
    #[must_use]
    pub fn contains(&self, name: &ResourceName) -> bool {
        self.0.iter().any(|names| names.contains(name))
    }

    /// All names, each once, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        self.0.iter().flat_map(|names| names.iter())
    }

    /// All names, sorted.
    pub(crate) fn to_set(&self) -> BTreeSet<ResourceName> {
        self.iter().cloned().collect()
    }

    /// Disjoint sets that have all names together.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &BTreeSet<ResourceName>> {
        self.0.iter().map(|names| &**names)
    }
}

impl FromIterator<ResourceName> for WithheldNames {
    fn from_iter<I: IntoIterator<Item = ResourceName>>(names: I) -> Self {
        let names = SharedSet::from(BTreeSet::from_iter(names));
        Self(names.shared().into_iter().collect())
    }
}

impl Withheld {
    /// Whether all names may be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.rejected.is_empty() && self.suspects.is_empty() && self.parts.is_empty()
    }

    /// Whether the client rejects something that is withheld: suspects that are to be tried again may
    /// be accepted.
    pub(crate) fn is_certain(&self) -> bool {
        let are_tried = self.is_retry_due || !self.parts.is_empty();
        !self.rejected.is_empty() || !self.suspects.is_empty() && !are_tried
    }

    /// Whether this resource is withheld.
    pub(crate) fn contains(&self, name: &ResourceName) -> bool {
        self.rejected.contains(name)
            || self.suspects.contains(name)
            || self.parts.iter().any(|part| part.contains(name))
    }

    /// The names of all that is withheld.
    pub(crate) fn names(&self) -> WithheldNames {
        let sets = [&self.rejected, &self.suspects]
            .into_iter()
            .chain(&self.parts);
        WithheldNames(sets.filter_map(SharedSet::shared).collect())
    }

    /// The names of those that are to be sent again, since it is unknown which of them the client rejects.
    pub(crate) fn in_doubt(&self) -> WithheldNames {
        let suspects = [&self.suspects].into_iter().filter(|_| self.is_retry_due);
        let sets = self.parts.iter().chain(suspects);
        WithheldNames(sets.filter_map(SharedSet::shared).collect())
    }

    /// The names of those that the newest NACK is about.
    pub(crate) fn newest(&self) -> WithheldNames {
        WithheldNames(self.newest.shared().into_iter().collect())
    }

    /// The number of names that are withheld.
    fn len(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.len()).sum();
        self.rejected.len() + self.suspects.len() + parts
    }

    /// The names of those that are rejected for certain.
    pub(crate) fn rejected(&self) -> &BTreeSet<ResourceName> {
        &self.rejected
    }

    /// The error for resources that are withheld since an earlier NACK; `None` if the newest one is
    /// about some of them.
    pub(super) fn earlier(&self) -> Option<String> {
        if !self.newest.is_empty() {
            return None;
        }
        let all = self.names().to_set();
        let shown: Vec<&str> = all
            .iter()
            .take(MAX_SHOWN)
            .map(|name| name.as_str())
            .collect();
        let more = match all.len().saturating_sub(shown.len()) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let shown = shown.join(", ");
        Some(format!(
            "not sent again since an earlier response was rejected: {shown}{more}"
        ))
    }

    /// Records that a resource is sent again as it is. Returns whether it was withheld.
    fn forget(&mut self, name: &ResourceName) -> bool {
        self.newest.remove(name);
        let mut was_withheld = self.rejected.remove(name) | self.suspects.remove(name);
        for part in &mut self.parts {
            was_withheld |= part.remove(name);
        }
        self.parts.retain(|part| !part.is_empty());
        was_withheld
    }

    /// Records that a resource is sent with another content, is removed, or is not subscribed to any
    /// more.
    pub(crate) fn forget_changed(&mut self, name: &ResourceName) {
        let was_withheld = self.forget(name);
        self.is_retry_due |= was_withheld && !self.suspects.is_empty();
    }

    /// Records an ACK.
    pub(crate) fn end_retries(&mut self) {
        self.retries = 0;
    }

    /// Records that the client has all resources.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Counts a NACK, with `is_list` of one that names some of several resources. Returns whether the
    /// rest of the response may be sent again.
    fn begin_retry(&mut self, is_list: bool) -> bool {
        let limit = if is_list { MAX_RETRIES } else { MAX_HALVINGS };
        self.retries = self.retries.saturating_add(1);
        self.retries <= limit && self.parts.len() < MAX_PARTS
    }

    /// Has both halves of some suspects tried in turn.
    fn halve(&mut self, names: BTreeSet<ResourceName>) {
        let count = names.len().div_ceil(2);
        let mut names = names.into_iter();
        let first: BTreeSet<ResourceName> = names.by_ref().take(count).collect();
        let halves = [names.collect(), first].map(SharedSet::from).into_iter();
        self.parts.extend(halves.filter(|half| !half.is_empty()));
    }

    /// Adds these to the suspects that wait, with those that were to be tried.
    fn stop_trying(&mut self, names: BTreeSet<ResourceName>) {
        let parts = std::mem::take(&mut self.parts).into_iter();
        self.suspects
            .extend(parts.flat_map(SharedSet::into_set).chain(names));
    }

    /// The suspects to try next, if there are any.
    fn next_part(&mut self) -> Option<BTreeSet<ResourceName>> {
        if self.is_retry_due && self.parts.is_empty() {
            self.is_retry_due = false;
            let suspects = std::mem::take(&mut self.suspects).into_set();
            return Some(suspects).filter(|suspects| !suspects.is_empty());
        }
        self.parts.pop().map(SharedSet::into_set)
    }

    /// What is sent again after a pause: suspects and rejected ones in turn, since a response with a
    /// rejected resource may be rejected as a whole.
    fn take_turn(&mut self) -> BTreeSet<ResourceName> {
        let has_both = !self.suspects.is_empty() && !self.rejected.is_empty();
        self.are_suspects_tried = match has_both {
            true => !self.are_suspects_tried,
            false => self.rejected.is_empty(),
        };
        let tried = match self.are_suspects_tried {
            true => &mut self.suspects,
            false => &mut self.rejected,
        };
        std::mem::take(tried).into_set()
    }

    /// Whether the pause is over; begins one otherwise, of `first` after a new rejection, else of twice
    /// the one before. A new rejection does not defer the end of a pause that has begun.
    fn is_time(&mut self, now: Duration, first: Duration) -> bool {
        let is_first = std::mem::take(&mut self.is_first_pause);
        if is_first || self.retry_at.is_none() {
            let twice = |pause: Duration| pause.saturating_mul(2).min(MAX_RETRY_PAUSE);
            let former = self.pause.filter(|_| !is_first);
            let pause = former.map_or(first, twice);
            let end = now.saturating_add(pause);

            self.pause = Some(pause);
            self.retry_at = Some(self.retry_at.map_or(end, |begun| begun.min(end)));
        }
        self.retry_at.is_some_and(|at| at <= now)
    }
}

impl Watch {
    /// Records the NACK of the delta response with this nonce. Returns false if no such response is
    /// unanswered.
    pub(crate) fn reject_resources(
        &mut self,
        nonce: &str,
        rejection: Rejection,
        cache: &EncodingCache,
    ) -> bool {
        let Some(answered) = self.take_answered(nonce) else {
            return false;
        };

        let sent = changes(
            &answered.before,
            &answered.owed,
            &answered.collection,
            cache,
        );
        let base = &answered.before.base;
        self.withheld.is_first_pause |= sent.resources.iter().any(|one| !has_as_it_is(base, one));
        self.withhold(&sent.resources, &rejection.message);
        self.doubt_removals(&sent, &answered);
        for later in &mut self.in_flight {
            later.is_whole = false;
        }

        let newest = match &self.held.base {
            Base::Sent(newest) if self.withheld.is_certain() => newest.clone(),
            Base::Sent(_) | Base::Nothing | Base::InitialVersions(_) => answered.collection,
        };
        self.history.reject(nonce, rejection, Some(newest));
        self.try_suspects();
        // Removals that are rejected are not acknowledged.
        if self.withheld.is_certain() && !self.withheld.newest.is_empty() {
            self.settle();
        }
        true
    }

    /// Records that the client has rejected this collection of the state of the world: again, or for the
    /// first time.
    pub(super) fn begin_pause(&mut self, collection: &Arc<Collection>) {
        let former = self.history.rejected_collection.as_ref();
        let is_again = former.is_some_and(|former| Arc::ptr_eq(former, collection));
        self.withheld.is_first_pause |= !is_again;
    }

    /// Withholds those of the resources of a rejected response that the message blames, and has the
    /// others sent again; in halves if it blames none. What was sent with another content since is not
    /// concerned.
    fn withhold(&mut self, sent: &[Arc<Resource>], message: &str) {
        let Blamed { first, named } = blamed(self.resource_type, message, sent);
        let is_named = !named.is_empty();
        let is_list = is_named && sent.len() > 1;
        let is_rest_sent = self.withheld.begin_retry(is_list);
        let mut rest = BTreeSet::new();
        self.withheld.newest.clear();

        for resource in sent {
            let name = resource.name.clone();
            if !self.is_newest(resource) {
                // It may be what the client has rejected.
                self.withheld.is_retry_due |= !is_named || named.contains(&name);
                continue;
            }

            if named.contains(&name) || !is_named || !is_rest_sent {
                self.withheld.newest.insert(name.clone());
            }
            if first.as_ref() == Some(&name) {
                self.withheld.suspects.remove(&name);
                self.withheld.rejected.insert(name);
            } else if named.contains(&name) {
                self.withheld.suspects.insert(name);
            } else {
                rest.insert(name);
            }
        }

        if !is_rest_sent {
            self.withheld.stop_trying(rest);
        } else if is_named {
            self.owed.is_in_doubt |= !rest.is_empty();
            let rest = rest.into_iter().map(|name| (name, None));
            self.held.leaving.extend(rest);
        } else {
            self.withheld.halve(rest);
        }

        self.owed.forced.remove(&named);
    }

    /// Whether a resource was not sent with another content, or removed, since.
    fn is_newest(&self, resource: &Resource) -> bool {
        has_as_it_is(&self.held.base, resource)
    }

    /// Has the removals of a rejected response sent again: it is unknown whether the client accepted
    /// these. Those of a response with nothing else, which it would reject for ever, wait for the next
    /// one.
    fn doubt_removals(&mut self, sent: &Diff, answered: &InFlight) {
        let before = answered.before.leaving.keys();
        let earlier = before.filter(|name| find(&answered.collection, name).is_none());
        let removed: Vec<ResourceName> = sent
            .removed
            .iter()
            .map(|(name, _)| name)
            .chain(earlier)
            .filter(|name| !self.held.base.contains(name))
            .cloned()
            .collect();

        if !sent.resources.is_empty() {
            let missing = missing(&answered.owed.requested, &answered.collection);
            self.owed.is_in_doubt |= !removed.is_empty();
            self.owed.requested.extend(missing);
        }
        let removed = removed.into_iter().map(|name| (name, None));
        self.held.leaving.extend(removed);
    }

    /// Has the next suspects sent again once the client has answered everything: what has changed was
    /// not beside them.
    pub(super) fn try_suspects(&mut self) {
        if !self.in_flight.is_empty() || self.owed.is_in_doubt {
            return;
        }
        if let Some(part) = self.withheld.next_part() {
            self.send_again(part);
        }
    }

    /// Has resources sent again that were withheld.
    fn send_again(&mut self, names: BTreeSet<ResourceName>) {
        self.owed.is_in_doubt |= !names.is_empty();
        let names = names.into_iter().map(|name| (name, None));
        self.held.leaving.extend(names);
    }

    /// Whether resources that the client has rejected are not sent again for now.
    pub(super) fn is_pausing(&self) -> bool {
        self.barred || !self.withheld.is_empty()
    }

    /// When these are sent again as they are; `None` while the pause has not begun.
    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.withheld.retry_at.filter(|_| self.is_pausing())
    }

    /// Has what is withheld sent again, alone, if the pause is over, which is `first` at first. In the
    /// state of the world, all resources are sent.
    pub(super) fn retry_withheld(&mut self, now: Duration, first: Duration) {
        let is_idle = self.in_flight.is_empty() && !self.is_unsent();
        if !self.is_pausing() || !is_idle || !self.withheld.is_time(now, first) {
            return;
        }

        self.withheld.retry_at = None;
        self.withheld.end_retries();
        self.barred = false;
        let names = self.withheld.take_turn();
        self.send_again(names);
    }

    /// Withholds nothing of what a response contains.
    pub(super) fn forget_withheld(&mut self, sent: &Diff) {
        if self.withheld.is_empty() {
            return;
        }

        for resource in &sent.resources {
            if self.is_newest(resource) {
                self.withheld.forget(&resource.name);
            } else {
                self.withheld.forget_changed(&resource.name);
            }
        }
        for (name, _) in &sent.removed {
            self.withheld.forget_changed(name);
        }
    }

    /// The number of names that are held since it is unknown whether the client has these resources, as it
    /// has rejected them, or a response with them.
    pub(super) fn uncertain_names(&self) -> usize {
        let in_flight = self.in_flight.iter();
        let before: usize = in_flight.map(|sent| sent.before.leaving.len()).sum();
        self.withheld.len() + self.held.leaving.len() + before
    }

    /// The endpoint sets of clusters that the newest NACK is about, which the client does not subscribe
    /// to because of it.
    pub(super) fn endpoints_of_rejected(&self) -> BTreeSet<ResourceName> {
        let Base::Sent(collection) = &self.held.base else {
            return BTreeSet::new();
        };
        let newest = self.withheld.newest.iter();
        let rejected = newest.filter(|name| self.withheld.rejected.contains(*name));
        let clusters = rejected.filter_map(|name| find(collection, name));
        clusters
            .filter_map(|cluster| required_endpoints(cluster))
            .collect()
    }
}

/// Whether a resource was sent with this content to a client with this state.
fn has_as_it_is(base: &Base, resource: &Resource) -> bool {
    let Base::Sent(collection) = base else {
        return false;
    };
    find(collection, &resource.name).is_some_and(|sent| sent.version == resource.version)
}
