//! Whether clients have acknowledged a change of an object: of each type with a resource that depends on
//! it the current collection, or one after the change.
//!
//! Resources that a client has rejected hold back no others ([`TypeInfo::withheld`]). So a client that
//! has acknowledged the rest of a collection lacks, of its type, only the objects whose change may be
//! in what it has rejected.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::connections::{AcknowledgedRest, ConnectionInfo, TypeInfo, WithheldNames};
use crate::session::discovery_request::Protocol;
use navarch_api::names::{Namespace, ResourceName};
use navarch_base::resource_version::Version;
use navarch_push::engine::ProxyId;
use navarch_push::fact::FactKey;
use navarch_push::progress::Compared;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::Inspect;

/// Maximum number of facts that are looked up for all clients, in equal shares of the namespaces that
/// reject something; each has one look-up in any case. With more, a further rejected resource of a
/// namespace counts as one that the change may be in: after a restart, thousands of proxies may reject
/// a route table that depends on each service.
const MAX_FACTS: usize = 200_000;

/// Maximum number of facts in all shares together: a single look-up may find more than a share has.
const MAX_FACTS_OF_ALL: usize = 2 * MAX_FACTS;

/// What a look-up counts for beside the facts that it finds. One that finds none may have walked the
/// inputs of what a proxy is selected by, such as all Sidecars.
const FACTS_OF_LOOKUP: usize = 100;

/// Maximum number of rejected resources of a client and type whose facts are looked up. With more, all
/// objects of the type count as rejected.
const MAX_REJECTED: usize = 32;

/// What a client has said of a change, by one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has acknowledged the change.
    Acknowledged,
    /// It has not answered yet.
    Pending,
    /// It has rejected a resource as it is now, and the change may be in that.
    Rejected,
}

/// A change of an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectChange<'a> {
    /// The facts of the object.
    pub facts: &'a [FactKey],
    /// The snapshot of the change.
    pub revision: u64,
}

/// One type of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subscription {
    /// The client, by its name in the engine.
    pub proxy: ProxyId,
    /// What it subscribes to.
    pub resource_type: ResourceType,
}

/// The answers of clients to their responses.
#[derive(Clone, Debug, Default)]
pub struct Answers(BTreeMap<Subscription, AnswerOfType>);

/// What clients reject at some time, by type.
#[derive(Clone, Debug, Default)]
pub struct Rejecting(BTreeMap<Subscription, Rejected>);

/// The answer of a client to the responses of one type.
#[derive(Clone, Debug)]
struct AnswerOfType {
    /// The namespace of the client's verified identity, to whose share look-ups count. All clients
    /// without an identity have one share: whatever they say of themselves, it gives them no other.
    namespace: Option<Namespace>,
    /// The last acknowledged collection, and its snapshot.
    taken: Option<(Arc<Collection>, u64)>,
    rest: Option<AcknowledgedRest>,
    rejection: Option<RejectionOfType>,
}

/// The last rejection of responses of one type, while the client has not acknowledged all.
#[derive(Clone, Debug)]
struct RejectionOfType {
    rejected: Rejected,
    /// Resources that are sent again in turn, of which it may accept some.
    in_doubt: WithheldNames,
    /// The newest collection with what is rejected.
    collection: Option<Arc<Collection>>,
    /// The client's error.
    message: Arc<str>,
}

/// What a client rejects of a type.
#[derive(Clone, Debug)]
enum Rejected {
    These(WithheldNames),
    All,
}

/// The standing of clients, of one state of the engine.
#[derive(Debug)]
pub struct Standings<'a> {
    inspect: &'a Inspect<'a>,
    answers: &'a Answers,
    compared: Compared,
    /// The facts that may be why a rejected resource is not the one that the client has.
    behind: BTreeMap<(Subscription, ResourceName), BTreeSet<FactKey>>,
    /// The number of these facts, with [`FACTS_OF_LOOKUP`], by the namespace of the client's identity.
    facts: BTreeMap<Option<Namespace>, usize>,
    /// The sum of these numbers.
    facts_of_all: usize,
    /// The number at which a namespace has had its share.
    share: usize,
}

impl Answers {
    /// The answers of the clients of these streams.
    #[must_use]
    pub fn of<'a>(connections: impl IntoIterator<Item = &'a ConnectionInfo>) -> Self {
        let mut answers = BTreeMap::new();
        for info in connections {
            let identity = info.proxy.identity.as_ref();
            let namespace = identity.map(|identity| identity.namespace.clone());
            for watch in &info.types {
                let answer = AnswerOfType {
                    namespace: namespace.clone(),
                    taken: watch.taken.clone(),
                    rest: watch.rest.clone(),
                    rejection: RejectionOfType::of(watch, info.protocol),
                };
                answers.insert(Subscription::of(info, watch), answer);
            }
        }
        Self(answers)
    }

    /// The error of the last rejection of a type, unless the client has acknowledged all since.
    #[must_use]
    pub fn error(&self, subscription: Subscription) -> Option<&Arc<str>> {
        let rejection = self.0.get(&subscription)?.rejection.as_ref()?;
        Some(&rejection.message)
    }
}

impl Rejecting {
    /// What the clients of these streams reject now.
    #[must_use]
    pub fn of<'a>(connections: impl IntoIterator<Item = &'a ConnectionInfo>) -> Self {
        let mut rejecting = BTreeMap::new();
        for info in connections {
            for watch in info.types.iter().filter(|watch| watch.rejected.is_some()) {
                let rejected = Rejected::of(watch, info.protocol).with_retried(watch);
                rejecting.insert(Subscription::of(info, watch), rejected);
            }
        }
        Self(rejecting)
    }
}

impl Subscription {
    fn of(info: &ConnectionInfo, watch: &TypeInfo) -> Self {
        Self {
            proxy: info.proxy_id,
            resource_type: watch.resource_type,
        }
    }
}

impl RejectionOfType {
    fn of(watch: &TypeInfo, protocol: Protocol) -> Option<Self> {
        let rejection = watch.rejected.as_ref()?;
        Some(Self {
            rejected: Rejected::of(watch, protocol),
            in_doubt: watch.in_doubt.clone(),
            collection: watch.rejected_collection.clone(),
            message: rejection.message.clone(),
        })
    }
}

impl Rejected {
    /// What a client that has sent a NACK rejects. Of the state of the world it is all of a type.
    fn of(watch: &TypeInfo, protocol: Protocol) -> Self {
        match protocol {
            Protocol::StateOfTheWorld => Self::All,
            Protocol::Delta => Self::These(watch.withheld.clone()),
        }
    }

    /// With what is sent again at the moment, and may be rejected again.
    fn with_retried(self, watch: &TypeInfo) -> Self {
        match (self, &watch.rest) {
            (Self::These(names), Some(rest)) => {
                let all = names.iter().chain(rest.without.iter());
                Self::These(all.cloned().collect())
            }
            (unchanged @ (Self::These(_) | Self::All), _) => unchanged,
        }
    }
}

impl<'a> Standings<'a> {
    /// No object was looked up yet.
    #[must_use]
    pub fn new(inspect: &'a Inspect<'a>, answers: &'a Answers) -> Self {
        let all = answers.0.values();
        let rejecting = all.filter(|answer| answer.rejection.is_some() || answer.rest.is_some());
        let namespaces: BTreeSet<_> = rejecting.map(|answer| &answer.namespace).collect();

        Self {
            inspect,
            answers,
            compared: Compared::default(),
            behind: BTreeMap::new(),
            facts: BTreeMap::new(),
            facts_of_all: 0,
            share: MAX_FACTS / namespaces.len().max(1),
        }
    }

    /// What a client has said of a change, by one type.
    pub fn of(&mut self, subscription: Subscription, change: &ObjectChange<'_>) -> Standing {
        let answers = self.answers;
        let Some(answer) = answers.0.get(&subscription) else {
            return Standing::Pending;
        };
        if self.is_acknowledged(subscription, answer, change) {
            return Standing::Acknowledged;
        }

        let rejection = answer.rejection.as_ref();
        let apart = WithheldNames::default();
        match rejection.is_some_and(|one| self.is_rejected(subscription, one, change, &apart)) {
            true => Standing::Rejected,
            false => Standing::Pending,
        }
    }

    /// As [`Standings::of`], but `None` if the client has not acknowledged the change, and the change may
    /// be in what the client rejected `before` it: that says nothing about the change. Another resource
    /// that it rejects since, and that the change may be in, does.
    pub fn of_change_after(
        &mut self,
        before: &Rejecting,
        subscription: Subscription,
        change: &ObjectChange<'_>,
    ) -> Option<Standing> {
        let standing = self.of(subscription, change);
        if standing == Standing::Acknowledged {
            return Some(standing);
        }

        let names = match before.0.get(&subscription) {
            None => return Some(standing),
            Some(Rejected::All) => return None,
            Some(Rejected::These(names)) => names,
        };
        if !self.is_in(change, subscription, names.iter()) {
            return Some(standing);
        }

        let answers = self.answers;
        let rejection = answers.0.get(&subscription)?.rejection.as_ref()?;
        let is_rejected = self.is_rejected(subscription, rejection, change, names);
        is_rejected.then_some(Standing::Rejected)
    }

    /// Whether a client has acknowledged a change.
    fn is_acknowledged(
        &mut self,
        subscription: Subscription,
        answer: &AnswerOfType,
        change: &ObjectChange<'_>,
    ) -> bool {
        let taken = answer.taken.as_ref();
        if taken.is_some_and(|(collection, revision)| {
            *revision >= change.revision || self.is_shown(subscription, collection)
        }) {
            return true;
        }

        let Some(rest) = &answer.rest else {
            return false;
        };
        let has_rest =
            rest.revision >= change.revision || self.is_shown(subscription, &rest.collection);
        has_rest && !self.is_in(change, subscription, rest.without.iter())
    }

    /// Whether a change that a client has not acknowledged may be in what it rejects, `apart` from these
    /// resources. It may have rejected an older response, and not have answered yet.
    fn is_rejected(
        &mut self,
        subscription: Subscription,
        rejection: &RejectionOfType,
        change: &ObjectChange<'_>,
        apart: &WithheldNames,
    ) -> bool {
        let older = rejection.collection.as_ref();
        match &rejection.rejected {
            Rejected::All => older.is_some_and(|older| self.is_shown(subscription, older)),
            Rejected::These(names) => {
                let shown = self.shown(subscription);
                let is_same =
                    |name: &ResourceName| version(shown.as_ref(), name) == version(older, name);
                let is_out =
                    |name: &ResourceName| rejection.in_doubt.contains(name) || apart.contains(name);
                let certain = names.iter().filter(|name| !is_out(name) && is_same(name));
                self.is_in(change, subscription, certain)
            }
        }
    }

    /// The collection in force for a client.
    fn shown(&self, subscription: Subscription) -> Option<Arc<Collection>> {
        let engine = self.inspect.engine;
        engine.published(subscription.proxy, subscription.resource_type)
    }

    /// Whether a collection is equal to the one in force for a client.
    fn is_shown(&mut self, subscription: Subscription, collection: &Arc<Collection>) -> bool {
        let shown = self.shown(subscription);
        shown.is_some_and(|shown| self.compared.are_equal(&shown, collection))
    }

    /// Whether a change may be in one of these resources of a client, since what it acknowledged last.
    fn is_in<'n>(
        &mut self,
        change: &ObjectChange<'_>,
        subscription: Subscription,
        names: impl Iterator<Item = &'n ResourceName>,
    ) -> bool {
        let names: Vec<&ResourceName> = names.take(MAX_REJECTED + 1).collect();
        if names.len() > MAX_REJECTED {
            return true;
        }

        let answer = self.answers.0.get(&subscription);
        let taken = answer.and_then(|answer| answer.taken.as_ref());
        let since = taken.map_or(0, |(_, revision)| *revision);
        let namespace = answer.and_then(|answer| answer.namespace.clone());
        let facts = self.facts.entry(namespace).or_default();

        names.into_iter().any(|name| {
            let behind = match self.behind.entry((subscription, name.clone())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(_) if *facts > self.share => return true,
                Entry::Vacant(_) if self.facts_of_all > MAX_FACTS_OF_ALL => return true,
                Entry::Vacant(unknown) => {
                    let behind = facts_behind(self.inspect, subscription, name, since);
                    let cost = behind.len() + FACTS_OF_LOOKUP;
                    *facts += cost;
                    self.facts_of_all += cost;
                    unknown.insert(behind)
                }
            };
            change.facts.iter().any(|fact| behind.contains(fact))
        })
    }
}

/// The version of a resource of a collection; `None` if it is not there.
fn version(collection: Option<&Arc<Collection>>, name: &ResourceName) -> Option<Version> {
    let resource = collection?.resources.find(name)?;
    Some(resource.version)
}

/// The facts that may be why a resource of a client is not the one of a snapshot; all that it depends
/// on if none is found.
fn facts_behind(
    inspect: &Inspect<'_>,
    subscription: Subscription,
    name: &ResourceName,
    since: u64,
) -> BTreeSet<FactKey> {
    let Subscription {
        proxy,
        resource_type,
    } = subscription;
    let engine = inspect.engine;
    let changed = engine.provenance_since(proxy, resource_type, name, since);
    let facts = match changed.is_empty() {
        true => engine.provenance(proxy, resource_type, name),
        false => changed,
    };
    facts.into_iter().collect()
}

#[cfg(test)]
mod tests;
