//! What a delta client has rejected is not sent to it again, while the rest is.
//!
//! A NACK rejects a response, which may have many resources, with one text. What follows for each
//! resource of the response:
//!
//! | the resource | is | what follows |
//! | --- | --- | --- |
//! | is the first that the text names, or has no other beside it | rejected | it is sent again once its content has changed, or the client subscribes to its name anew |
//! | is also named, or the text names none | a suspect | the same; and once another resource that is withheld has changed, and the client has acknowledged the change |
//! | is not named, but others are | in doubt | it is sent again at once, without these |
//!
//! Whatever the client then has, it is treated as having all of them: the next diff has neither what is
//! rejected nor suspects. So a response to a subscription has what was requested and what has
//! changed. A new stream knows nothing of this, and begins with all resources.
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

use crate::session::compose::changes;
use crate::session::diff::{Base, Diff, find, missing, required_endpoints};
use crate::session::discovery_request::Rejection;
use crate::session::encoding_cache::EncodingCache;
use crate::session::watch::{InFlight, Watch};
use navarch_api::names::ResourceName;
use navarch_push::resource::{Resource, ResourceType};

/// How often the rest of a rejected response is sent again until the client acknowledges one: else a
/// client that rejects one resource at a time would get all others as often. Envoy's messages name
/// several.
const MAX_RETRIES: u32 = 8;
/// What Envoy's message begins with if it has added all clusters or listeners but the named ones.
const ADDED_OTHERS: [&str; 2] = [
    "Error adding/updating cluster(s) ",
    "Error adding/updating listener(s) ",
];
/// What Envoy's message begins with if it has rejected a cluster that requests wait for, whose name
/// follows before ` - `. It may have added none of the others.
const REQUESTED: &str = "Error adding/updating cluster ";
/// What Envoy's message begins with if it has added no resource since one is invalid, whose text
/// follows.
const INVALID: &str = "Proto constraint validation failed (";

/// Resources of the last response's collection that the client has rejected, or may have. There are
/// none that it was not sent.
#[derive(Debug, Default)]
pub(crate) struct Withheld {
    rejected: BTreeSet<ResourceName>,
    suspects: BTreeSet<ResourceName>,
    /// Whether a resource that was withheld has changed: suspects are tried again.
    is_retry_due: bool,
    /// How often the rest of a response was sent again since the last ACK.
    retries: u32,
}

/// The resources that a message blames.
#[derive(Debug, Default, PartialEq, Eq)]
struct Blamed {
    /// The one that is rejected for certain.
    first: Option<ResourceName>,
    /// All, with that one.
    named: BTreeSet<ResourceName>,
}

impl Blamed {
    /// From the words of a message, in their order; `None` is no name of a resource.
    fn of(words: Vec<Option<ResourceName>>) -> Self {
        Self {
            first: words.first().cloned().flatten(),
            named: words.into_iter().flatten().collect(),
        }
    }
}

impl Withheld {
    /// Whether nothing is withheld.
    pub(crate) fn is_empty(&self) -> bool {
        self.rejected.is_empty() && self.suspects.is_empty()
    }

    /// Whether the client rejects something that is withheld: suspects that are to be tried again may
    /// be accepted.
    pub(crate) fn is_certain(&self) -> bool {
        !self.rejected.is_empty() || !self.suspects.is_empty() && !self.is_retry_due
    }

    /// Whether this resource is withheld.
    pub(crate) fn contains(&self, name: &ResourceName) -> bool {
        self.rejected.contains(name) || self.suspects.contains(name)
    }

    /// The names of all that is withheld.
    pub(crate) fn names(&self) -> BTreeSet<ResourceName> {
        &self.rejected | &self.suspects
    }

    /// The names of those that are rejected for certain.
    pub(crate) fn rejected(&self) -> &BTreeSet<ResourceName> {
        &self.rejected
    }

    /// Records that a resource is sent again as it is.
    fn forget(&mut self, name: &ResourceName) {
        self.rejected.remove(name);
        self.suspects.remove(name);
    }

    /// Records that a resource is sent with another content, is removed, or is not subscribed to any
    /// more.
    pub(crate) fn forget_changed(&mut self, name: &ResourceName) {
        let was_withheld = self.rejected.remove(name) | self.suspects.remove(name);
        self.is_retry_due |= was_withheld && !self.suspects.is_empty();
    }

    /// Records an ACK.
    pub(crate) fn end_retries(&mut self) {
        self.retries = 0;
    }

    /// Counts a NACK. Returns whether the rest of the response may be sent again.
    fn begin_retry(&mut self) -> bool {
        self.retries = self.retries.saturating_add(1);
        self.retries <= MAX_RETRIES
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
        self.retry_suspects();
        true
    }

    /// Withholds those of the resources of a rejected response that the message blames, and has the
    /// others sent again; without any that it blames, all are suspects. What was sent with another
    /// content since is not concerned.
    fn withhold(&mut self, sent: &[Arc<Resource>], message: &str) {
        let Blamed { first, named } = blamed(self.resource_type, message, sent);
        let is_rest_sent = !named.is_empty() && self.withheld.begin_retry();

        for resource in sent {
            let name = resource.name.clone();
            if !self.is_newest(resource) {
                // It may be what the client has rejected.
                self.withheld.is_retry_due |= named.is_empty() || named.contains(&name);
            } else if first.as_ref() == Some(&name) {
                self.withheld.suspects.remove(&name);
                self.withheld.rejected.insert(name);
            } else if is_rest_sent && !named.contains(&name) {
                self.held.leaving.insert(name, None);
                self.owed.is_in_doubt = true;
            } else {
                self.withheld.suspects.insert(name);
            }
        }

        self.owed.forced.remove(&named);
    }

    /// Whether a resource was not sent with another content, or removed, since.
    fn is_newest(&self, resource: &Resource) -> bool {
        let Base::Sent(collection) = &self.held.base else {
            return false;
        };
        find(collection, &resource.name).is_some_and(|newest| newest.version == resource.version)
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

    /// Has suspects sent again if that is due, and the client has answered everything: what has changed
    /// was not beside them.
    pub(super) fn retry_suspects(&mut self) {
        if !self.withheld.is_retry_due || !self.in_flight.is_empty() {
            return;
        }

        self.withheld.is_retry_due = false;
        let suspects = std::mem::take(&mut self.withheld.suspects);
        self.owed.is_in_doubt |= !suspects.is_empty();
        let suspects = suspects.into_iter().map(|name| (name, None));
        self.held.leaving.extend(suspects);
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

    /// The endpoint sets of rejected clusters, which the client does not subscribe to because of
    /// these.
    pub(super) fn endpoints_of_rejected(&self) -> BTreeSet<ResourceName> {
        let Base::Sent(collection) = &self.held.base else {
            return BTreeSet::new();
        };
        let rejected = self.withheld.rejected.iter();
        let clusters = rejected.filter_map(|name| find(collection, name));
        clusters
            .filter_map(|cluster| required_endpoints(cluster))
            .collect()
    }
}

/// The names of the resources of a response, which are sorted by name, that the message of its NACK
/// blames.
///
/// A message can repeat what users of other namespaces have written, such as the name of a
/// resource of theirs. So names count only where the client itself writes them: before the error of
/// each in a list, before the error of a requested one, or at the begin of an invalid one. Of a list,
/// only the first one is certain: the others may be in the text of its error.
fn blamed(resource_type: ResourceType, message: &str, sent: &[Arc<Resource>]) -> Blamed {
    if let [only] = sent {
        return Blamed::of(vec![Some(only.name.clone())]);
    }

    let envoys_list = || {
        ADDED_OTHERS
            .iter()
            .find_map(|begin| message.strip_prefix(begin))
    };
    let list = match resource_type.is_ambient() {
        true => Some(message),
        false => envoys_list(),
    };
    let words = match list {
        Some(list) => words_before_errors(list),
        None => name_of_requested(message)
            .or_else(|| name_of_invalid(message))
            .into_iter()
            .collect(),
    };

    let find = |word: &str| {
        let place = sent
            .binary_search_by(|resource| resource.name.as_str().cmp(word))
            .ok()?;
        sent.get(place).map(|resource| resource.name.clone())
    };
    Blamed::of(words.into_iter().map(find).collect())
}

/// The words of a list that may be names: those before `: `.
fn words_before_errors(list: &str) -> Vec<&str> {
    list.match_indices(": ")
        .filter_map(|(end, _)| list.get(..end)?.rsplit([' ', '\n']).next())
        .collect()
}

/// The name of a rejected cluster that requests wait for.
fn name_of_requested(message: &str) -> Option<&str> {
    let (name, _) = message.strip_prefix(REQUESTED)?.split_once(" - ")?;
    Some(name)
}

/// The name in the text of an invalid resource, whose first field it is.
fn name_of_invalid(message: &str) -> Option<&str> {
    let (_, text) = message.strip_prefix(INVALID)?.split_once("): ")?;
    let (before, rest) = text.split_once("name: \"")?;
    let (name, _) = rest.split_once('"')?;
    let is_first = !before.contains(['"', '{']);
    is_first.then_some(name)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use ResourceType::{Address, Cluster, Listener, Route};

    const A: &str = "outbound|80||a.example";
    const AB: &str = "outbound|80||a.example.b";
    const C: &str = "outbound|80|v1|c.example";

    /// What a message blames of a response with these resources.
    fn blamed_of(resource_type: ResourceType, sent: &[&str], message: &str) -> Blamed {
        let names: BTreeSet<ResourceName> = sent.iter().map(ResourceName::new).collect();
        let sent: Vec<Arc<Resource>> = names
            .into_iter()
            .map(|name| Arc::new(Resource::new(resource_type, name, Bytes::new())))
            .collect();
        blamed(resource_type, message, &sent)
    }

    fn of(first: Option<&str>, named: &[&str]) -> Blamed {
        Blamed {
            first: first.map(ResourceName::new),
            named: named.iter().map(ResourceName::new).collect(),
        }
    }

    #[test]
    fn resources_are_blamed_where_envoy_names_them() {
        let sent = [A, AB, C];
        for (message, expected) in [
            (
                format!("Error adding/updating cluster(s) {AB}: no such extension"),
                of(Some(AB), &[AB]),
            ),
            (
                format!("Error adding/updating cluster(s) {C}: Protobuf: {AB} is bad, {A}: why"),
                of(Some(C), &[A, C]),
            ),
            (
                format!("Error adding/updating cluster(s) x: why, {A}: why"),
                of(None, &[A]),
            ),
            (
                format!("Error adding/updating cluster {C} - {C}: like {A}: why"),
                of(Some(C), &[C]),
            ),
            // The only one that is certain is the invalid resource itself.
            (
                format!(
                    "Proto constraint validation failed (ClusterValidationError.X: [\"{A}: \"]): \
                     name: \"{AB}\"\nalt_stat_name: \"{C}\""
                ),
                of(Some(AB), &[AB]),
            ),
            (
                format!(
                    "Proto constraint validation failed (field: \"x\", reason: is required): \
                     goo.gle/debugonly  name: \"{C}\" type: EDS"
                ),
                of(Some(C), &[C]),
            ),
            (
                format!("Proto constraint validation failed (X): config {{ name: \"{C}\" }}"),
                Blamed::default(),
            ),
            (
                format!(
                    "Proto constraint validation failed (X): alt_stat_name: \"x\" name: \"{C}\""
                ),
                Blamed::default(),
            ),
            (format!("Unable to parse: {A}: why"), Blamed::default()),
            (String::new(), Blamed::default()),
        ] {
            assert_eq!(blamed_of(Cluster, &sent, &message), expected, "{message}");
        }
    }

    #[test]
    fn resources_of_other_types_and_clients_are_blamed_in_their_forms() {
        let listeners = "Error adding/updating listener(s) virtualInbound: no\n0.0.0.0_80: no\n";
        let sent = ["0.0.0.0_80", "virtualInbound"];
        let expected = of(Some("virtualInbound"), &sent);
        assert_eq!(blamed_of(Listener, &sent, listeners), expected);

        let sent = ["net//Pod/shop/a", "net//Pod/shop/b"];
        let message = "net//Pod/shop/b: no such address; net//Pod/shop/x: no";
        let expected = of(Some("net//Pod/shop/b"), &["net//Pod/shop/b"]);
        assert_eq!(blamed_of(Address, &sent, message), expected);

        // A number is the name of routes, but no message blames routes by it.
        let message = "Only unique values for domains are permitted in 80: a";
        assert_eq!(blamed_of(Route, &["80", "81"], message), Blamed::default());
        assert_eq!(blamed_of(Route, &["81"], message), of(Some("81"), &["81"]));
        assert_eq!(blamed_of(Route, &[], message), Blamed::default());
    }
}
