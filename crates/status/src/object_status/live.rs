//! The current statuses of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::default_revision::REVISION;
use navarch_api::decode::served_versions;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_net::backoff::Backoff;

/// Delays before a failed watch is reopened; short, as statuses are not written while a watch is
/// broken.
const RETRY_DELAYS: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// A watch that lasts this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// The last observed version of an object.
#[derive(Clone, Debug)]
pub(super) struct ObservedObject {
    pub(super) resource: Arc<ApiResource>,
    pub(super) version: String,
    pub(super) generation: Option<i64>,
    /// The value of its revision label.
    pub(super) revision: Option<Box<str>>,
    /// The status as JSON text, because a parsed one takes six times the memory.
    status: Option<Bytes>,
}

impl ObservedObject {
    pub(super) fn status(&self) -> Option<Value> {
        self.status
            .as_deref()
            .and_then(|status| serde_json::from_slice(status).ok())
    }
}

/// All objects of the watched kinds.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// The last observed versions.
    objects: BTreeMap<ObjectRef, ObservedObject>,
    /// The objects of an unfinished list.
    listed: BTreeMap<Kind, BTreeSet<NamespacedName>>,
}

/// An event of the watch of a kind.
pub(super) struct KindEvent {
    kind: Kind,
    resource: Arc<ApiResource>,
    event: Event<DynamicObject>,
}

impl Live {
    /// The last observed version of an object.
    pub(super) fn get(&self, object: &ObjectRef) -> Option<&ObservedObject> {
        self.objects.get(object)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ObjectRef> {
        self.objects.keys()
    }

    /// Applies an event, and records the affected objects.
    pub(super) fn take(&mut self, event: KindEvent, due: &mut BTreeSet<ObjectRef>) {
        let KindEvent {
            kind,
            resource,
            event,
        } = event;

        match event {
            Event::Init => _ = self.listed.insert(kind, BTreeSet::new()),
            Event::InitApply(object) => {
                self.listed
                    .entry(kind)
                    .or_default()
                    .insert(name_of(&object));
                due.insert(self.put(kind, resource, &object));
            }
            Event::InitDone => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                self.objects
                    .retain(|object, _| object.kind != kind || listed.contains(&object.name));
            }
            Event::Apply(object) => _ = due.insert(self.put(kind, resource, &object)),
            Event::Delete(object) => {
                _ = self.objects.remove(&ObjectRef {
                    kind,
                    name: name_of(&object),
                })
            }
        }
    }

    fn put(&mut self, kind: Kind, resource: Arc<ApiResource>, object: &DynamicObject) -> ObjectRef {
        let name = ObjectRef {
            kind,
            name: name_of(object),
        };
        let seen = ObservedObject {
            resource,
            version: object.resource_version().unwrap_or_default(),
            generation: object.metadata.generation,
            revision: object
                .labels()
                .get(REVISION)
                .map(|revision| revision.as_str().into()),
            status: object
                .data
                .get("status")
                .map(|status| Bytes::from(status.to_string())),
        };

        self.objects.insert(name.clone(), seen);
        name
    }
}

fn name_of(object: &DynamicObject) -> NamespacedName {
    NamespacedName::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// Adapts a [`Backoff`] to the trait of kube's watchers.
struct Pauses(Backoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.next_delay())
    }
}

impl kube::runtime::utils::Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Watches the objects of a kind, in the best supported version of the server.
pub(super) fn watch(cluster: &Cluster, kind: Kind) -> BoxStream<'static, KindEvent> {
    let client = cluster.0.clone();
    let found = stream::once(served(client.clone(), kind));
    let events = found.flat_map(move |resource| {
        let resource = Arc::new(resource);
        let objects = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let pauses = ResetTimerBackoff::new(Pauses(RETRY_DELAYS), STABLE_AFTER);
        let events = watcher(objects, watcher::Config::default()).backoff(pauses);
        events.filter_map(move |event| {
            let event = event
                .inspect_err(|error| tracing::debug!(%kind, %error, "failed to watch objects whose status is written"))
                .ok();
            std::future::ready(event.map(|event| KindEvent {
                kind,
                resource: resource.clone(),
                event,
            }))
        })
    });
    events.boxed()
}

/// The API resource of a kind, in the first version that the server supports.
async fn served(client: Client, kind: Kind) -> ApiResource {
    let resources = served_versions(kind).iter().map(|version| {
        ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), version, kind.as_str()))
    });
    let resources: Vec<ApiResource> = resources.collect();
    for resource in &resources {
        let objects = Api::<DynamicObject>::all_with(client.clone(), resource);
        match objects.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Ok(_) | Err(_) => return resource.clone(),
        }
    }
    let any = GroupVersionKind::gvk(kind.group(), "v1", kind.as_str());
    resources
        .into_iter()
        .next()
        .unwrap_or_else(|| ApiResource::from_gvk(&any))
}
