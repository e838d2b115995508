//! Quarantines objects whose configuration proxies reject, so that one invalid object does not
//! block others.
//!
//! ```text
//! a proxy refuses a response ─▶ what of it changed ─▶ the objects behind that ─▶ which of them is it? ─▶ Change::Quarantine
//!                                                                     tried on that proxy ─┘
//! ```
//!
//! If an object reaches several proxies, two of them must reject it, and more than accept it, so
//! that proxies that reject everything do not affect others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::until;
use crate::admin::changed_at;
use navarch_answers::STACK;
use navarch_answers::client::Client;
use navarch_answers::difference::CollectionDiff;
use navarch_answers::mirror::Mirror;
use navarch_api::object::{Kind, ObjectRef};
use navarch_push::context::facts_of;
use navarch_push::engine::{Interest, ProxyId};
use navarch_push::fact::FactKey;
use navarch_push::mesh_state::Change;
use navarch_push::quarantine::is_chargeable;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::{Inspect, PushHandle};
use navarch_xds::Refusal;
use navarch_xds::connections::{ConnectionInfo, Connections, TypeInfo};

/// Capacity of the queue of rejections.
pub(super) const QUEUE: usize = 256;
/// Maximum number of checked resources of a rejected response.
const MAX_RESOURCES: usize = 32;
/// Maximum number of suspected objects.
const MAX_CANDIDATES: usize = 64;
/// Maximum number of objects that wait for another rejection.
const MAX_SUSPECTS: usize = 256;
/// Number of rejecting proxies that are needed to quarantine an object with as many proxies.
const MIN_REJECTING_PROXIES: usize = 2;
/// Timeout of a proxy's answer to a trial.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between trials, as a multiple of the duration of the last ones, so that rejecting clients
/// cost a small share of a core.
const PAUSE_FACTOR: u32 = 9;
/// Poll interval of the answer.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Attributes rejections to objects.
#[derive(Debug)]
pub(super) struct QuarantineWork {
    pub(super) push: PushHandle,
    pub(super) connections: Arc<Connections>,
    /// The proxies that rejected objects which are not quarantined, with the generation.
    charged: BTreeMap<(ObjectRef, i64), BTreeSet<Arc<str>>>,
    /// Rejections that could not be attributed: they are not tried again.
    given_up: BTreeMap<(ProxyId, ResourceType), Arc<Collection>>,
    /// When the next trial may start.
    rests_until: Instant,
    /// Rejections that wait for it.
    deferred: BTreeSet<Refusal>,
}

impl QuarantineWork {
    /// No rejections yet.
    pub(super) fn new(push: PushHandle, connections: Arc<Connections>) -> Self {
        let charged = BTreeMap::new();
        let given_up = BTreeMap::new();
        let deferred = BTreeSet::new();
        Self {
            push,
            connections,
            charged,
            given_up,
            rests_until: Instant::now(),
            deferred,
        }
    }

    /// Runs until `stop` is cancelled.
    pub(super) async fn run(
        mut self,
        mut refusals: mpsc::Receiver<Refusal>,
        stop: CancellationToken,
    ) {
        loop {
            let next = async {
                tokio::select! {
                    refusal = refusals.recv() => refusal,
                    () = tokio::time::sleep_until(self.rests_until), if !self.deferred.is_empty() => self.deferred.pop_first(),
                }
            };
            let Some(Some(refusal)) = until(&stop, next).await else {
                return;
            };
            self.look(refusal).await;
        }
    }

    /// Handles one rejection.
    async fn look(&mut self, refusal: Refusal) {
        let Some(info) = self.connections.of_id(refusal.proxy) else {
            return;
        };

        let Some(watch) = info.types.iter().find(|watch| watch.kind == refusal.kind) else {
            return;
        };

        // The proxy may have accepted something newer since.
        let Some(message) = watch
            .rejected
            .as_ref()
            .map(|rejected| rejected.message.clone())
        else {
            return;
        };

        let id = refusal.proxy;
        let kind = refusal.kind;
        let Ok(Some(shown)) = self
            .push
            .inspect(move |inspect| inspect.engine.shown(id, kind))
            .await
        else {
            return;
        };

        // It may be about an older response, or about a trial.
        if !watch
            .refused
            .as_ref()
            .is_some_and(|refused| Arc::ptr_eq(refused, &shown))
        {
            return;
        }

        // The proxy rejects it again whenever it is sent again.
        if self
            .given_up
            .get(&(id, kind))
            .is_some_and(|known| Arc::ptr_eq(known, &shown))
        {
            return;
        }
        if self.is_of_rollout(&info, kind).await {
            return;
        }

        let candidates = self.candidates(&info, watch, &message).await;

        // A proxy that has never accepted anything of a type may reject all of it, so the response
        // is tried even if only one object is behind it.
        let is_tried = candidates.len() > 1 || taken_at(watch).is_none();
        let suspect = self.suspect(&candidates, &info);
        let found = match candidates.as_slice() {
            [] => None,
            [only] if !is_tried => Some(only.clone()),
            // A trial is needed unless another proxy has rejected one of the objects.
            _ if suspect.is_none() && Instant::now() < self.rests_until => {
                if self.deferred.len() < QUEUE {
                    self.deferred.insert(refusal);
                }
                return;
            }
            several => {
                let begun = Instant::now();
                let found = self.bisect(&info, kind, several.to_vec(), suspect).await;
                self.rests_until = Instant::now() + PAUSE_FACTOR * begun.elapsed();
                found
            }
        };

        let is_quarantined = match found {
            Some(name) => self.charge(name, (&info, kind), &message).await,
            None => {
                let proxy = &*info.id;
                let kind = kind.short_name();
                tracing::warn!(
                    proxy,
                    kind,
                    error = &*message,
                    "failed to attribute a rejected response to one object"
                );
                false
            }
        };

        if is_tried && !is_quarantined {
            self.end_trial((id, kind), shown).await;
        }
    }

    /// Whether the rejected response contains the new version of an object in a rollout. That
    /// rollout is stopped, and the proxy gets another response.
    async fn is_of_rollout(&self, info: &ConnectionInfo, kind: ResourceType) -> bool {
        let context = self.push.context();
        let seen = context
            .rollouts
            .iter()
            .filter(|(_, rollout)| rollout.is_seen_by(&info.proxy.name));
        let facts: Vec<FactKey> = seen
            .filter_map(|(name, _)| context.new_versions.any(name))
            .flat_map(|object| facts_of(&object))
            .collect();
        if facts.is_empty() {
            return false;
        }

        let id = info.proxy_id;
        let reached = self
            .push
            .inspect(move |inspect| inspect.engine.affected_proxies(&facts))
            .await;

        reached.is_ok_and(|reached| reached.get(&id).is_some_and(|kinds| kinds.contains(&kind)))
    }

    /// Sends the current resources to a proxy again after a trial.
    async fn end_trial(&mut self, of: (ProxyId, ResourceType), shown: Arc<Collection>) {
        if self.given_up.len() >= MAX_SUSPECTS {
            self.given_up.clear();
        }
        self.given_up.insert(of, shown.clone());
        if let Ok(revision) = self.push.inspect(|inspect| inspect.engine.revision()).await {
            self.connections.offer(of.0, shown, revision);
        }
    }

    /// Attributes a rejection to an object, and quarantines it once enough proxies have rejected
    /// it. Returns whether it is quarantined.
    async fn charge(
        &mut self,
        name: ObjectRef,
        (info, kind): (&ConnectionInfo, ResourceType),
        message: &Arc<str>,
    ) -> bool {
        let Some(object) = self.push.context().objects.any(&name) else {
            return false;
        };

        let facts = facts_of(&object);
        let of = name.clone();
        let looked = self.push.inspect(move |inspect| {
            (
                inspect.engine.affected_proxies(&facts),
                changed_at(inspect, &of),
            )
        });

        let Ok((reached, changed_at)) = looked.await else {
            return false;
        };

        let generation = object.meta().generation;
        if self.charged.len() >= MAX_SUSPECTS {
            self.charged.clear();
        }

        let rejecters = self.charged.entry((name.clone(), generation)).or_default();
        rejecters.insert(rejecter(info));

        // Other proxies of the same kind: a resource that a gateway rejects may never be sent to a
        // sidecar.
        let all = self.connections.list();
        let alike = all.iter().filter(|other| {
            let kinds = reached.get(&other.proxy_id);
            other.proxy.kind == info.proxy.kind && kinds.is_some_and(|kinds| kinds.contains(&kind))
        });
        let has_taken = |other: &&ConnectionInfo| {
            let watch = other.types.iter().find(|watch| watch.kind == kind);
            let taken = watch
                .filter(|watch| watch.rejected.is_none())
                .and_then(|watch| watch.taken.as_ref());
            taken.is_some_and(|(_, at)| *at >= changed_at) && !rejecters.contains(&rejecter(other))
        };

        let reached = alike.clone().count();
        let takers = alike.filter(has_taken).count();
        if rejecters.len() < MIN_REJECTING_PROXIES.min(reached) || rejecters.len() <= takers {
            return false;
        }

        self.charged.remove(&(name.clone(), generation));
        tracing::warn!(
            kind = name.kind.as_str(), ns = %name.name.namespace, name = &*name.name.name, generation,
            proxy = &*info.id, error = &**message,
            "quarantined: proxies reject the configuration of the object; the previous version is served until it is edited"
        );

        self.push
            .change(vec![Change::Quarantine(name, message.clone())])
            .await
            .is_ok()
    }

    /// The objects that may be the cause: those behind the resources that the proxy has not
    /// accepted, and only those named in the error if it names some; of these the ones that changed
    /// since it accepted something, or else the ones that write Envoy's configuration themselves.
    /// If it has accepted nothing yet, all are candidates, the most suspect first.
    async fn candidates(
        &self,
        info: &ConnectionInfo,
        watch: &TypeInfo,
        message: &Arc<str>,
    ) -> Vec<ObjectRef> {
        let id = info.proxy_id;
        let kind = watch.kind;
        let taken = watch.taken.clone();
        let message = message.clone();
        let since = taken_at(watch);
        let looked = self.push.inspect(move |inspect| {
            let shown = inspect.engine.shown(id, kind);
            let step = CollectionDiff::between(
                taken.as_ref().map(|(collection, _)| &**collection),
                shown.as_deref(),
            );
            let all: Vec<_> = step
                .new_resources()
                .map(|resource| resource.name.clone())
                .collect();
            let named: Vec<_> = all
                .iter()
                .filter(|name| message.contains(name.as_str()))
                .cloned()
                .collect();
            let names = if named.is_empty() { all } else { named };
            let facts = names
                .iter()
                .take(MAX_RESOURCES)
                .flat_map(|name| inspect.engine.provenance_in_order(id, kind, name));
            let behind = objects_of(inspect, facts);

            (
                changed_since(inspect, &behind, since.unwrap_or_default()),
                behind,
            )
        });

        let Ok((changed, behind)) = looked.await else {
            return Vec::new();
        };

        let mut found = match (since.is_some(), changed.is_empty()) {
            (true, false) => changed,
            (true, true) => behind
                .into_iter()
                .filter(|name| writes_for_envoy(name.kind))
                .collect(),
            (false, _) => by_suspicion(behind, &changed),
        };

        found.truncate(MAX_CANDIDATES);
        found
    }

    /// The one object among several that another proxy rejected.
    fn suspect(&self, names: &[ObjectRef], info: &ConnectionInfo) -> Option<ObjectRef> {
        let own = rejecter(info);
        let context = self.push.context();
        let is_suspect = |name: &&ObjectRef| {
            let generation = context
                .objects
                .any(name)
                .map(|object| object.meta().generation);
            let rejecters =
                generation.and_then(|generation| self.charged.get(&((*name).clone(), generation)));
            rejecters.is_some_and(|rejecters| rejecters.len() == 1 && !rejecters.contains(&own))
        };
        names.iter().find(is_suspect).cloned()
    }

    /// Finds the cause among several objects: first the one that another proxy rejects; otherwise
    /// halves of them are left out in turn, on this proxy, until one is left without which it
    /// accepts its resources.
    async fn bisect(
        &self,
        info: &ConnectionInfo,
        kind: ResourceType,
        mut names: Vec<ObjectRef>,
        suspect: Option<ObjectRef>,
    ) -> Option<ObjectRef> {
        let watch = info.types.iter().find(|watch| watch.kind == kind)?;
        let interest = Interest {
            wildcard: watch.wildcard,
            names: watch.names.clone(),
        };
        let client = Client {
            proxy: info.proxy.clone(),
            interests: [(kind, interest)].into(),
        };

        if let Some(suspect) = suspect {
            let collection = self
                .without(client.clone(), kind, vec![suspect.clone()])
                .await?;
            if self.is_accepted(info, collection).await? {
                return Some(suspect);
            }
            names.retain(|name| *name != suspect);
        }

        let mut found = None;

        while !names.is_empty() {
            let half: Vec<ObjectRef> = names
                .iter()
                .take(names.len().div_ceil(2))
                .cloned()
                .collect();
            let collection = self.without(client.clone(), kind, half.clone()).await?;
            let is_taken = self.is_accepted(info, collection).await?;

            match (is_taken, half.len()) {
                (true, 1) => {
                    found = half.into_iter().next();
                    break;
                }
                (true, _) => names = half,
                (false, _) => names.retain(|name| !half.contains(name)),
            }
        }

        found
    }

    /// The collection of a type for the proxy without some objects.
    async fn without(
        &self,
        client: Client,
        kind: ResourceType,
        left_out: Vec<ObjectRef>,
    ) -> Option<Arc<Collection>> {
        let context = self.push.context();
        let (answer, made) = oneshot::channel();
        let work = move || {
            let mut mirror = Mirror::of(&context, vec![client]);
            mirror.apply(left_out.into_iter().map(Change::Removed).collect());
            // The caller may have disconnected.
            _ = answer.send(mirror.had(0).get(&kind).cloned());
        };
        std::thread::Builder::new()
            .name("bisect".to_owned())
            .stack_size(STACK)
            .spawn(work)
            .ok()?;
        made.await.ok()?
    }

    /// Whether the proxy accepts a collection; `None` if it does not answer.
    async fn is_accepted(
        &self,
        info: &ConnectionInfo,
        collection: Arc<Collection>,
    ) -> Option<bool> {
        let kind = collection.kind;

        // It must not count as the current collection.
        let revision = info
            .types
            .iter()
            .find(|watch| watch.kind == kind)?
            .taken
            .as_ref()
            .map_or(0, |(_, revision)| *revision);

        if !self
            .connections
            .offer(info.proxy_id, collection.clone(), revision)
        {
            return None;
        }
        let end = Instant::now() + TRIAL_TIMEOUT;
        while Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
            let now = self.connections.of_id(info.proxy_id)?;
            let watch = now.types.iter().find(|watch| watch.kind == kind)?;
            if watch
                .taken
                .as_ref()
                .is_some_and(|(taken, _)| Arc::ptr_eq(taken, &collection))
            {
                return Some(true);
            }

            if watch
                .refused
                .as_ref()
                .is_some_and(|refused| Arc::ptr_eq(refused, &collection))
            {
                return Some(false);
            }
        }

        None
    }
}

/// The identity of a rejecting client: its address, since it can choose its name; on this machine
/// its name.
fn rejecter(info: &ConnectionInfo) -> Arc<str> {
    let address = info
        .peer
        .map(|peer| peer.ip().to_canonical())
        .filter(|ip| !ip.is_loopback());
    address.map_or_else(|| info.proxy.name.clone(), |ip| Arc::from(ip.to_string()))
}

/// The objects of facts that can be quarantined, without duplicates, in order.
fn objects_of(inspect: &Inspect<'_>, facts: impl Iterator<Item = FactKey>) -> Vec<ObjectRef> {
    let objects = &inspect.engine.context().objects;
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut add = |name: ObjectRef| {
        if is_chargeable(name.kind) && objects.contains(&name) && seen.insert(name.clone()) {
            all.push(name);
        }
    };

    for fact in facts {
        if let FactKey::Object(name) = fact {
            add(name);
        } else if let FactKey::Service(key) = fact {
            let services = inspect.engine.context().directory.services.get(&key);
            services
                .into_iter()
                .flat_map(|all| all.iter())
                .for_each(|service| add(service.origin.clone()));
        } else if let FactKey::List(kind, namespace) = &fact {
            objects
                .all_of(*kind)
                .filter(|name| name.name.namespace == *namespace)
                .for_each(&mut add);
        } else if let FactKey::ListAll(kind) = &fact {
            objects
                .all_of(*kind)
                .filter(|name| is_chargeable(name.kind))
                .take(MAX_CANDIDATES)
                .for_each(&mut add);
        }
    }

    all
}

/// The snapshot that a proxy has last acknowledged; `None` if it is a trial.
fn taken_at(watch: &TypeInfo) -> Option<u64> {
    watch
        .taken
        .as_ref()
        .map(|(_, revision)| *revision)
        .filter(|revision| *revision > 0)
}

/// Whether objects of a kind write Envoy's configuration themselves.
fn writes_for_envoy(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::EnvoyFilter | Kind::WasmPlugin | Kind::TrafficExtension
    )
}

/// Sorts objects by suspicion: first changed ones, then those that write Envoy's configuration
/// themselves. Objects that define services are last: without them, the configuration of other
/// objects for these services would be missing, too.
fn by_suspicion(mut names: Vec<ObjectRef>, changed: &[ObjectRef]) -> Vec<ObjectRef> {
    let changed: BTreeSet<&ObjectRef> = changed.iter().collect();
    names.sort_by_key(|name| {
        (
            name.kind == Kind::ServiceEntry,
            !changed.contains(name),
            !writes_for_envoy(name.kind),
        )
    });
    names
}

/// The objects that changed after a snapshot, as far as that is remembered.
fn changed_since(inspect: &Inspect<'_>, names: &[ObjectRef], since: u64) -> Vec<ObjectRef> {
    let pushes = inspect.pushes.iter().filter(|push| push.revision > since);
    let changed: BTreeSet<&ObjectRef> = pushes
        .flat_map(|push| push.objects.iter().map(|object| &object.name))
        .collect();
    names
        .iter()
        .filter(|name| changed.contains(name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use navarch_api::object::NamespacedName;

    use super::*;

    #[test]
    fn recently_changed_objects_are_suspected_first_and_services_last() {
        let named = |kind, name: &str| ObjectRef {
            kind,
            name: NamespacedName::new("shop", name),
        };
        let entry = named(Kind::ServiceEntry, "entry");
        let rule = named(Kind::VirtualService, "rule");
        let edited = named(Kind::DestinationRule, "edited");
        let filter = named(Kind::EnvoyFilter, "filter");
        let all = vec![entry.clone(), rule.clone(), filter.clone(), edited.clone()];
        assert_eq!(
            by_suspicion(all, &[edited.clone(), entry.clone()]),
            [edited, filter, rule, entry]
        );
    }
}
