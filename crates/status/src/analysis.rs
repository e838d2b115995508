//! Writes analysis findings into the status of Istio's objects.
//!
//! Agrees with Istio's `pkg/config/analysis/incluster`, except for the mesh config, which istiod's
//! analyzers do not read.

mod findings;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::namespaces::NamespaceScope;
use navarch_analysis::{Incremental, Key, Kind, Level, Mesh, Message, live};
use navarch_kubernetes::{InWords, is_stale, status_patch};
use objects::Objects;

/// Maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 8;
/// Debounce time before analyzers run; after the whole interval they run anyway.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Maximum number of logged findings; all are in the statuses.
const MAX_LOGGED: usize = 1000;

/// Writes analysis findings into the status of Istio's objects (`PILOT_ENABLE_ANALYSIS`).
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The client of the API server.
    pub cluster: Cluster,
    /// Maximum delay of an analysis after a change (`PILOT_ANALYSIS_INTERVAL`).
    pub interval: Duration,
    /// The revision of this control plane: objects of other revisions are not analyzed.
    pub revision: String,
    /// The namespace of the control plane.
    pub namespace: String,
    /// Selects the namespaces.
    pub scope: watch::Receiver<NamespaceScope>,
    /// The settings of the mesh.
    pub mesh: watch::Receiver<Mesh>,
}

/// A correction of an object's status.
#[derive(Debug)]
struct StatusCorrection {
    key: Key,
    /// The analyzed version.
    resource_version: String,
    /// Whether there is a status.
    has_status: bool,
    /// The patch of the status.
    correction: Map<String, Value>,
}

/// The objects and the findings.
#[derive(Debug, Default)]
struct AnalysisState {
    /// Shared with the analysis thread while it runs.
    objects: Arc<Objects>,
    found: Incremental,
    /// The findings that were logged.
    logged: BTreeSet<String>,
    /// The kinds with a logged write failure.
    unwritten: BTreeSet<Kind>,
}

/// A failed write of a status.
#[derive(Debug)]
struct Failure {
    key: Key,
    error: kube::Error,
}

/// When analyzers are to run.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// When the first change after the last analysis arrived.
    first: Instant,
    /// When the last change arrived.
    last: Instant,
}

impl Pending {
    /// Records a change.
    fn note(pending: &mut Option<Self>, now: Instant) {
        pending
            .get_or_insert(Self {
                first: now,
                last: now,
            })
            .last = now;
    }

    /// When analyzers run, given the maximum delay.
    fn due(self, interval: Duration) -> Instant {
        (self.last + DEBOUNCE.min(interval)).min(self.first + interval)
    }
}

impl Analysis {
    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let only = self.scope.borrow().only.clone();
        let mut events =
            stream::select_all(live::kinds().map(|kind| self.watch(kind, only.as_deref())));
        let objects = Arc::new(Objects::new(&self.revision, &self.namespace));
        let mut standing = AnalysisState {
            objects,
            ..AnalysisState::default()
        };
        let mut pending: Option<Pending> = None;

        loop {
            let due = pending
                .filter(|_| standing.objects.is_complete())
                .map(|pending| pending.due(self.interval));
            let wait = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };

            let settings = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => {
                    let Some((kind, event)) = event else { return };
                    if Arc::make_mut(&mut standing.objects).take(kind, event) {
                        Pending::note(&mut pending, Instant::now());
                    }
                    continue;
                }
                changed = self.mesh.changed() => changed,
                changed = self.scope.changed() => changed,
                () = wait => {
                    pending = None;
                    let written = tokio::select! {
                        () = stop.cancelled() => return,
                        written = self.analyze(&mut standing) => written,
                    };
                    if !written {
                        Pending::note(&mut pending, Instant::now());
                    }
                    continue;
                }
            };

            // The sender of the settings ends at shutdown.
            if settings.is_err() {
                return;
            }

            Arc::make_mut(&mut standing.objects).note_settings();
            Pending::note(&mut pending, Instant::now());
        }
    }

    /// Watches a kind.
    fn watch(
        &self,
        kind: Kind,
        only: Option<&str>,
    ) -> BoxStream<'static, (Kind, Result<Event<DynamicObject>, watcher::Error>)> {
        let resource = resource(kind);
        let namespace = live::only_namespace(kind, &self.namespace)
            .or(only)
            .filter(|_| !kind.is_cluster_scoped());
        let objects = match namespace {
            Some(namespace) => {
                Api::<DynamicObject>::namespaced_with(self.cluster.0.clone(), namespace, &resource)
            }
            None => Api::all_with(self.cluster.0.clone(), &resource),
        };

        let config = live::field_selector(kind)
            .iter()
            .fold(watcher::Config::default(), |config, fields| {
                config.fields(fields)
            });

        watcher(objects, config)
            .default_backoff()
            .map(move |event| (kind, event))
            .boxed()
    }

    /// Analyzes the changes, and writes the findings. Returns whether all were written or cannot be
    /// written at all.
    async fn analyze(&mut self, standing: &mut AnalysisState) -> bool {
        let changed = Arc::make_mut(&mut standing.objects).take_changed();
        let mesh = self.mesh.borrow_and_update().clone();
        let scope = self.scope.borrow_and_update().clone();
        let objects = Arc::clone(&standing.objects);
        let mut found = std::mem::take(&mut standing.found);
        let looked = tokio::task::spawn_blocking(move || {
            found.update(&objects.context(mesh, &scope), &changed);
            let messages = found.messages();
            let due = due(&objects, &scope, &messages);
            (found, messages, due)
        });

        match looked.await {
            Ok((found, messages, due)) => {
                standing.found = found;
                log_messages(&mut standing.logged, &messages);
                let failures: Vec<_> = stream::iter(due)
                    .map(|due| self.write(due))
                    .buffer_unordered(MAX_CONCURRENT_WRITES)
                    .collect()
                    .await;
                let mut is_done = true;
                for failure in failures.into_iter().filter_map(Result::err) {
                    is_done &= log_failure(&mut standing.unwritten, &failure);
                }
                is_done
            }
            Err(error) => {
                tracing::error!(%error, "BUG: analyzer panicked; statuses stay unchanged until the next change");
                true
            }
        }
    }

    /// Corrects a status, if the object is still the analyzed version. Other fields keep their
    /// values.
    async fn write(&self, due: StatusCorrection) -> Result<(), Failure> {
        let StatusCorrection {
            key,
            resource_version,
            has_status,
            correction,
        } = due;

        let cluster = self.cluster.0.clone();
        let objects =
            Api::<DynamicObject>::namespaced_with(cluster, &key.namespace, &resource(key.kind));
        let written = match status_patch(resource_version, has_status, correction) {
            Ok(patch) => {
                objects
                    .patch_status(&key.name, &PatchParams::default(), &patch)
                    .await
            }
            Err(error) => Err(error),
        };

        written.map(drop).map_err(|error| Failure { key, error })
    }
}

/// Logs a failed write; returns whether it need not be retried before a change.
fn log_failure(unwritten: &mut BTreeSet<Kind>, failure: &Failure) -> bool {
    let Failure { key, error } = failure;

    let kind = key.kind.as_str();
    let ns = &key.namespace;
    let name = &key.name;
    let text = InWords(error);

    if is_stale(error) {
        // Another writer has changed it; the watch will report that.
        tracing::debug!(kind, ns, name, error = %text, "object changed concurrently; retrying");
        return true;
    }

    if unwritten.insert(key.kind) {
        tracing::warn!(kind, ns, name, error = %text, "failed to write status; further failures of this kind are logged at debug");
    } else {
        tracing::debug!(kind, ns, name, error = %text, "failed to write status");
    }

    matches!(
        error,
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429
    )
}

fn resource(kind: Kind) -> ApiResource {
    let version = kind.versions().first().copied().unwrap_or("v1");
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.group(), version, kind.as_str()),
        kind.plural(),
    )
}

/// The objects whose status differs from the findings.
fn due(objects: &Objects, scope: &NamespaceScope, messages: &[Message]) -> Vec<StatusCorrection> {
    let mut found: BTreeMap<Key, Vec<&Message>> = BTreeMap::new();

    for message in messages {
        found
            .entry(message.resource.key())
            .or_default()
            .push(message);
    }

    let istio = objects
        .within(scope)
        .filter(|object| object.resource.kind.is_istio());
    istio
        .filter_map(|object| {
            let key = object.resource.key();
            let status = object.resource.status();
            let messages = found.get(&key).map(Vec::as_slice).unwrap_or_default();
            let correction = findings::correction(status, object.generation, messages)?;
            Some(StatusCorrection {
                key,
                resource_version: object.version.clone(),
                has_status: !status.is_null(),
                correction,
            })
        })
        .collect()
}

/// Logs new findings and resolved ones.
fn log_messages(logged: &mut BTreeSet<String>, messages: &[Message]) {
    let grave = messages
        .iter()
        .filter(|message| message.level() <= Level::Warning)
        .take(MAX_LOGGED);
    let now: BTreeSet<_> = grave.map(ToString::to_string).collect();
    for finding in now.difference(logged) {
        tracing::warn!(finding, "configuration analysis finding");
    }
    for finding in logged.difference(&now) {
        tracing::info!(finding, "configuration analysis finding resolved");
    }
    *logged = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_batched_until_a_pause_or_a_maximum_delay() {
        let begun = Instant::now();
        let interval = Duration::from_secs(3);
        let mut pending = None;
        Pending::note(&mut pending, begun);
        assert_eq!(pending.unwrap().due(interval), begun + DEBOUNCE);
        for step in 1..5 {
            Pending::note(&mut pending, begun + Duration::from_millis(700) * step);
        }
        assert_eq!(pending.unwrap().due(interval), begun + interval);
        let short = Duration::from_millis(100);
        assert_eq!(pending.unwrap().due(short), begun + short);
    }
}
