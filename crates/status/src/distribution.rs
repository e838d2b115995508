//! Writes the number of proxies that have acknowledged an object into the status of Istio's
//! objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::reconciled::{self, Progress};
use super::report;
use super::reports::{Reports, STALE};
use navarch_api::crds;
use navarch_api::object::{Kind, NamespacedName, ObjectRef};
use navarch_kubernetes::{InWords, is_stale, status_patch};

/// Maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 8;

/// The progress of each object.
pub type Progresses = Arc<BTreeMap<ObjectRef, Progress>>;

/// Writes the condition `Reconciled` (`PILOT_ENABLE_STATUS`).
#[derive(Clone, Debug)]
pub struct Distribution {
    /// The client of the API server.
    pub cluster: Cluster,
    /// The namespace with the reports of other replicas.
    pub namespace: String,
    /// The name of this replica.
    pub identity: String,
    /// The progress of objects among the proxies of this replica.
    pub progresses: watch::Receiver<Progresses>,
}

impl Distribution {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let resources: BTreeMap<&str, ApiResource> = crds::kinds()
            .map(|kind| {
                let name = GroupVersionKind::gvk(&kind.group, kind.version, kind.kind);
                (
                    kind.kind,
                    ApiResource::from_gvk_with_plural(&name, kind.plural),
                )
            })
            .collect();

        let maps = Api::<ConfigMap>::namespaced(self.cluster.0.clone(), &self.namespace);
        let config = watcher::Config::default().labels(&format!("{}=true", report::LABEL));
        let mut events = std::pin::pin!(watcher(maps.clone(), config).default_backoff());
        let mut reports = Reports::default();
        let mut rounds = tokio::time::interval(STALE / 4);
        let mut written: BTreeMap<ObjectRef, Progress> = BTreeMap::new();
        self.progresses.mark_changed();

        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.progresses.changed() => if changed.is_err() { return },
                event = events.next() => match event {
                    Some(Ok(event)) => reports.take(event, &self.identity, Instant::now()),
                    Some(Err(error)) => {
                        tracing::warn!(error = %InWords(&error), "failed to list the distribution reports of other replicas");
                        continue;
                    }
                    None => return,
                },
                _ = rounds.tick() => {
                    for name in reports.stale(Instant::now()) {
                        tracing::info!(name, "deleting the distribution report of a stopped replica");
                        // Failed deletions are retried in the next round, and the report is ignored
                        // from now on.
                        let parameters = DeleteParams::default();
                        tokio::select! {
                            // The lock is not released before this returns, and a request on a
                            // half-open connection can take minutes.
                            () = stop.cancelled() => return,
                            deleted = maps.delete(&name, &parameters) => drop(deleted),
                        }
                    }
                }
            }

            let now = report::sum(
                &self.progresses.borrow_and_update().clone(),
                reports.fresh(Instant::now()),
            );
            written.retain(|object, _| now.contains_key(object));
            let is_due = |(object, progress): &(&ObjectRef, &Progress)| {
                written.get(*object) != Some(*progress)
            };

            let due: Vec<(ObjectRef, Progress)> = now
                .iter()
                .filter(is_due)
                .map(|(object, progress)| (object.clone(), *progress))
                .collect();

            let write = |(object, progress): (ObjectRef, Progress)| {
                let cluster = self.cluster.clone();
                let resource = resources.get(Kind::as_str(object.kind)).cloned();
                async move {
                    let done = write(&cluster, &resource?, &object.name, progress).await;
                    done.then_some((object, progress))
                }
            };

            let writes = stream::iter(due)
                .map(write)
                .buffer_unordered(MAX_CONCURRENT_WRITES)
                .collect::<Vec<_>>();
            tokio::select! {
                () = stop.cancelled() => return,
                done = writes => written.extend(done.into_iter().flatten()),
            }
        }
    }
}

/// Updates the condition of an object; returns whether it is up to date for this generation.
async fn write(
    cluster: &Cluster,
    resource: &ApiResource,
    name: &NamespacedName,
    progress: Progress,
) -> bool {
    let objects =
        Api::<DynamicObject>::namespaced_with(cluster.0.clone(), name.namespace.as_str(), resource);
    let outcome = async {
        let Some(object) = objects.get_opt(&name.name).await? else {
            return Ok(true);
        };

        // The generation in use differs from the stored one: the next round decides.
        if object.metadata.generation != Some(progress.generation) {
            return Ok(false);
        }

        let status = object.data.get("status").cloned();
        let now = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let Some(conditions) = reconciled::correction(status.as_ref(), progress, &now) else {
            return Ok(true);
        };

        let conditions = [("conditions", json!(conditions))];
        let patch = status_patch(
            object.metadata.resource_version.clone(),
            status.is_some(),
            conditions,
        )?;
        objects
            .patch_status(&name.name, &PatchParams::default(), &patch)
            .await?;

        Ok(true)
    };

    match outcome.await {
        Ok(done) => done,
        // Another writer has changed it; the next round reads it again.
        Err(error) if is_stale(&error) => false,
        Err(error) => {
            tracing::warn!(kind = resource.kind, ns = %name.namespace, name = &*name.name, error = %InWords(&error), "failed to write status");
            false
        }
    }
}
