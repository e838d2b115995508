//! Writes validation messages into the status of Istio's objects.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::findings::correction;
use navarch_api::crds;
use navarch_kubernetes::{InWords, is_stale, status_patch};

/// How many objects are written at once.
const AT_ONCE: usize = 8;

/// Writes what validation says of Istio's objects into their status (`PILOT_ENABLE_ANALYSIS`).
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The cluster.
    pub cluster: Cluster,
    /// For how long changes are gathered (`PILOT_ANALYSIS_INTERVAL`).
    pub interval: Duration,
    /// The revision of this control plane: objects of others are theirs.
    pub revision: String,
}

/// An object whose status is to be corrected.
#[derive(Debug)]
struct Due {
    /// The kind as the API server knows it.
    resource: ApiResource,
    /// The version that was judged.
    resource_version: String,
    /// Whether there is a status.
    has_status: bool,
    /// What is wrong with it.
    correction: Map<String, Value>,
}

/// What names an object among all kinds: plural, namespace, name.
type Key = (String, String, String);

impl Analysis {
    /// Runs until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let watches = crds::kinds().map(|kind| self.watch(&kind));
        let mut events = stream::select_all(watches);
        let mut due: BTreeMap<Key, Due> = BTreeMap::new();
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => match event {
                    Some((resource, event)) => self.take(resource, event, &mut due),
                    None => return,
                },
                _ = tick.tick(), if !due.is_empty() => {
                    let gathered = std::mem::take(&mut due);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = self.write_all(gathered) => {}
                    }
                }
            }
        }
    }

    /// Follows a kind. A kind that is not defined has no objects until it is.
    fn watch(&self, kind: &crds::DefinedKind) -> BoxStream<'static, (ApiResource, Event<DynamicObject>)> {
        let name = GroupVersionKind::gvk(&kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&name, kind.plural);
        let objects = Api::<DynamicObject>::all_with(self.cluster.0.clone(), &resource);
        let events = watcher(objects, watcher::Config::default()).default_backoff();
        let events = events.inspect_err(|error| tracing::debug!(error = %InWords(error), "cannot watch for analysis"));
        let events = events.filter_map(|event| std::future::ready(event.ok()));
        events.map(move |event| (resource.clone(), event)).boxed()
    }

    /// Judges what an event brings.
    fn take(&self, resource: ApiResource, event: Event<DynamicObject>, due: &mut BTreeMap<Key, Due>) {
        let object = match event {
            Event::Apply(object) | Event::InitApply(object) => object,
            Event::Delete(object) => {
                due.remove(&key(&resource, &object));
                return;
            }
            Event::Init | Event::InitDone => return,
        };
        let revision = object.labels().get("istio.io/rev");
        if !self.revision.is_empty() && revision.is_some_and(|revision| *revision != self.revision) {
            return;
        }
        let key = key(&resource, &object);
        let version = object.resource_version().unwrap_or_default();
        let has_status = object.data.get("status").is_some();
        let whole = serde_json::to_value(&object).unwrap_or_default();
        match correction(&whole) {
            Some(correction) => {
                due.insert(key, Due { resource, resource_version: version, has_status, correction });
            }
            None => {
                due.remove(&key);
            }
        }
    }

    /// Writes what was gathered. What fails comes again with the next version of the object, or its next list.
    async fn write_all(&self, due: BTreeMap<Key, Due>) {
        let write = |((_, namespace, name), due): (Key, Due)| async move {
            let kind = due.resource.kind.clone();
            match self.write(&namespace, &name, due).await {
                Ok(()) => {}
                // Somebody else has written, of which the watch will tell.
                Err(error) if is_stale(&error) => {
                    tracing::debug!(kind, ns = namespace, name, error = %InWords(&error), "the object has changed");
                }
                Err(error) => {
                    tracing::warn!(kind, ns = namespace, name, error = %InWords(&error), "failed to write status")
                }
            }
        };
        stream::iter(due).for_each_concurrent(AT_ONCE, write).await;
    }

    /// Corrects a status, if the object is still what was judged. Other members stay as they are.
    async fn write(&self, namespace: &str, name: &str, due: Due) -> Result<(), kube::Error> {
        let members = due.correction.into_iter();
        let patch = status_patch(due.resource_version, due.has_status, members)?;
        let objects = Api::<DynamicObject>::namespaced_with(self.cluster.0.clone(), namespace, &due.resource);
        objects.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
    }
}

/// What names an object.
fn key(resource: &ApiResource, object: &DynamicObject) -> Key {
    (resource.plural.clone(), object.namespace().unwrap_or_default(), object.name_any())
}
