//! Composes the next response of a subscription.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::session::diff::{
    Base, Diff, Removal, SubscribedBy, Versions, encode_keeping, find, missing, names_of_aliases,
};
use crate::session::discovery_request::Protocol;
use crate::session::encoding_cache::EncodingCache;
use crate::session::payload::Payload;
use crate::session::watch::{ClientState, Pending, PendingRemovals, Watch};
use navarch_api::names::ResourceName;
use navarch_push::resource::{Collection, ResourceType};

/// Whether removals may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalPolicy {
    /// Removals are sent now.
    Allowed,
    /// Removals wait until no other resource of the client can refer to the removed ones.
    Withheld,
}

/// What a response depends on beside the state of its type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseRules {
    pub(crate) protocol: Protocol,
    pub(crate) versions: Versions,
    pub(crate) removals: RemovalPolicy,
}

/// The content of the next response.
#[derive(Debug)]
pub(crate) struct Composed {
    /// The diff that it is made of.
    pub(crate) changes: Arc<Diff>,
    /// The resources as they are sent.
    pub(crate) payload: Payload,
    /// The number of resources.
    pub(crate) count: usize,
    /// The removed names (delta only).
    pub(crate) removed: Vec<ResourceName>,
    /// Resources that are removed later.
    pub(crate) leaving: PendingRemovals,
    /// Whether a later response must remove some of them, even if nothing changes.
    pub(crate) owes_removals: bool,
    /// Whether the response must be sent.
    pub(crate) worth_sending: bool,
}

impl Watch {
    /// Composes the next response. Cheap if another stream has made the same step.
    pub(crate) fn compose(&self, rules: ResponseRules, cache: &EncodingCache) -> Option<Composed> {
        let latest = self.latest.as_ref()?;
        let changes = changes(&self.held, &self.owed, latest, cache);
        let gone = self.removed(&changes, latest);
        Some(match rules.protocol {
            Protocol::Delta => self.compose_delta(changes, gone, latest, rules),
            Protocol::StateOfTheWorld if self.has_all_resources() => {
                self.compose_whole(&changes, gone, latest, rules.removals, cache)
            }
            Protocol::StateOfTheWorld => {
                let payload = changes.state();
                let count = changes.resources.len();
                let worth_sending = self.owed.first || count > 0;
                Composed {
                    changes,
                    payload,
                    count,
                    removed: Vec::new(),
                    leaving: PendingRemovals::new(),
                    owes_removals: false,
                    worth_sending,
                }
            }
        })
    }

    /// A delta response: changed resources and removed names.
    fn compose_delta(
        &self,
        changes: Arc<Diff>,
        gone: PendingRemovals,
        latest: &Collection,
        rules: ResponseRules,
    ) -> Composed {
        // Names that do not exist are reported as removed at once: the client waits for a response.
        let mut removed = missing(&self.owed.requested, latest);
        let mut leaving = gone;
        let mut kept = self.take_kept(&mut leaving, latest);

        match rules.removals {
            RemovalPolicy::Allowed => removed.extend(std::mem::take(&mut leaving).into_keys()),
            RemovalPolicy::Withheld => leaving.retain(|name, _| !removed.contains(name)),
        }
        let owes_removals = !leaving.is_empty();
        kept.retain(|name, _| !removed.contains(name));
        leaving.append(&mut kept);

        let subscribed_by = if self.interest.wildcard {
            SubscribedBy::ForAll
        } else {
            SubscribedBy::ByName
        };

        let payload = changes.delta(subscribed_by, rules.versions);
        let count = changes.resources.len();
        let worth_sending = self.owed.first || count > 0 || !removed.is_empty();
        Composed {
            changes,
            payload,
            count,
            removed: removed.into_iter().collect(),
            leaving,
            owes_removals,
            worth_sending,
        }
    }

    /// A state-of-the-world response of a type that is always sent in full.
    fn compose_whole(
        &self,
        changes: &Arc<Diff>,
        gone: PendingRemovals,
        latest: &Arc<Collection>,
        removals: RemovalPolicy,
        cache: &EncodingCache,
    ) -> Composed {
        // A resource that the client may or may not have cannot be kept.
        let is_doubtful = gone.values().any(Option::is_none);
        let mut worth_sending = self.owed.first
            || is_doubtful
            || !self.owed.requested.is_empty()
            || !changes.resources.is_empty();
        let mut leaving = gone;
        leaving.retain(|_, resource| resource.is_some());

        if removals == RemovalPolicy::Allowed {
            worth_sending |= !leaving.is_empty();
            leaving.clear();
        }

        let count = latest.resources.len() + leaving.len();
        let payload = if !worth_sending {
            Payload::default()
        } else if leaving.is_empty() {
            cache.changes(&Base::Nothing, latest, None).state()
        } else if self.held.leaving.is_empty() && leaving.len() == changes.removed.len() {
            changes.keeping(latest)
        } else {
            encode_keeping(latest, leaving.values().flatten().cloned())
        };

        Composed {
            changes: changes.clone(),
            payload,
            count,
            removed: Vec::new(),
            owes_removals: !leaving.is_empty(),
            leaving,
            worth_sending,
        }
    }

    /// Resources that the client has and still subscribes to, but that no longer exist.
    fn removed(&self, changes: &Diff, latest: &Collection) -> PendingRemovals {
        // Envoy needs extensions as long as anything may refer to them (envoyproxy/envoy #32823).
        if self.resource_type == ResourceType::ExtensionConfig {
            return PendingRemovals::new();
        }
        let earlier = self
            .held
            .leaving
            .iter()
            .filter(|(name, _)| find(latest, name).is_none());
        let all = earlier.map(|(name, old): (_, _)| -> Removal { (name.clone(), old.clone()) });
        all.chain(changes.removed.iter().cloned())
            .filter(|(name, _)| self.is_subscribed(name))
            .collect()
    }

    /// Whether the client subscribes to this name. Resources subscribed to by address are sent
    /// under another name.
    fn is_subscribed(&self, name: &ResourceName) -> bool {
        self.interest.wildcard
            || self.resource_type.is_by_address()
            || self.interest.names.contains(name)
    }

    /// Whether a state-of-the-world response contains all resources: clients remove those that it
    /// lacks.
    fn has_all_resources(&self) -> bool {
        self.resource_type.is_wildcard_by_default() || self.interest.wildcard
    }
}

/// The diff to send to a client with this state. It is shared, unless the client subscribed to
/// resources that it already has.
pub(super) fn changes(
    held: &ClientState,
    owed: &Pending,
    latest: &Arc<Collection>,
    cache: &EncodingCache,
) -> Arc<Diff> {
    let meant = names_of_aliases(&owed.requested, latest);
    let again = owed
        .requested
        .iter()
        .chain(held.leaving.keys())
        .chain(&meant);

    let again: BTreeSet<ResourceName> = again
        .filter(|name| held.base.contains(name))
        .cloned()
        .collect();

    match owed.forced.as_slice() {
        [] if again.is_empty() => cache.changes(&held.base, latest, None),
        [names] if again.is_empty() => cache.changes(&held.base, latest, Some(names)),
        several => {
            let all: BTreeSet<ResourceName> = several
                .iter()
                .flat_map(|names| names.iter().cloned())
                .chain(again)
                .collect();
            Arc::new(Diff::between(&held.base, latest, Some(&all)))
        }
    }
}
