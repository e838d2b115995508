//! Writes the status of objects: what it should say is told, what it says is watched, and what differs is written, each object at
//! most once for each change of either. That of the Gateway API's objects is all its own, of others it is the conditions.

mod live;
mod merge;

use std::collections::BTreeSet;

use futures_util::stream::SelectAll;
use futures_util::{StreamExt, stream};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use live::{Live, Seen};
pub use merge::{Share, status_correction};
use navarch_api::object::{Kind, ObjectRef};

/// How many objects are written at once.
const AT_ONCE: usize = 8;

/// What each object's status should say, without the times at which conditions changed.
pub type WantedStatuses = OrdMap<ObjectRef, WantedStatus>;

/// What the status of an object should say.
pub type WantedStatus = std::sync::Arc<Map<String, Value>>;

/// Writes statuses.
#[derive(Clone, Debug)]
pub struct ObjectStatuses {
    /// Cluster that is written to.
    pub cluster: Cluster,
    /// What they should say.
    pub wanted: watch::Receiver<WantedStatuses>,
    /// The controllers in whose name entries are written: those of others stay as they are.
    pub controllers: Vec<String>,
    /// How much of a status is written.
    pub share: Share,
}

struct Write {
    object: ObjectRef,
    /// As it was seen.
    seen: Seen,
    /// The members to set; `null` takes one away.
    members: Map<String, Value>,
}

impl ObjectStatuses {
    /// Runs until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut live = Live::default();
        let mut watched: BTreeSet<Kind> = BTreeSet::new();
        let mut events = SelectAll::new();
        let mut wanted = WantedStatuses::new();
        let mut due: BTreeSet<ObjectRef> = BTreeSet::new();
        self.wanted.mark_changed();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some((kind, event)) = events.next() => live.take(kind, event, &mut due),
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = self.wanted.borrow_and_update().clone();
                    due.extend(changed_between(&wanted, &now));
                    wanted = now;
                    for kind in due.iter().map(|object| object.kind).collect::<BTreeSet<_>>() {
                        // An object of the kind is there, so its definition is.
                        if watched.insert(kind) {
                            events.push(live::watch(&self.cluster, kind));
                        }
                    }
                }
            }
            let writes: Vec<Write> = std::mem::take(&mut due)
                .into_iter()
                .filter_map(|object| self.write_of(object, &wanted, &live))
                .collect();
            let all = stream::iter(writes).for_each_concurrent(AT_ONCE, |write| self.write(write));
            tokio::select! {
                () = stop.cancelled() => return,
                () = all => {}
            }
        }
    }

    /// What must be written of an object.
    fn write_of(&self, object: ObjectRef, wanted: &WantedStatuses, live: &Live) -> Option<Write> {
        let seen = live.get(&object)?.clone();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let controllers: Vec<&str> = self.controllers.iter().map(String::as_str).collect();
        let wanted = wanted.get(&object)?;
        let members = status_correction(seen.status.as_ref(), wanted, self.share, &controllers, &now)?;
        Some(Write { object, seen, members })
    }

    /// Writes a status, if the object is still as it was seen. Else its watch will tell of it, and it is looked at again.
    async fn write(&self, write: Write) {
        let Write { object, seen, members } = write;
        let patch = json!({ "metadata": { "resourceVersion": seen.version }, "status": members });
        let name = &object.name;
        let objects = match object.kind.is_cluster_scoped() {
            true => Api::<DynamicObject>::all_with(self.cluster.0.clone(), &seen.resource),
            false => {
                Api::<DynamicObject>::namespaced_with(self.cluster.0.clone(), name.namespace.as_str(), &seen.resource)
            }
        };
        match objects.patch_status(&name.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                tracing::debug!(%object, "the object has changed");
            }
            Err(error) => tracing::warn!(%object, %error, "cannot write the status"),
        }
    }
}

/// The objects of which two maps say something else. Costs what differs.
fn changed_between(before: &WantedStatuses, now: &WantedStatuses) -> Vec<ObjectRef> {
    before
        .diff(now)
        .map(|item| match item {
            DiffItem::Add(object, _) | DiffItem::Remove(object, _) => object.clone(),
            DiffItem::Update { new: (object, _), .. } => object.clone(),
        })
        .collect()
}
