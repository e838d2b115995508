//! Trials: versions of a response with some of its objects as they were before their last change,
//! which are sent to the proxy that rejected it, to find the object that it rejects. They are what a
//! quarantine would serve: without the object altogether, the proxy might lack access control that it
//! had, and keeps what it has accepted last.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use navarch_answers::STACK;
use navarch_answers::client::Client;
use navarch_answers::mirror::Mirror;
use navarch_api::names::ResourceName;
use navarch_api::object::ObjectRef;
use navarch_net::background;
use navarch_push::engine::Interest;
use navarch_push::mesh_state::Change;
use navarch_push::observer::Before;
use navarch_push::resource::{Collection, ResourceType};
use navarch_push::worker::PushHandle;
use navarch_xds::connections::{ConnectionInfo, Connections, TypeInfo};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// Timeout of a proxy's answer to one version.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of all trials for one rejection, without the time in which they wait for a place to
/// compute.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// Poll interval of the answer, and the part of the time since the offer that it is at least: many
/// proxies that do not answer cost little.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const POLL_PART: u32 = 16;

/// Trials on one proxy.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) push: PushHandle,
    pub(super) connections: Arc<Connections>,
    /// The stream, as of its rejection.
    pub(super) info: ConnectionInfo,
    /// The type of the rejected response.
    pub(super) resource_type: ResourceType,
    /// The objects that it may be due to, the most suspect first.
    pub(super) candidates: Vec<ObjectRef>,
    /// The candidate that other proxies reject, if there is one.
    pub(super) suspect: Option<ObjectRef>,
    /// The places of all trials for computing a version, which are given in the order in which they
    /// ask. None is held while a proxy's answer is awaited: so a namespace whose proxies answer
    /// slowly delays no other.
    pub(super) computing: Arc<Semaphore>,
    /// What is left of [`TIMEOUT`].
    pub(super) time_left: Duration,
}

/// What a trial has found.
#[derive(Debug)]
pub(super) struct Found {
    /// The object without whose last change the proxy accepts its resources; `None` if there is
    /// none, it does not answer in time, or the trial panics.
    pub(super) object: Option<ObjectRef>,
    /// The time of computing and of the proxy's answers.
    pub(super) took: Duration,
}

impl Trial {
    /// Runs to its end.
    pub(super) async fn run(mut self) -> Found {
        let object = none_on_panic(self.bisect()).await;
        Found {
            object,
            took: TIMEOUT.saturating_sub(self.time_left),
        }
    }

    /// Takes back the suspect; then halves of the other candidates in turn.
    async fn bisect(&mut self) -> Option<ObjectRef> {
        let mut names = std::mem::take(&mut self.candidates);

        if let Some(suspect) = self.suspect.take() {
            if self.is_accepted_without(vec![suspect.clone()]).await? {
                return Some(suspect);
            }
            names.retain(|name| *name != suspect);
        }

        while !names.is_empty() {
            let half: Vec<ObjectRef> = names
                .iter()
                .take(names.len().div_ceil(2))
                .cloned()
                .collect();
            let is_accepted = self.is_accepted_without(half.clone()).await?;

            match (is_accepted, half.len()) {
                (true, 1) => return half.into_iter().next(),
                (true, _) => names = half,
                (false, _) => names.retain(|name| !half.contains(name)),
            }
        }

        None
    }

    /// Whether the proxy accepts its resources without the last change of some objects; `None` if it
    /// does not answer in time.
    async fn is_accepted_without(&mut self, left_out: Vec<ObjectRef>) -> Option<bool> {
        let place = self.computing.clone().acquire_owned().await.ok()?;

        let begun = Instant::now();
        let answer =
            tokio::time::timeout(self.time_left, self.tried_without(left_out, place)).await;
        self.time_left = self.time_left.saturating_sub(begun.elapsed());
        answer.ok()?
    }

    /// As [`Self::is_accepted_without`], with a place for computing, without the timeout.
    async fn tried_without(
        &self,
        left_out: Vec<ObjectRef>,
        place: OwnedSemaphorePermit,
    ) -> Option<bool> {
        let collection = self.without(left_out, place).await?;
        self.is_accepted(collection).await
    }

    /// The collection for the proxy without the last change of some objects.
    async fn without(
        &self,
        left_out: Vec<ObjectRef>,
        place: OwnedSemaphorePermit,
    ) -> Option<Arc<Collection>> {
        let resource_type = self.resource_type;
        let watch = self
            .info
            .types
            .iter()
            .find(|watch| watch.resource_type == resource_type)?;
        let interest = Interest {
            wildcard: watch.wildcard,
            names: watch.names.clone(),
        };
        let client = Client {
            proxy: self.info.proxy.clone(),
            interests: [(resource_type, interest)].into(),
        };

        let context = self.push.context();
        let changes = self.push.inspect(move |inspect| {
            let before = inspect.mesh_state.before();
            let changes = left_out.into_iter();
            changes.map(|name| taken_back(name, &before)).collect()
        });
        let changes: Vec<Change> = changes.await.ok()?;

        let (answer, made) = oneshot::channel();
        let work = move || {
            let mut mirror = Mirror::of(&context, vec![client]);
            mirror.apply(changes);
            // The caller may have disconnected.
            _ = answer.send(mirror.had(0).get(&resource_type).cloned());

            // Until its end, also if the trial has timed out, the thread may take a core.
            drop(mirror);
            drop(place);
        };

        background::spawn_normal("bisect", STACK, work).ok()?;
        made.await.ok()?
    }

    /// Whether the proxy accepts a collection; `None` if it does not answer.
    async fn is_accepted(&self, collection: Arc<Collection>) -> Option<bool> {
        let info = &self.info;
        let resource_type = collection.resource_type;

        // It must not count as the current collection.
        let mut types = info.types.iter();
        let rejected = types.find(|watch| watch.resource_type == resource_type)?;
        let taken = rejected.taken.as_ref();
        let revision = taken.map_or(0, |(_, revision)| *revision);

        if !self
            .connections
            .offer(info.proxy_id, collection.clone(), revision)
        {
            return None;
        }
        let begun = Instant::now();
        while begun.elapsed() < ANSWER_TIMEOUT {
            let interval = POLL_INTERVAL.max(begun.elapsed() / POLL_PART);
            tokio::time::sleep(interval).await;
            let now = self.connections.of_id(info.proxy_id)?;
            let watch = now
                .types
                .iter()
                .find(|watch| watch.resource_type == resource_type)?;
            if let Some(is_accepted) = answer_to(&collection, rejected, watch) {
                return Some(is_accepted);
            }
        }

        None
    }
}

/// Whether a proxy accepts a collection that it was offered after it had `rejected` another one; `None`
/// while it has not answered.
///
/// What it had rejected before that, and has not got since, says nothing about the objects that are
/// tried: a listener whose port is in use stays rejected whichever of them is taken back.
fn answer_to(offered: &Arc<Collection>, rejected: &TypeInfo, watch: &TypeInfo) -> Option<bool> {
    let is_offered = |collection: &Arc<Collection>| Arc::ptr_eq(collection, offered);
    let taken = watch.taken.as_ref();
    if taken.is_some_and(|(taken, _)| is_offered(taken)) {
        return Some(true);
    }

    let rest = watch.rest.as_ref();
    if let Some(rest) = rest.filter(|rest| is_offered(&rest.collection)) {
        let is_older = |name: &ResourceName| {
            rejected.withheld.contains(name) && !rejected.withheld_last.contains(name)
        };
        return Some(!rejected.withheld_last.is_empty() && rest.without.iter().all(is_older));
    }

    let newest = watch.rejected_collection.as_ref();
    newest.is_some_and(is_offered).then_some(false)
}

/// The change that takes an object back to its version before its last change; it is removed if there
/// was none, or it is not known.
fn taken_back(name: ObjectRef, before: &Before) -> Change {
    let known = before.iter().rev().find(|(known, _)| *known == name);
    match known.and_then(|(_, version)| version.clone()) {
        Some(version) => Change::Put(version),
        None => Change::Removed(name),
    }
}

/// The output of a trial; `None` if it panics, which the panic hook logs. The task must return its
/// rejection in any case: until then its namespace has no other trial, and the proxy keeps the
/// version that was tried last.
async fn none_on_panic(trial: impl Future<Output = Option<ObjectRef>>) -> Option<ObjectRef> {
    AssertUnwindSafe(trial)
        .catch_unwind()
        .await
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use navarch_api::testing::object;
    use navarch_push::resources::Resources;
    use navarch_xds::connections::{AcknowledgedRest, WithheldNames};

    use super::*;

    #[test]
    fn an_edited_object_is_taken_back_and_a_new_one_removed() {
        let yaml = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
                    metadata: {name: waf, namespace: shop}\nspec: {}\n";
        let object = object(yaml);
        let name = object.object_ref();
        let of = |before: Option<Option<_>>| {
            let entries = before.map(|version| (name.clone(), version));
            taken_back(name.clone(), &Arc::new(VecDeque::from_iter(entries)))
        };

        assert!(matches!(of(Some(Some(object.clone()))), Change::Put(old) if old == object));
        assert!(matches!(of(Some(None)), Change::Removed(_)), "it is new");
        assert!(matches!(of(None), Change::Removed(_)), "it is not known");
    }

    /// A subscription to clusters, of which the proxy has rejected `withheld`, and `last` with its last
    /// NACK.
    fn rejecting(withheld: &[&str], last: &[&str]) -> TypeInfo {
        TypeInfo {
            resource_type: ResourceType::Cluster,
            wildcard: true,
            names: Arc::default(),
            sent: None,
            acked: None,
            rejected: None,
            rejected_collection: None,
            resources: None,
            taken: None,
            rest: None,
            withheld: names(withheld),
            in_doubt: WithheldNames::default(),
            withheld_last: names(last),
            in_sync: false,
        }
    }

    fn names(all: &[&str]) -> WithheldNames {
        all.iter().map(ResourceName::new).collect()
    }

    #[test]
    fn what_a_proxy_had_rejected_before_says_nothing_about_a_trial() {
        let offered = Collection::new(ResourceType::Cluster, Resources::default());
        let offered = Arc::new(offered);
        let answer = |rejected: &TypeInfo, without: &[&str]| {
            let mut watch = rejecting(without, &[]);
            watch.rejected_collection = Some(offered.clone());
            watch.rest = Some(AcknowledgedRest {
                collection: offered.clone(),
                revision: 1,
                without: names(without),
            });
            answer_to(&offered, rejected, &watch)
        };

        let rejected = rejecting(&["port in use", "bad"], &["bad"]);
        assert_eq!(answer(&rejected, &["port in use"]), Some(true));
        assert_eq!(answer(&rejected, &["port in use", "bad"]), Some(false));
        assert_eq!(answer(&rejected, &["port in use", "other"]), Some(false));
        let before_all = rejecting(&["port in use"], &[]);
        assert_eq!(answer(&before_all, &["port in use"]), Some(false));

        let mut whole = rejecting(&[], &[]);
        assert_eq!(answer_to(&offered, &rejected, &whole), None);
        whole.taken = Some((offered.clone(), 1));
        assert_eq!(answer_to(&offered, &rejected, &whole), Some(true));
    }

    async fn broken() -> Option<ObjectRef> {
        panic!("a defect of a trial")
    }

    #[tokio::test]
    async fn a_trial_that_panics_has_found_nothing() {
        assert_eq!(none_on_panic(broken()).await, None);
    }
}
