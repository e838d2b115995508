//! Writes the status of objects: the wanted status is received, the current one is watched, and
//! differences are written. Each object is written at most once per change of either, and with
//! growing delays while it keeps changing. Gateway API objects have their whole status written
//! here, other objects their conditions only.

mod live;
mod merge;
mod pace;
mod rejected_overlays;

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, SelectAll};
use futures_util::{FutureExt, StreamExt};
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::denials::Denials;
use crate::revisions::Responsibility;
use live::{Live, ObservedObject};
pub(crate) use merge::ISTIO_GROUP;
pub use merge::{StatusScope, status_correction};
use navarch_api::object::{Kind, ObjectRef};
use navarch_kubernetes::{InWords, is_conflict_or_gone};
use pace::{Pace, WriteOutcome};

/// Maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 8;
/// Maximum number of events that are applied before due statuses are written.
const EVENTS_AT_ONCE: usize = 256;

/// The wanted status of each object, without the transition times of conditions.
pub type DesiredStatuses = OrdMap<ObjectRef, DesiredStatus>;

/// The wanted status of an object: a JSON object as text, which is parsed when it is written.
pub type DesiredStatus = Bytes;

/// Writes statuses.
#[derive(Clone, Debug)]
pub struct ObjectStatuses {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Receives each new set, which is compared with the last one to find the objects that differ.
    pub wanted: watch::Receiver<DesiredStatuses>,
    /// The controllers whose entries are written; other entries are kept.
    pub controllers: Vec<String>,
    /// How much of the status is written.
    pub scope: StatusScope,
    /// Selects the objects.
    pub responsibility: Responsibility,
    /// Whether the proxies of Gateways are deployed: then a Gateway whose overlay the deployment
    /// rejects is not accepted.
    pub deploys_gateways: bool,
}

struct Write {
    object: ObjectRef,
    /// The observed version.
    seen: ObservedObject,
    /// The fields to set; `null` removes a field.
    members: Map<String, Value>,
}

impl ObjectStatuses {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut live = Live::default();
        let mut watched: BTreeSet<Kind> = BTreeSet::new();
        let mut events = SelectAll::new();
        let mut wanted = DesiredStatuses::new();
        let mut pace = Pace::default();
        let mut under_way = FuturesUnordered::new();
        let denials = Denials::default();
        self.wanted.mark_changed();

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some((object, outcome)) = under_way.next() => {
                    pace.end(object, outcome, Instant::now());
                }
                // While the maximum number of writes runs, due statuses wait.
                () = pace.sleep(), if under_way.len() < MAX_CONCURRENT_WRITES => {}
                Some(event) = events.next() => {
                    live.take(event, &mut pace.due);
                    // Events that already arrived are applied before any write.
                    let arrived = std::iter::from_fn(|| events.next().now_or_never().flatten());
                    for event in arrived.take(EVENTS_AT_ONCE) {
                        live.take(event, &mut pace.due);
                    }
                }
                () = self.responsibility.changed() => pace.due.extend(live.names().cloned()),
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = self.wanted.borrow_and_update().clone();
                    let changed = changed_between(&wanted, &now);
                    wanted = now;
                    for kind in changed.iter().map(|object| object.kind).collect::<BTreeSet<_>>() {
                        // The kind has an object, so its CustomResourceDefinition exists.
                        if watched.insert(kind) {
                            events.push(live::watch(&self.cluster, kind));
                        }
                    }
                    pace.due.extend(changed);
                }
            }

            while under_way.len() < MAX_CONCURRENT_WRITES {
                let Some(object) = pace.next(Instant::now()) else {
                    break;
                };
                let Some(write) = self.write_of(object.clone(), &wanted, &live) else {
                    continue;
                };
                pace.begin(object, Instant::now());
                under_way.push(write_status(self.cluster.clone(), write, denials.clone()));
            }
        }
    }

    /// The write for an object, if one is needed.
    fn write_of(&self, object: ObjectRef, wanted: &DesiredStatuses, live: &Live) -> Option<Write> {
        let seen = live.get(&object)?;
        if !self
            .responsibility
            .has(object.name.namespace.as_str(), seen.revision.as_deref())
        {
            return None;
        }
        let seen = seen.clone();
        let status = seen.status();
        let mut wanted: Map<String, Value> = serde_json::from_slice(wanted.get(&object)?).ok()?;
        if self.deploys_gateways && object.kind == Kind::KubernetesGateway {
            rejected_overlays::apply(&mut wanted, status.as_ref());
        }

        // The API server would reject a status for a later generation than the observed one, so the
        // watch must report it first.
        if seen.generation.is_some_and(|generation| {
            wanted
                .values()
                .any(|member| observes_later(member, generation))
        }) {
            return None;
        }

        let now = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let controllers: Vec<&str> = self.controllers.iter().map(String::as_str).collect();
        let members = status_correction(status.as_ref(), &wanted, self.scope, &controllers, &now)?;

        Some(Write {
            object,
            seen,
            members,
        })
    }
}

/// Whether a wanted status has a condition of a later generation.
fn observes_later(status: &Value, generation: i64) -> bool {
    match status {
        Value::Object(members) => {
            members
                .iter()
                .any(|(name, value)| match (name.as_str(), value.as_i64()) {
                    ("observedGeneration", Some(observed)) => observed > generation,
                    _ => observes_later(value, generation),
                })
        }
        Value::Array(items) => items.iter().any(|item| observes_later(item, generation)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Writes a status, if the object is still the observed version. Returns the object and the
/// outcome.
async fn write_status(
    cluster: Cluster,
    write: Write,
    denials: Denials,
) -> (ObjectRef, WriteOutcome) {
    let Write {
        object,
        seen,
        members,
    } = write;
    let patch = json!({ "metadata": { "resourceVersion": seen.version }, "status": members });
    let name = &object.name;
    let objects = match object.kind.is_cluster_scoped() {
        true => Api::<DynamicObject>::all_with(cluster.0, &seen.resource),
        false => Api::<DynamicObject>::namespaced_with(
            cluster.0,
            name.namespace.as_str(),
            &seen.resource,
        ),
    };

    let outcome = match objects
        .patch_status(&name.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => WriteOutcome::Written,
        Err(error) if is_conflict_or_gone(&error) => {
            tracing::debug!(%object, "object changed concurrently; retrying");
            WriteOutcome::Conflict
        }
        // Tried again, in case the right is given later.
        Err(error) if denials.covers(object.kind.as_str(), &error) => WriteOutcome::Failed,
        Err(error) => {
            tracing::warn!(%object, error = %InWords(&error), "failed to write status; retrying");
            WriteOutcome::Failed
        }
    };

    (object, outcome)
}

/// The objects whose wanted statuses differ. The cost is proportional to the difference.
fn changed_between(before: &DesiredStatuses, now: &DesiredStatuses) -> Vec<ObjectRef> {
    before
        .diff(now)
        .map(|item| match item {
            DiffItem::Add(object, _) | DiffItem::Remove(object, _) => object.clone(),
            DiffItem::Update {
                new: (object, _), ..
            } => object.clone(),
        })
        .collect()
}
